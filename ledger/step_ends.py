"""What the life of a job means for its run: executions settled, gates closed, and notes owed to the ticket.

However an execution ends (its own result, a limit, a lost worker, a cancel), its row is settled in the transaction of
that end, so no run waits for a step that is over. A note is a row of the transaction that made it true: none is lost
with a process, none tells of what was rolled back, and a tracker that is away holds up no run (S-030).
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import exists, func, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger.events import EventKind, record
from ledger.run_tables import AgentExecution, Gate, Project, Run, RunStep, TicketNote
from ledger.sql import after, moment, now, storable
from ledger.tables import Job
from routing.jobs import Reason, State
from routing.queues import QueueName

STARTED, ENDED, AT_GATE = "started", "ended", "gate:"
"""Kinds of notes; that of a gate goes on with the gate's key."""
RETRY_SECONDS = (5, 30, 120, 600, 3600)
"""Waits before the second and later tries; after the last a note stays unsent, on record."""
_CLAIM_SECONDS = 60


class DueNote(NamedTuple):
    """A note that is to be sent now, and what it is about."""

    note: TicketNote
    job: Job
    run: Run
    project: Project
    gate: Gate | None


def owe_note(session: Session, run: Run, kind: str) -> None:
    """Owe a run's ticket a note; one of a kind. A ticket that no tracker holds is owed nothing."""
    if not run.ticket.get("reference"):
        return
    values = {"run_id": run.job_id, "kind": kind, "attempts": 0, "next_at": now()}
    session.execute(insert(TicketNote).values(values).on_conflict_do_nothing())


def claim_due_notes(session: Session, *, limit: int) -> list[DueNote]:
    """Return notes that are due, oldest first, and keep others from sending them for a while."""
    due = (col(TicketNote.delivered_at).is_(None)) & (col(TicketNote.next_at) <= moment())
    query = select(TicketNote).where(due).order_by(col(TicketNote.next_at)).limit(limit)
    notes = session.scalars(query.with_for_update(skip_locked=True)).all()
    for note in notes:
        note.attempts += 1
        note.next_at = after(_CLAIM_SECONDS)  # type: ignore[assignment]
    session.flush()
    return [_with_facts(session, note) for note in notes]


def _with_facts(session: Session, note: TicketNote) -> DueNote:
    run = session.get_one(Run, note.run_id)
    gate = None
    if note.kind.startswith(AT_GATE):
        own = (col(Gate.run_id) == run.job_id) & (col(Gate.key) == note.kind.removeprefix(AT_GATE))
        gate = session.scalars(select(Gate).where(own)).one_or_none()
    job, project = session.get_one(Job, note.run_id), session.get_one(Project, run.project_id)
    return DueNote(note, job, run, project, gate)


def book_note(session: Session, run_id: UUID, kind: str, *, attempts: int, error: str | None, is_final: bool) -> None:
    """Put on record how a try to send a note went.

    Args:
        session: the caller's transaction.
        run_id: whose note.
        kind: which of them.
        attempts: how many tries that were, this one included.
        error: why it failed; None when it did not.
        is_final: whether another try could not change that.
    """
    if error is None:
        values: dict[str, Any] = {"delivered_at": now(), "next_at": None, "error": None}
    else:
        is_last = is_final or attempts > len(RETRY_SECONDS)
        again = None if is_last else after(RETRY_SECONDS[attempts - 1])
        values = {"next_at": again, "error": storable(error)[:400]}
    own = (col(TicketNote.run_id) == run_id) & (col(TicketNote.kind) == kind)
    if error is not None:  # a sender that was away for long has no say in what another is doing
        own &= col(TicketNote.attempts) == attempts
    session.execute(sql_update(TicketNote).where(own).values(**values))


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
            status=status,
            reason=reason.value,
            detail=detail or None,
            settled_at=now(),
            absorbed_at=select(now()).where(run_is_over).scalar_subquery(),
        )
    )
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
