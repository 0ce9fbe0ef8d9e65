"""A newer job takes the place of older ones with the same key: nobody pays for an edit that is out of date.

What is being published is published: the newer job then works on what that shows.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Select, func, select
from sqlmodel import Session, col

from monitoring.ledger.cancelling import request_cancel
from monitoring.ledger.jobs import lock_job
from monitoring.ledger.step_ends import is_step
from monitoring.ledger.tables import Job
from routing.jobs import ENDS, State

MOST_AT_ONCE = 100
"""Older jobs that one newer one can take the place of: of these it ends each in its own transaction's locks."""


def supersede(session: Session, newer: Job) -> list[UUID]:
    """Cancel the older jobs whose place a job that was just accepted takes; return them.

    One that waits ends at once, one that is worked on at its next model call, chunk or step. Each owner gets the one
    notification of its job, which names the newer one.

    Args:
        session: the transaction in which `newer` was accepted, or bound to its site.
        newer: was submitted with a key, and its target is known; a job without a key takes nobody's place.
    """
    if newer.supersede_key is None:
        return []
    take_turn(session, newer)
    ended = []
    for job_id in session.scalars(_rivals(newer).order_by(col(Job.id)).limit(MOST_AT_ONCE)).all():
        job = lock_job(session, job_id)
        if State(job.state) in ENDS or job.state == State.PUBLISHING or is_step(job):
            continue
        job.superseded_by = newer.id
        request_cancel(session, job, actor=f"job:{newer.id}")
        ended.append(job_id)
    return ended


def newer_rival(session: Session, job: Job) -> UUID | None:
    """Return the newest job that takes the place of one whose target only became known now; None where none does."""
    if job.supersede_key is None:
        return None
    take_turn(session, job)
    newer = _rivals(job).where(col(Job.created_at) > job.created_at)
    return session.scalars(newer.order_by(col(Job.created_at).desc()).limit(1)).one_or_none()


def take_turn(session: Session, job: Job) -> None:
    """Wait for others with the same key: of two that come at once the second sees the first, or both would stay.

    Before the job's row is locked, always: whoever has the turn goes on to lock the rows of the others.
    """
    if job.supersede_key is None:
        return
    name = f"supersede/{job.tenant}/{job.supersede_key}"
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def _rivals(job: Job) -> Select[UUID]:
    """Return a query for the other jobs with the same target and key that have not ended."""
    return (
        select(col(Job.id))
        .where(col(Job.tenant) == job.tenant, col(Job.supersede_key) == job.supersede_key)
        .where(col(Job.ended_at).is_(None), col(Job.id) != job.id, col(Job.superseded_by).is_(None))
        .where(col(Job.site_id).is_not_distinct_from(job.site_id))
        .where(col(Job.request)["project"].astext.is_not_distinct_from(job.request.get("project")))
    )
