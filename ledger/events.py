"""Append and read job events. Every state, start, end and dollar is recorded here, so streams and metrics agree.

An event's id is drawn before its transaction commits, so rows can appear out of order, and a reader that continues
after the last id it saw would miss one. The commit barrier tells when no lower id can appear any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, select
from sqlmodel import Session, col

from ledger.record_tables import Event
from ledger.spending import members_of
from ledger.store import Statement, dump_json
from ledger.tables import ClaimedJob, Job
from routing.policy.prices import BudgetExceeded
from routing.redaction import redact_all

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
    """Wait until every current writer of a table is done; False when that takes too long.

    An INSERT locks the table before it draws its id, and keeps the lock until its transaction ends. After the barrier
    no row can appear at or below an id that was drawn before it; read the rows only then. The transaction must be at
    the default isolation level.
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
"""For statements that write events together with other rows, made by `event_rows`. It ends in a FROM clause."""
_APPEND = Statement(f"{INSERT_EVENTS} ORDER BY ordinality")
_REPORT = Statement(f"""
    WITH unhurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
    {INSERT_EVENTS} CROSS JOIN unhurried ORDER BY ordinality
""")
"""Does not wait for the disk. The attempt's end does, and with it all that was written before."""


class EventKind(StrEnum):
    """Kinds of events. `progress`, `plan` and `run_step` are for people; the rest feed metrics."""

    ACCEPTED = "accepted"
    WAITING = "waiting"
    STARTED = "started"
    ATTEMPT_ENDED = "attempt_ended"
    ENDED = "ended"
    CALL = "call"
    CALL_RESTORED = "call_restored"
    LIMIT_HIT = "limit_hit"
    ESCALATED = "escalated"
    DEBATED = "debated"
    FENCED = "fenced"
    UNREAD = "unread"
    DROPPED = "dropped"
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
    CIRCUIT = "circuit"


class EventPage(NamedTuple):
    """A page of events in order."""

    events: Sequence[Event]
    is_all: bool
    """Whether there were no more events at that moment."""


NewEvent = tuple[EventKind, Mapping[str, Any]]


def record(where: Session | Connection, kind: EventKind, *, job: Job | ClaimedJob | None = None, **data: Any) -> None:
    """Append one event in the caller's transaction, or by itself (`Ledger.look`), with secrets redacted."""
    record_all(where, [(kind, data)], job=job)


def record_all(where: Session | Connection, happened: Iterable[NewEvent], *, job: Job | ClaimedJob | None) -> None:
    """Append events of a job in one statement, in this order."""
    _APPEND.all(where, {"events": dump_json(event_rows(happened, job))})


def report(connection: Connection, kind: EventKind, *, job: Job | ClaimedJob, **data: Any) -> None:
    """Append one event by itself, of work that goes on (`Ledger.look`): a crash of the server may take it along."""
    _REPORT.all(connection, {"events": dump_json(event_rows([(kind, data)], job))})


def event_rows(happened: Iterable[NewEvent], job: Job | ClaimedJob | None) -> list[dict[str, Any]]:
    """Return events as rows for `INSERT_EVENTS`, with secrets redacted."""
    owner = {"job_id": job.id, "tenant": job.tenant} if job is not None else {}
    return [{"kind": kind.value, **owner, "data": redact_all(data)} for kind, data in happened]


_MEMBERS = """(
    SELECT watched.job_id UNION ALL SELECT job_id FROM agent_executions WHERE run_id = watched.job_id
) AS member"""
"""A job, or a run and its steps."""
_COLUMNS = "id, xid, at, job_id, tenant, kind, data"
_NEWEST = 2**63 - 1
_BEFORE = Statement(f"""
    SELECT found.* FROM (SELECT CAST(%(job)s AS uuid) AS job_id) AS watched CROSS JOIN LATERAL {_MEMBERS}
     CROSS JOIN LATERAL (
           SELECT {_COLUMNS} FROM event WHERE event.job_id = member.job_id AND id < %(before)s
            ORDER BY id DESC LIMIT %(limit)s
     ) AS found
     ORDER BY found.id DESC LIMIT %(limit)s
""")


