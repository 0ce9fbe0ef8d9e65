"""Calls that a gateway served and noted in its own journal: which of them this ledger lacks, and how it books them.

A row is lost with a server that failed before a standby had it, or with a restore. Its money is owed all the same.

A recording is what a tenant wants kept of a served call, so that it can be replayed offline. It is redacted before it
is written and goes with its job, or earlier when the tenant's days are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlmodel import Session, col, select

from ledger.events import EventKind
from ledger.money import BOOK, OF_THE_DAY, CapLimit, book_caps, cap_pairs, open_caps
from ledger.record_tables import RecordedCall
from ledger.store import Statement
from ledger.tables import Job, on_bill
from routing.policy.prices import Usage

_COLUMNS = """
    id, job_id, attempt_id, caps, provider, model, key_hash, gateway, cost_nanousd, prices_as_of, finish, status,
    input_tokens, output_tokens, cache_write_tokens, cache_read_tokens
"""
_VALUES = """
    %(id)s, %(job_id)s, %(attempt_id)s, %(pairs)s::jsonb, %(provider)s, %(model)s, %(key_hash)s, %(gateway)s,
    %(cost_nanousd)s, %(prices_as_of)s, %(finish)s, %(status)s,
    %(input_tokens)s, %(output_tokens)s, %(cache_write_tokens)s, %(cache_read_tokens)s
"""

_ALARM = """alarmed AS (
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT %(alarm)s, CASE WHEN %(lost)s = 'row' THEN %(job_id)s::uuid END, %(tenant)s::text,
           jsonb_build_object('lost', %(lost)s::text, 'call', id, 'cost_nanousd', cost_nanousd)
    FROM closed
)"""

# Nothing is reserved for it here any more: what it cost goes beyond its reserve.
_RESTORE = f"""
WITH closed AS (
    INSERT INTO call ({_COLUMNS}, state, max_tokens, reserved_nanousd, lease_until, started_at, ended_at)
    SELECT {_VALUES}, %(state)s, %(max_tokens)s, 0, %(served_at)s, %(served_at)s, clock_timestamp()
      FROM attempt WHERE attempt.id = %(attempt_id)s AND attempt.job_id = %(job_id)s FOR KEY SHARE
    ON CONFLICT DO NOTHING
    RETURNING *
), {_ALARM}, {BOOK}"""

_ADOPT = f"""
WITH closed AS (
    INSERT INTO orphan_call ({_COLUMNS}, tenant, served_at)
    VALUES ({_VALUES}, %(tenant)s, %(served_at)s)
    ON CONFLICT DO NOTHING
    RETURNING *, 0 AS reserved_nanousd
), {_ALARM}, {book_caps("closed")}, told AS (
    INSERT INTO event (kind, tenant, data)
    SELECT %(event)s, tenant, jsonb_build_object(
        'queue', %(queue)s::text, 'tier', %(tier)s::int, 'model', model, 'provider', provider, 'finish', finish,
        'status', status, 'cost_nanousd', cost_nanousd, 'input_tokens', input_tokens, 'output_tokens', output_tokens,
        'cache_write_tokens', cache_write_tokens, 'cache_read_tokens', cache_read_tokens,
        'wasted_nanousd', cost_nanousd)
    FROM closed
)
SELECT id FROM closed
"""

_STANDING = """
SELECT EXISTS (SELECT FROM call WHERE id = %(id)s) OR EXISTS (SELECT FROM orphan_call WHERE id = %(id)s),
       EXISTS (SELECT FROM attempt WHERE id = %(attempt_id)s AND job_id = %(job_id)s)
"""

_UNBOOKED = """
SELECT wanted.id FROM unnest(%(ids)s::uuid[]) AS wanted (id)
WHERE NOT EXISTS (SELECT FROM call WHERE call.id = wanted.id AND call.state <> 'reserved')
  AND NOT EXISTS (SELECT FROM orphan_call WHERE orphan_call.id = wanted.id)
"""

_HISTORY = """
SELECT (SELECT id::text FROM epoch ORDER BY since, id LIMIT 1),
       concat_ws('-', (pg_control_system()).system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8),
                 (SELECT id FROM epoch ORDER BY since DESC, id LIMIT 1)),
       pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
"""


class History(NamedTuple):
    """Which ledger this is, and which of its histories it goes on with."""

    ledger: str | None
    """Its name since it was made; copies and restored backups keep it."""
    epoch: str
    """Another one after each promotion and each restore."""
    written: int
    """Bytes of its write-ahead log: fewer than before when its disk was set back to a snapshot."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A call whose usage is known, with all that its row needs."""

    ledger: str | None
    """The ledger that knows its attempt (`History.ledger`)."""
    id: UUID
    job_id: UUID
    attempt_id: UUID
    tenant: str
    queue: str
    tier: int | None
    caps: tuple[CapLimit, ...]
    provider: str
    model: str
    key_hash: str
    gateway: str
    prices_as_of: str
    max_tokens: int
    usage: Usage
    cost_nanousd: int
    finish: str
    status: int
    state: str
    served_at: datetime


def history() -> Statement:
    """Return the statement that selects the columns of `History`; it fails on a standby."""
    return Statement(_HISTORY)


def unbooked(call_ids: Sequence[UUID]) -> Statement:
    """Return the statement that selects the calls whose cost is not booked."""
    return Statement(_UNBOOKED, {"ids": list(call_ids)})


def standing_of(served: Served) -> Statement:
    """Return the statement that reads whether a call has a row, and whether its attempt is known."""
    return Statement(_STANDING, vars(served))


def book_lost(served: Served, *, is_known: bool) -> tuple[Statement, Statement]:
    """Return the two statements that book a call without a row; the second returns one, and raises the alarm.

    It does nothing where the attempt was known and has been swept since. The job of an unknown attempt may be unknown,
    too: its call counts against the caps of its day alone.
    """
    caps = tuple(cap for cap in served.caps if is_known or cap.scope in OF_THE_DAY)
    values = vars(served) | served.usage._asdict()
    told = {
        "event": EventKind.CALL.value,
        "alarm": EventKind.CALL_RESTORED.value,
        "lost": "row" if is_known else "attempt",
    }
    return open_caps(caps), Statement(_RESTORE if is_known else _ADOPT, values | told | {"pairs": cap_pairs(caps)})


RECORD = """
INSERT INTO recorded_call (id, job_id, expires_at, request, reply)
SELECT %(id)s, job.id, clock_timestamp() + make_interval(secs => tenant.recording_days * 86400), %(request)s, %(reply)s
  FROM job JOIN tenant ON tenant.name = job.tenant
 WHERE job.id = %(job_id)s AND tenant.recording_days > 0
ON CONFLICT DO NOTHING
RETURNING id
"""


def record_call(call_id: UUID, job_id: UUID, *, request: str, reply: str) -> Statement:
    """Return the statement that keeps a call, unless its tenant wants none kept by now.

    Request and reply are redacted JSON, the reply with its usage.
    """
    return Statement(RECORD, {"id": call_id, "job_id": job_id, "request": request, "reply": reply})


def recordings_of(session: Session, root_id: UUID) -> Sequence[RecordedCall]:
    """Return the recorded calls of a session's jobs, in the order they ended."""
    query = select(RecordedCall).join(Job, col(Job.id) == col(RecordedCall.job_id))
    return session.exec(query.where(on_bill(root_id)).order_by(col(RecordedCall.at))).all()
