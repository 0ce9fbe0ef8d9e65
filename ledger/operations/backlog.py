"""What waits on each queue and what a tenant has at work, for people to read: it counts, and decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlmodel import Session, col

from ledger.dispatch_window import AT_WORK
from ledger.store import Statement, now
from ledger.tables import Job
from routing.scheduling import WaitReason

_AT_WORK = Statement(
    f"SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id WHERE {AT_WORK} AND job.tenant = %(tenant)s"
)


class Depth(NamedTuple):
    """The backlog of a queue."""

    queue: str
    waiting: int
    oldest_age_seconds: float
    """Of the job that has waited longest, held or not; one that waits for a time ages only once that has come."""
    held: Mapping[str, int]
    """How many of the waiting jobs are held, by what for."""


def depths(session: Session, *, tenant: str | None = None) -> Sequence[Depth]:
    """Return the backlog of each queue that has one, for one tenant or for all."""
    held_for = col(Job.held_for)
    age = func.greatest(0, func.extract("epoch", now() - func.min(col(Job.waiting_since))))
    held = [func.count().filter(held_for == reason.value) for reason in WaitReason]
    waits = select(col(Job.queue), func.count(), age, *held).where(col(Job.waiting_since).is_not(None))
    if tenant is not None:
        waits = waits.where(col(Job.tenant) == tenant)
    return [
        Depth(
            queue,
            waiting,
            round(float(seconds), 3),
            {reason.value: count for reason, count in zip(WaitReason, counts, strict=True) if count},
        )
        for queue, waiting, seconds, *counts in session.execute(waits.group_by(col(Job.queue)))
    ]


def attempts_at_work(session: Session, tenant: str) -> int:
    """Return how many attempts of a tenant count against how many it may have."""
    return int(_AT_WORK.scalar(session, {"tenant": tenant}))
