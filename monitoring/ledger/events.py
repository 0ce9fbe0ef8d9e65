"""Append what happened. Every state, start, end and dollar passes here, so streams and metrics cannot disagree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import insert, select
from sqlmodel import Session, col

from monitoring.ledger.columns import table_of
from monitoring.ledger.new_jobs import NewJob
from monitoring.ledger.numbering import outlive_writers
from monitoring.ledger.record_tables import Event
from monitoring.ledger.spending import members_of
from monitoring.ledger.statement import Statement
from monitoring.ledger.storable import dump_json
from monitoring.ledger.tables import Job
from routing.redaction import redact_all

_APPEND = insert(table_of(Event)).inline()
WORK_CHANNEL = "pointsman_work"
"""NOTIFY channel on which the dispatcher hears that there is something to push, end or deliver."""
_WAKE = Statement(f"NOTIFY {WORK_CHANNEL}")


class EventKind(StrEnum):
    """Kinds of events. `progress`, `plan` and `run_step` are for people; the rest makes metrics."""

    ACCEPTED = "accepted"
    WAITING = "waiting"
    STARTED = "started"
    ATTEMPT_ENDED = "attempt_ended"
    ENDED = "ended"
    CALL = "call"
    LIMIT_HIT = "limit_hit"
    ESCALATED = "escalated"
    DEBATED = "debated"
    FENCED = "fenced"
    UNREAD = "unread"
    REFUSED = "refused"
    BOX = "box"
    REAPED = "reaped"
    LADDER = "ladder"
    MIRROR = "mirror"
    STATE = "state"
    STEP = "step"
    PROGRESS = "progress"
    PLAN = "plan"
    RUN_STEP = "run_step"
    GATE = "gate"
    LANE = "lane"


class Told(NamedTuple):
    """Events that are told in their order."""

    events: Sequence[Event]
    is_all: bool
    """Whether there were no more of them at this moment."""


def record(session: Session, kind: EventKind, *, job: Job | None = None, **data: Any) -> None:
    """Append one event in the caller's transaction, without keys that people or models wrote into it."""
    session.execute(_APPEND, row_of(kind, job, data))


def record_all(session: Session, happened: Sequence[tuple[EventKind, Mapping[str, Any]]], *, job: Job) -> None:
    """Append what happened to a job in one go, in this order."""
    session.execute(_APPEND, [row_of(kind, job, data) for kind, data in happened])


def row_of(kind: EventKind, job: Job | NewJob | None, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of an event, without keys that people or models wrote into it."""
    return {
        "kind": kind.value,
        "job_id": job.id if job else None,
        "tenant": job.tenant if job else None,
        "data": redact_all(data),
    }


def told_of(happened: Sequence[tuple[EventKind, Mapping[str, Any]]]) -> str:
    """Return what happened to a job for a statement that appends it together with other rows: pairs, as JSON."""
    return dump_json([(kind.value, redact_all(data)) for kind, data in happened])


def wake_dispatcher(session: Session) -> None:
    """Tell the dispatcher, once this transaction commits, that it has work."""
    _WAKE.all(session)


def newest_events(session: Session, job_id: UUID, *, limit: int, before_id: int | None = None) -> Sequence[Event]:
    """Return the newest of a job's events, oldest first; a run's are those of its steps too.

    The newest of all are such that `events_after` can go on from the last, unless a transaction hangs.

    Args:
        session: the caller's transaction.
        job_id: whose.
        limit: how many.
        before_id: only events with an id below this one.
    """
    newest = select(Event).where(col(Event.job_id).in_(members_of(job_id))).order_by(col(Event.id).desc()).limit(limit)
    if before_id is None:
        last = session.scalar(newest.with_only_columns(col(Event.id)).limit(1))
        if last is None:
            return ()
        outlive_writers(session, "event")
        before_id = last + 1
    return session.scalars(newest.where(col(Event.id) < before_id)).all()[::-1]


def newest_of_kinds(session: Session, job_id: UUID, kinds: Iterable[EventKind], *, limit: int) -> Sequence[Event]:
    """Return the newest of a job's own events of some kinds, oldest first: however much else has happened since."""
    newest = select(Event).where(col(Event.job_id) == job_id, col(Event.kind).in_([kind.value for kind in kinds]))
    return session.scalars(newest.order_by(col(Event.id).desc()).limit(limit)).all()[::-1]


def events_after(session: Session, job_id: UUID, *, after_id: int, limit: int = 500) -> Told:
    """Return a job's events with an id above `after_id`, oldest first; a run's stream holds those of its steps.

    An event is told once no running transaction can still add one with a lower id, so that whoever goes on from the
    last id that it has seen misses nothing. While a transaction hangs, until its timeout, nothing new is told.
    """
    members = session.scalars(members_of(job_id)).all()
    query = select(Event).where(col(Event.job_id).in_(members), col(Event.id) > after_id)
    query = query.order_by(col(Event.id)).limit(limit)
    found = session.scalars(query).all()
    if not found:
        return Told((), is_all=True)
    if not outlive_writers(session, "event"):
        return Told((), is_all=False)
    final = session.scalars(query.where(col(Event.id) <= found[-1].id)).all()
    return Told(final, is_all=len(final) < limit)
