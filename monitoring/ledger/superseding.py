"""A newer job takes the place of older ones with the same key: nobody pays for an edit that is out of date.

What is being published is published: the newer job then works on what that shows.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, select
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
        session: the transaction in which `newer` was accepted.
        newer: was submitted with a key; a job without one takes nobody's place.
    """
    if newer.supersede_key is None:
        return []
    # Of two that come at once, the second sees the first: without that, both would stay.
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(_lock_name(newer), 0))))
    older = (
        select(col(Job.id))
        .where(col(Job.tenant) == newer.tenant, col(Job.supersede_key) == newer.supersede_key)
        .where(col(Job.ended_at).is_(None), col(Job.id) != newer.id, col(Job.superseded_by).is_(None))
        .where(col(Job.site_id).is_not_distinct_from(newer.site_id))
        .where(col(Job.request)["project"].astext.is_not_distinct_from(newer.request.get("project")))
    )
    ended = []
    for job_id in session.scalars(older.order_by(col(Job.id)).limit(MOST_AT_ONCE)).all():
        job = lock_job(session, job_id)
        if State(job.state) in ENDS or job.state == State.PUBLISHING or is_step(job):
            continue
        job.superseded_by = newer.id
        request_cancel(session, job, actor=f"job:{newer.id}")
        ended.append(job_id)
    return ended


def _lock_name(job: Job) -> str:
    return f"supersede/{job.tenant}/{job.supersede_key}"
