"""The rounds of a session: jobs that go on from each other, on one bill, each from what the one before it kept.

What a round stands on is looked at under the locks of its parent and of its site, so that no parent is gone on from
twice, and no release is swept while a job that starts from it is being accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, select
from sqlmodel import Session, col

from ledger.errors import NotContinuableError
from ledger.releases import lock_site
from ledger.spending import booked_on_bill
from ledger.tables import Job, Release, Site
from routing.decision.router import SiteSignals
from routing.jobs import read_stored
from routing.queues import QueueName, Tier
from routing.rounds import Work

MAX_ROUNDS = 50
"""Jobs of one session: whoever sees one of them sees all."""


_IS_ROUND = col(Job.queue) != QueueName.STEPS.value
"""The steps of a run are jobs on its bill, too, and no rounds of anything."""


@dataclass(frozen=True)
class RoundContext:
    """What a new round stands on."""

    site: Site | None
    start: Release | None
    """What the job before it kept; None when that was nothing."""
    spent_nanousd: int
    """What its bill has spent, and what is held for calls whose cost nobody knows yet."""


def successor_of(session: Session, job_id: UUID) -> UUID | None:
    """Return the job that goes on from this one."""
    return session.scalar(select(col(Job.id)).where(col(Job.parent_id) == job_id, _IS_ROUND))


def is_about_earlier_work(job: Job) -> bool:
    """Tell whether a job's request was about unpublished work of rounds before it."""
    return bool((job.result.get("begun") or {}).get("earlier"))


def rounds_of(session: Session, root_id: UUID) -> Sequence[Job]:
    """Return the jobs of a session in the order in which they went on from each other."""
    return session.scalars(
        select(Job).where(col(Job.root_id) == root_id, _IS_ROUND).order_by(col(Job.created_at))
    ).all()


def work_so_far(start: Release, made_by: Sequence[Job] = ()) -> Work:
    """Return what a round goes on with that starts from a release, made by these rounds."""
    tiers = (Tier(one.tier) for one in made_by if one.tier is not None)
    return Work(max(tiers, default=None), start.total_bytes, read_stored(SiteSignals, start.signals).has_build)


def verb_of(job: Job) -> str | None:
    """Return how a job went on from its parent, a `routing.rounds.Verb` or `debate`; None for the first."""
    if job.parent_id is None:
        return None
    return str(job.result.get("verb") or "debate")


def load_round_context(session: Session, job: Job, *, keeps_work: bool = True) -> RoundContext:
    """Return what a new round that goes on from a locked job stands on, with its site's row locked.

    Args:
        session: the caller's transaction.
        job: what it goes on from.
        keeps_work: whether it starts from what the job kept; else from the site as it is, unless the request means
            nothing without the unpublished work that the job itself began with.

    Raises:
        NotContinuableError: the caller's fault, or nobody's.
    """
    child = successor_of(session, job.id)
    if child is not None:
        raise NotContinuableError(job.id, "continued", str(child))
    so_far = session.scalar(select(func.count()).where(col(Job.root_id) == job.root_id, _IS_ROUND)) or 0
    if so_far >= MAX_ROUNDS:
        raise NotContinuableError(job.id, "too_many_rounds", MAX_ROUNDS)
    site = lock_site(session, job.site_id) if job.site_id is not None else None
    begun_with = job.start_release_id if keeps_work or is_about_earlier_work(job) else None
    start_id = (job.release_id if keeps_work else None) or begun_with
    start = session.get(Release, start_id, populate_existing=True) if start_id is not None else None
    if start is not None and start.swept_at is not None:
        raise NotContinuableError(job.id, "release_swept")
    if start is not None and site is not None and start.base_release_id != site.active_release_id:
        raise NotContinuableError(job.id, "site_moved_on")
    return RoundContext(site, start, sum(booked_on_bill(session, job.root_id)))
