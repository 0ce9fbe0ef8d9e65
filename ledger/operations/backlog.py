"""What waits on each queue and what a tenant has at work, for people to read: it counts, and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import func, select
from sqlmodel import Session, col

from ledger.dispatch_window import AT_WORK
from ledger.store import Statement, now
from ledger.tables import Job

_AT_WORK = Statement(
    f"SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id WHERE {AT_WORK} AND job.tenant = %(tenant)s"
)


class Depth(NamedTuple):
    """The backlog of a queue."""

    queue: str
    waiting: int
    oldest_age_seconds: float


def depths(session: Session, *, tenant: str | None = None) -> Sequence[Depth]:
    """Return the backlog of each queue that has one, for one tenant or for all; what is held grows no age."""
    oldest = func.min(col(Job.waiting_since)).filter(col(Job.held_for).is_(None))
    age = func.greatest(0, func.coalesce(func.extract("epoch", now() - oldest), 0))
    waits = select(col(Job.queue), func.count(), age).where(col(Job.waiting_since).is_not(None))
    if tenant is not None:
        waits = waits.where(col(Job.tenant) == tenant)
    rows = session.execute(waits.group_by(col(Job.queue)))
    return [Depth(queue, waiting, round(float(seconds), 3)) for queue, waiting, seconds in rows]


def attempts_at_work(session: Session, tenant: str) -> int:
    """Return how many attempts of a tenant count against how many it may have."""
    return int(_AT_WORK.scalar(session, {"tenant": tenant}))