def newest_events(session: Session, job_id: UUID, *, limit: int, before_id: int | None = None) -> Sequence[Event]:
    """Return the newest events of a job, or of a run and its steps, oldest first.

    Without `before_id`, `events_after_each` can continue from the last one, unless a transaction hangs.
    """
    if before_id is None:
        last = _BEFORE.scalar(session, {"job": job_id, "before": _NEWEST, "limit": 1})
        if last is None:
            return ()
        await_commit_barrier(session, "event")
        before_id = last + 1
    rows = _BEFORE.all(session, {"job": job_id, "before": before_id, "limit": limit})
    return [Event(**row._asdict()) for row in reversed(rows)]


def last_budget_exceeded(session: Session, job_id: UUID, *, since: datetime | None = None) -> BudgetExceeded | None:
    """Return the budget that last refused or cut a model call of a job, if any.

    The event of a job's own end names no budget and is skipped.
    """
    scope = col(Event.data)["scope"].as_string()
    hits = select(scope).where(
        col(Event.job_id) == job_id, col(Event.kind) == EventKind.LIMIT_HIT.value, scope.is_not(None)
    )
    if since is not None:
        hits = hits.where(col(Event.at) >= since)
    newest = session.scalars(hits.order_by(col(Event.id).desc()).limit(1)).first()
    return None if newest is None else BudgetExceeded(newest)


def newest_of_kinds(session: Session, job_id: UUID, kinds: Iterable[EventKind], *, limit: int) -> Sequence[Event]:
    """Return the newest of a job's own events of some kinds, oldest first."""
    newest = select(Event).where(col(Event.job_id) == job_id, col(Event.kind).in_([kind.value for kind in kinds]))
    return session.scalars(newest.order_by(col(Event.id).desc()).limit(limit)).all()[::-1]


def newest_of_run(session: Session, run_id: UUID, kind: EventKind, *, limit: int) -> Sequence[Event]:
    """Return the newest events of one kind of a run and its steps, newest first."""
    newest = select(Event).where(col(Event.job_id).in_(members_of(run_id)), col(Event.kind) == kind.value)
    return session.scalars(newest.order_by(col(Event.id).desc()).limit(limit)).all()


_WATCHED = f"""
    unnest(CAST(%(jobs)s AS uuid[]), CAST(%(after)s AS bigint[])) AS watched (job_id, after_id)
    CROSS JOIN LATERAL {_MEMBERS}
"""
_LAST = Statement(f"""
    SELECT max(last.id) FROM {_WATCHED} CROSS JOIN LATERAL (
        SELECT id FROM event WHERE event.job_id = member.job_id AND id > watched.after_id ORDER BY id DESC LIMIT 1
    ) AS last
""")
_AFTER = Statement(f"""
    SELECT watched.job_id AS owner, found.* FROM {_WATCHED} CROSS JOIN LATERAL (
        SELECT {_COLUMNS} FROM event
         WHERE event.job_id = member.job_id AND id > watched.after_id AND id <= %(last)s
         ORDER BY id LIMIT %(limit)s
    ) AS found
     ORDER BY found.id
""")


_PAGE = 500


def events_after_each(session: Session, positions: Mapping[UUID, int]) -> dict[UUID, EventPage]:
    """Return the events of jobs, or of runs and their steps, with ids above those given, oldest first.

    An event is returned once no running transaction can add one with a lower id, so a reader that continues after the
    last id misses nothing. While a transaction hangs, until its timeout, no new event is returned.
    """
    watched = {"jobs": list(positions), "after": list(positions.values())}
    last = _LAST.scalar(session, watched)
    if last is None:
        return dict.fromkeys(positions, EventPage((), is_all=True))
    if not await_commit_barrier(session, "event"):
        return dict.fromkeys(positions, EventPage((), is_all=False))
    found: dict[UUID, list[Event]] = {job_id: [] for job_id in positions}
    for row in _AFTER.all(session, watched | {"last": last, "limit": _PAGE}):
        found[row.owner].append(Event(**{name: getattr(row, name) for name in Event.model_fields}))
    return {job_id: EventPage(events[:_PAGE], is_all=len(events) < _PAGE) for job_id, events in found.items()}


_MIRROR = """
    INSERT INTO event (kind, data)
    SELECT %(kind)s, data FROM jsonb_array_elements(CAST(%(counts)s AS jsonb)) AS told (data)
    RETURNING id
"""


def record_mirror_use(counts: Mapping[str, tuple[int, int]]) -> Statement:
    """Return the statement that records the package mirror's requests and bytes since its last report, by result."""
    rows = [{"result": result, "requests": requests, "bytes": sent} for result, (requests, sent) in counts.items()]
    return Statement(_MIRROR, {"kind": EventKind.MIRROR.value, "counts": dump_json(rows)})
