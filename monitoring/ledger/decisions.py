"""Decisions on record: debates and verdicts (R-050), and the routes and costs that a policy's rehearsal reads."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import func, insert, select
from sqlalchemy.orm import aliased
from sqlmodel import Session, col

from monitoring.ledger.events import EventKind
from monitoring.ledger.events import record as record_event
from monitoring.ledger.tables import Attempt, Call, Debate, Job, Release, Site
from routing.debate_record import DebateKind, HeldDebate, Verdict
from routing.jobs import Reason
from routing.replay import Recorded, Work, read_recorded
from routing.router import debate_key

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


def add_debate(session: Session, job: Job, record: HeldDebate) -> None:
    """Put a debate on record and on its job, for owner, workers and gates to see.

    What an earlier debate of the same task asked for still holds: this one adds to it.
    """
    session.execute(
        insert(Debate).values(
            job_id=job.id,
            tenant=job.tenant,
            session=job.request.get("session"),
            key=record.key,
            decision_key=debate_key(job.prompt),
            kind=record.kind.value,
            stakes=record.stakes.value if record.stakes else None,
            verdict=record.verdict.value,
            record=record.fields(),
        )
    )
    earlier = str((job.result.get("debate") or {}).get("instruction", ""))
    instruction = " ".join(filter(None, dict.fromkeys((earlier, record.instruction))))
    summary = {"verdict": record.verdict.value, "note": record.note, "instruction": instruction}
    needs_person = record.needs_person or bool(job.result.get("needs_person"))
    job.result = {**job.result, "debate": summary, "needs_person": needs_person}
    session.flush()
    record_event(session, EventKind.DEBATED, job=job, debate=record.kind.value, verdict=record.verdict.value)


def debated_keys(session: Session, tenant: str, session_id: str) -> frozenset[str]:
    """Return the decisions that a session has debated and that may be carried out, as the router compares them (R-059).

    A debate about a failure was about another decision (A11), and one that said stop allows nothing.
    """
    query = select(col(Debate.decision_key)).where(
        col(Debate.tenant) == tenant,
        col(Debate.session) == session_id,
        col(Debate.kind) == DebateKind.PLANNING.value,
        col(Debate.verdict) != Verdict.STOP.value,
    )
    return frozenset(session.scalars(query))
