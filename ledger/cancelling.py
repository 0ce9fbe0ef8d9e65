"""Cancelling: a job that nobody works on ends at once, any other at its next model call, chunk or step.

A run is cancelled as a whole: with its steps, and only when the last of them has let go. A newer job cancels older ones
with the same key, so nobody pays for an edit that is out of date; what is being published is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Select, func, select
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import WrongStateError
from ledger.jobs import end, lock_job
from ledger.run_tables import AgentExecution
from ledger.sql import now
from ledger.step_ends import is_run, is_step, live_steps
from ledger.steps import has_live_attempt
from ledger.tables import Job
from routing.jobs import ENDS, Reason, State

WORKED_ON = frozenset({State.RUNNING, State.SCANNING})
"""States of a job that a worker may be at: it ends when that lets go."""


def request_cancel(session: Session, job: Job, *, actor: str) -> None:
    """Cancel a locked job: at once when nobody works on it, otherwise at its next model call, chunk or step.

    Raises:
        WrongStateError: the caller's fault: the job has ended, is being published, or is a step of a run.
    """
    state = State(job.state)
    if state in ENDS or state == State.PUBLISHING:
        raise WrongStateError(job.id, job.state, "a job that has not ended and is not being published")
    if is_step(job):
        raise WrongStateError(job.id, "a step of a run", f"the run: cancel {job.parent_id} as a whole")
    job.cancel_requested_at = job.cancel_requested_at or now()  # type: ignore[assignment]
    session.flush()
    audit.append(session, "cancel_requested", actor=actor, job=job)
    if is_run(job) and state in (State.QUEUED, State.RUNNING, State.AWAITING_APPROVAL):
        _cancel_run(session, job, actor=actor)
    elif state not in WORKED_ON:
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED, actor=actor)


def _cancel_run(session: Session, job: Job, *, actor: str) -> None:
    """Cancel the steps of a locked run. It ends here when nobody works on it, otherwise at its next advance."""
    cancel_steps(session, job)
    if not live_steps(session, job) and not has_live_attempt(session, job):
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED, actor=actor)


def cancel_steps(session: Session, job: Job, *, keys: Sequence[str] | None = None) -> None:
    """Cancel every execution of a locked run that has not ended, or those of some steps only."""
    live = select(col(AgentExecution.job_id)).where(
        col(AgentExecution.run_id) == job.id, col(AgentExecution.settled_at).is_(None)
    )
    if keys is not None:
        live = live.where(col(AgentExecution.step_key).in_(keys))
    for step_id in session.scalars(live.order_by(col(AgentExecution.job_id))).all():
        step = lock_job(session, step_id)
        if step.ended_at is not None:
            continue
        step.cancel_requested_at = step.cancel_requested_at or now()  # type: ignore[assignment]
        session.flush()
        if step.state not in WORKED_ON:
            end(session, step, State.CANCELLED, reason=Reason.CANCELLED)


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
