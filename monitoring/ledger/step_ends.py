"""What the life of a step's job means for its execution's row: kept in step by every claim and every end of a job.

However an execution ends (its own result, a limit, a lost worker, a cancel), its row is settled in the transaction of
that end, so no run waits for a step that is over.
"""

from __future__ import annotations

from sqlalchemy import exists, func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.ledger.clock import now
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.run_tables import AgentExecution, Gate, Run, RunStep
from monitoring.ledger.tables import Job
from monitoring.ledger.ticket_notes import ENDED, owe_note
from routing.jobs import Reason, State
from routing.queues import QueueName

_STATUS_OF_END = {State.ANSWERED: "completed", State.CANCELLED: "cancelled"}


def is_step(job: Job) -> bool:
    """Tell whether a job is one execution of a step of a run; its run tells its story."""
    return job.queue == QueueName.STEPS and job.parent_id is not None


def is_run(job: Job) -> bool:
    """Tell whether a job is a run of the ticket lane."""
    return bool(job.request.get("project")) and not is_step(job)


def note_start(session: Session, job: Job) -> None:
    """Put on record that a worker has begun with a locked job, if it is a step's."""
    if is_step(job):
        running = sql_update(AgentExecution).where(col(AgentExecution.job_id) == job.id)
        session.execute(running.values(status="running", started_at=now()))
        record(session, EventKind.RUN_STEP, job=job, status="running")


def note_end(session: Session, job: Job, target: State, *, reason: Reason, detail: str) -> None:
    """Settle the execution of a locked job that is ending, if it is a step's; with a run, everything of it ends."""
    if is_run(job):
        _close_run(session, job)
    if not is_step(job):
        return
    status = _STATUS_OF_END.get(target, "failed")
    # A run that has ended takes note of nothing: its rows must not be found again and again.
    run_is_over = exists().where(col(Job.id) == job.parent_id, col(Job.ended_at).is_not(None))
    session.execute(
        sql_update(AgentExecution)
        .where(col(AgentExecution.job_id) == job.id, col(AgentExecution.settled_at).is_(None))
        .values(
            status=status, reason=reason.value, detail=detail or None, settled_at=now(),
            absorbed_at=select(now()).where(run_is_over).scalar_subquery(),
        )
    )  # fmt: skip
    record(session, EventKind.RUN_STEP, job=job, status=status, reason=reason.value, detail=detail[:400])


def _close_run(session: Session, job: Job) -> None:
    """Stop what still works for a run that ends, and close its gates: nobody waits for them any more."""
    live = select(col(AgentExecution.job_id)).where(
        col(AgentExecution.run_id) == job.id, col(AgentExecution.settled_at).is_(None)
    )
    stopped = (col(Job.id).in_(live)) & (col(Job.cancel_requested_at).is_(None))
    session.execute(sql_update(Job).where(stopped).values(cancel_requested_at=now()))
    unstarted = (col(RunStep.run_id) == job.id) & (col(RunStep.state) == "pending")
    session.execute(sql_update(RunStep).where(unstarted).values(state="skipped", ended_at=now()))
    waiting = (col(Gate.run_id) == job.id) & col(Gate.state).in_(("planned", "open"))
    session.execute(sql_update(Gate).where(waiting).values(state="closed", decided_at=now()))
    if (run := session.get(Run, job.id)) is not None:
        owe_note(session, run, ENDED)


def live_steps(session: Session, job: Job) -> int:
    """Return how many executions of a run have not ended."""
    live = (col(AgentExecution.run_id) == job.id) & col(AgentExecution.settled_at).is_(None)
    return session.scalar(select(func.count()).where(live)) or 0
