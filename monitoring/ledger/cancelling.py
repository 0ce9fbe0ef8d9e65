"""Cancelling: a job that nobody works on ends at once, any other at its next model call, chunk or step.

A run is cancelled as a whole: with its steps, and only when the last of them has let go.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlmodel import Session, col

from monitoring.errors import WrongStateError
from monitoring.ledger import audit
from monitoring.ledger.clock import now
from monitoring.ledger.jobs import end, lock_job
from monitoring.ledger.run_tables import AgentExecution
from monitoring.ledger.runs import has_live_attempt
from monitoring.ledger.step_ends import is_run, is_step, live_steps
from monitoring.ledger.tables import Job
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
