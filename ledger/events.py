"""Append what happened. Every state, start, end and dollar passes here, so streams and metrics cannot disagree.

An event's number is drawn before its transaction commits, so rows can appear in another order than that of their
numbers. Whoever reads on from the last number it has seen would miss a row that appears below it; the commit barrier
tells when a number is final.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlmodel import Session, col

from ledger.record_tables import Event
from ledger.spending import members_of
from ledger.sql import Statement, dump_json
from ledger.tables import Job, NewJob
from routing.config import redact_all

BARRIER_SECONDS = 0.25
_BARRIER_POLL_SECONDS = 0.01
_WRITERS = Statement("""
    SELECT virtualtransaction FROM pg_locks
     WHERE locktype = 'relation' AND relation = CAST(%(table)s AS regclass) AND mode = 'RowExclusiveLock' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND pid IS DISTINCT FROM pg_backend_pid()
""")


def await_commit_barrier(
    session: Session, table: Literal["audit", "event"], *, patience_seconds: float = BARRIER_SECONDS
) -> bool:
    """Wait until all who write a table at this moment are gone, and tell whether they are: False when patience ran out.

    An INSERT locks the table before it draws its number, and keeps the lock until its transaction ends. So after this,
    no row can appear at or below a number that was known before it; those that are there have to be read after it.

    Args:
        session: the caller's transaction, at the default isolation level.
        table: which.
        patience_seconds: how long to wait.
    """
    writers = _writers(session, table)
    give_up_at = time.monotonic() + patience_seconds
    while writers:
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_BARRIER_POLL_SECONDS)
        writers &= _writers(session, table)
    return True


def _writers(session: Session, table: str) -> set[str]:
    return set(_WRITERS.scalars(session, {"table": table}))


INSERT_EVENTS = """
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT happened.kind, happened.job_id, happened.tenant, happened.data
      FROM jsonb_populate_recordset(CAST(NULL AS event), CAST(%(events)s AS jsonb)) WITH ORDINALITY AS happened
"""
"""For statements that write events together with other rows; `event_rows` makes its rows. It ends in a FROM clause."""
_APPEND = Statement(f"{INSERT_EVENTS} ORDER BY ordinality")
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


class EventPage(NamedTuple):
    """Events that are told in their order."""

    events: Sequence[Event]
    is_all: bool
    """Whether there were no more of them at this moment."""


Happened = tuple[EventKind, Mapping[str, Any]]


def record(session: Session, kind: EventKind, *, job: Job | None = None, **data: Any) -> None:
    """Append one event in the caller's transaction, without keys that people or models wrote into it."""
    record_all(session, [(kind, data)], job=job)


def record_all(session: Session, happened: Iterable[Happened], *, job: Job | None) -> None:
    """Append what happened to a job in one go, in this order."""
    _APPEND.all(session, {"events": dump_json(event_rows(happened, job))})


def event_rows(happened: Iterable[Happened], job: Job | NewJob | None) -> list[dict[str, Any]]:
    """Return events as rows for `INSERT_EVENTS`, without keys that people or models wrote into them."""
    owner = {"job_id": job.id, "tenant": job.tenant} if job is not None else {}
    return [{"kind": kind.value, **owner, "data": redact_all(data)} for kind, data in happened]


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
        await_commit_barrier(session, "event")
        before_id = last + 1
    return session.scalars(newest.where(col(Event.id) < before_id)).all()[::-1]


def newest_of_kinds(session: Session, job_id: UUID, kinds: Iterable[EventKind], *, limit: int) -> Sequence[Event]:
    """Return the newest of a job's own events of some kinds, oldest first: however much else has happened since."""
    newest = select(Event).where(col(Event.job_id) == job_id, col(Event.kind).in_([kind.value for kind in kinds]))
    return session.scalars(newest.order_by(col(Event.id).desc()).limit(limit)).all()[::-1]


def events_after(session: Session, job_id: UUID, *, after_id: int, limit: int = 500) -> EventPage:
    """Return a job's events with an id above `after_id`, oldest first; a run's stream holds those of its steps.

    An event is told once no running transaction can still add one with a lower id, so that whoever goes on from the
    last id that it has seen misses nothing. While a transaction hangs, until its timeout, nothing new is told.
    """
    members = session.scalars(members_of(job_id)).all()
    query = select(Event).where(col(Event.job_id).in_(members), col(Event.id) > after_id)
    query = query.order_by(col(Event.id)).limit(limit)
    found = session.scalars(query).all()
    if not found:
        return EventPage((), is_all=True)
    if not await_commit_barrier(session, "event"):
        return EventPage((), is_all=False)
    final = session.scalars(query.where(col(Event.id) <= found[-1].id)).all()
    return EventPage(final, is_all=len(final) < limit)


_MIRROR = """
    INSERT INTO event (kind, data)
    SELECT %(kind)s, data FROM jsonb_array_elements(CAST(%(counts)s AS jsonb)) AS told (data)
    RETURNING id
"""


def record_mirror_use(counts: Mapping[str, tuple[int, int]]) -> Statement:
    """Record what the package mirror did since its last report: requests and bytes sent, by result."""
    rows = [{"result": result, "requests": requests, "bytes": sent} for result, (requests, sent) in counts.items()]
    return Statement(_MIRROR, {"kind": EventKind.MIRROR.value, "counts": dump_json(rows)})
