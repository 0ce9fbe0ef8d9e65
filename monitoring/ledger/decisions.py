"""Read what was decided and what it took: what the rehearsal of a policy rests on (`pointsman route replay`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from monitoring.ledger.tables import Attempt, Call, Job, Release, Site
from routing.jobs import Reason
from routing.replay import Recorded, Work, read_recorded

_BATCH = 500
"""Rows that are fetched at a time: a ledger may hold more decisions than memory does."""


def recorded_decisions(session: Session, *, since: datetime | None = None) -> Iterator[Recorded | None]:
    """Yield the decisions about accepted jobs, oldest first; None for one that this version cannot read.

    What was refused was decided by nobody, and a job that goes on from another has that one's decision, or its
    debate's, or one about work that is on no site yet: all of them are left out.
    """
    claimed, active = aliased(Release), aliased(Release)
    query = (
        select(
            col(Job.id),
            col(Job.tenant),
            col(Job.prompt),
            col(Job.request),
            col(Job.route),
            col(claimed.signals),
            col(active.signals),
        )
        .outerjoin(claimed, col(claimed.id) == col(Job.base_release_id))
        .outerjoin(Site, col(Site.id) == col(Job.site_id))
        .outerjoin(active, col(active.id) == col(Site.active_release_id))
        .where(col(Job.mode).is_not(None), col(Job.parent_id).is_(None))
        .order_by(col(Job.created_at), col(Job.id))
    )
    if since is not None:
        query = query.where(col(Job.created_at) >= since)
    for row in session.execute(query.execution_options(yield_per=_BATCH)):
        job_id, tenant, prompt, request, route, at_claim, now = row
        yield read_recorded(
            str(job_id), tenant=tenant, prompt=prompt, request=request, route=route, claimed=at_claim, now=now
        )


def measured_work(session: Session, *, since: datetime | None = None) -> Iterator[Work]:
    """Yield what each job took on each queue that it is done with there.

    Failures are included: they cost, too. What is not installed did no work and says nothing about it.
    """
    costs = (
        select(col(Call.attempt_id), func.sum(col(Call.cost_nanousd)).label("nanousd"))
        .where(col(Call.state) != "reserved")
        .group_by(col(Call.attempt_id))
        .subquery()
    )
    seconds = func.extract("epoch", col(Attempt.ended_at) - col(Attempt.started_at))
    query = (
        select(col(Attempt.queue), func.sum(seconds), func.max(seconds), func.coalesce(func.sum(costs.c.nanousd), 0))
        .outerjoin(costs, costs.c.attempt_id == col(Attempt.id))
        .where(col(Attempt.ended_at).is_not(None), col(Attempt.reason).is_distinct_from(Reason.NOT_AVAILABLE.value))
        .group_by(col(Attempt.job_id), col(Attempt.queue))
    )
    if since is not None:
        query = query.where(col(Attempt.started_at) >= since)
    for queue, total, longest, nanousd in session.execute(query.execution_options(yield_per=_BATCH)):
        yield Work(queue, float(total), float(longest), int(nanousd))
