"""What a run owes its ticket: notes that are written down with what they are about, and sent afterwards (S-030).

A note is a row of the transaction that made it true. So none is lost with a process, none tells of what was rolled
back, and a tracker that is away holds up no run.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.ledger.clock import after, moment, now
from monitoring.ledger.run_tables import Gate, Project, Run, TicketNote
from monitoring.ledger.storable import storable
from monitoring.ledger.tables import Job

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
