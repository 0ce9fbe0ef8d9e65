"""Money: a call's worst case is reserved under every cap before it is made, and settled at what it used.

Each step is one SQL statement that commits at once: it locks the caps in one fixed order, so two calls can neither
deadlock nor pass a cap together, and no cap stays locked while a client is waited for (`fleet_day` is locked by every
call of the fleet). Statements are values here: the gateway, the only one that reserves (DESIGN.md section 4), runs them
on its event loop, everyone else in a session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from pydantic_core import to_json
from sqlalchemy import func, select, text
from sqlmodel import Session, col

from monitoring.ledger.events import EventKind
from monitoring.ledger.spending import USED_ENDS, WASTED_OUTCOMES
from monitoring.ledger.tables import Call, Job
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD, Usage
from routing.tiers import QueueName

CALL_LEASE_SECONDS = 30.0
"""How long an open call is believed alive after its gateway last said so."""

_AFTER_LEASE = "clock_timestamp() + make_interval(secs => %(lease_seconds)s)"


class Statement(NamedTuple):
    """One statement in the driver's own form, with its values apart."""

    sql: str
    values: Mapping[str, Any]


class CapLimit(NamedTuple):
    """A limit on money: `tier` and `job` before `tenant_day` and `fleet_day`, always in this order."""

    scope: str
    key: str
    limit_nanousd: int


class Bill(NamedTuple):
    """What a job has cost."""

    spent_nanousd: int
    reserved_nanousd: int
    cap_nanousd: int


@dataclass(frozen=True, kw_only=True)
class Bearer:
    """Who calls: the attempt that a token belongs to, as it stands when it is looked up."""

    attempt_id: UUID
    job_id: UUID
    root_id: UUID
    tenant: str
    queue: QueueName
    tier: int | None
    fence: int
    job_cap_nanousd: int
    provider: str | None
    overrides: str
    """The tenant's overrides of the policy, as JSON text."""
    today: str
    """The database's date in UTC."""
    has_ended: bool
    is_late: bool
    """The attempt's hard time limit has passed."""
    is_fenced: bool
    """The job is held by another attempt, or by none."""
    is_cancelled: bool


@dataclass(frozen=True, kw_only=True)
class CallStart:
    """A model call that asks to be admitted."""

    id: UUID
    provider: str
    model: str
    key_hash: str
    gateway: str
    prices_as_of: str
    input_nanousd: int
    """The most that its input can cost."""
    token_nanousd: int
    """What one output token costs, at least 1."""
    max_tokens: int
    """Output tokens asked for."""
    least_tokens: int
    """Output tokens below which it is not worth making."""
    call_limit_nanousd: int
    """What one call may cost, whatever the caps have left."""


class Reserved(NamedTuple):
    """What an admitted call may write, and what was reserved for it."""

    max_tokens: int
    nanousd: int


class CapRefusal(NamedTuple):
    """The limit with the least room."""

    scope: str
    left_nanousd: int


class CapsMissing(NamedTuple):
    """A cap has no row yet: open the caps, then ask again."""


class BearerGone(NamedTuple):
    """The attempt lost its job, or was cancelled, since it was looked up."""


def bearer_of(token_hash: str) -> Statement:
    """Look up the attempt that a token belongs to."""
    return Statement(_BEARER, {"token_hash": token_hash})


def read_bearer(row: Sequence[Any]) -> Bearer:
    """Read the row that `bearer_of` returned."""
    return Bearer(
        attempt_id=row[0], job_id=row[1], root_id=row[2], tenant=row[3], queue=QueueName(row[4]), tier=row[5],
        fence=row[6], job_cap_nanousd=row[7], provider=row[8], overrides=row[9], today=row[10], has_ended=row[11],
        is_late=row[12], is_fenced=row[13], is_cancelled=row[14],
    )  # fmt: skip


def caps_of(bearer: Bearer, *, policy: Policy) -> tuple[CapLimit, ...]:
    """Return the caps that a bearer's calls count against, in their fixed order."""
    budgets = policy.budgets
    return (
        CapLimit("tier", f"{bearer.job_id}/{bearer.queue.value}", policy.queues[bearer.queue].llm_nanousd),
        CapLimit("job", str(bearer.root_id), bearer.job_cap_nanousd),
        CapLimit("tenant_day", f"{bearer.tenant}/{bearer.today}", round(budgets.tenant_day_usd * NANOUSD_PER_USD)),
        CapLimit("fleet_day", bearer.today, round(budgets.fleet_day_usd * NANOUSD_PER_USD)),
    )


def open_caps(caps: Sequence[CapLimit]) -> Statement:
    """Make sure that every cap has its row."""
    return Statement(_OPEN_CAPS, {"caps": _cap_rows(caps)})


def reserve(bearer: Bearer, call: CallStart, caps: Sequence[CapLimit]) -> Statement:
    """Reserve a call's worst case under every cap and open its row, or do nothing.

    Where the caps do not have room for all output tokens asked for, the call gets what fits, down to `least_tokens`.
    """
    values = {
        "id": call.id, "job_id": bearer.job_id, "attempt_id": bearer.attempt_id, "fence": bearer.fence,
        "provider": call.provider, "model": call.model, "key_hash": call.key_hash, "gateway": call.gateway,
        "prices_as_of": call.prices_as_of, "input_nanousd": call.input_nanousd, "token_nanousd": call.token_nanousd,
        "max_tokens": call.max_tokens, "least_tokens": call.least_tokens, "call_limit": call.call_limit_nanousd,
        "lease_seconds": CALL_LEASE_SECONDS, "caps": _cap_rows(caps),
    }  # fmt: skip
    return Statement(_RESERVE, values)


def read_reserve(row: Sequence[Any], call: CallStart) -> Reserved | CapRefusal | CapsMissing | BearerGone:
    """Read the row that `reserve` returned."""
    holds, has_all_caps, scope, left_nanousd, max_tokens, reserved = row
    if max_tokens is not None:
        return Reserved(max_tokens, reserved)
    if not holds:
        return BearerGone()
    if not has_all_caps:
        return CapsMissing()
    return min(
        CapRefusal("call", call.call_limit_nanousd), CapRefusal(scope, left_nanousd), key=lambda cap: cap.left_nanousd
    )


def settle(call_id: UUID, *, usage: Usage, cost_nanousd: int, finish: str, status: int, state: str) -> Statement:
    """Close an open call: release its reserve, book what it cost. Does nothing to a call that is closed already.

    Args:
        call_id: the call.
        usage: tokens as the provider reported them, or as counted when the stream was cut.
        cost_nanousd: what it cost.
        finish: how the call ended.
        status: the HTTP status that its caller got; 0 for none.
        state: `settled`, or `presumed` when nobody knows what it used.
    """
    return Statement(
        _SETTLE,
        {
            "id": call_id, "cost": cost_nanousd, "finish": finish, "status": status, "state": state,
            "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
            "cache_write_tokens": usage.cache_write_tokens, "cache_read_tokens": usage.cache_read_tokens,
            "event": EventKind.CALL.value,
        },
    )  # fmt: skip


def renew_calls(call_ids: Sequence[UUID]) -> Statement:
    """Say that open calls are alive."""
    return Statement(_RENEW, {"ids": list(call_ids), "lease_seconds": CALL_LEASE_SECONDS})


def stopped_attempts(attempt_ids: Sequence[UUID]) -> Statement:
    """Find, among attempts with open calls, those that may not go on: rows of id, has_ended, is_late, is_cancelled."""
    return Statement(_STOPPED, {"ids": list(attempt_ids)})


def limit_hit(bearer: Bearer, *, scope: str, phase: str) -> Statement:
    """Record that money ran out: at a call's admission (`admit`) or while it was streamed (`stream`)."""
    return Statement(
        _LIMIT_HIT,
        {
            "event": EventKind.LIMIT_HIT.value, "job_id": bearer.job_id, "tenant": bearer.tenant,
            "queue": bearer.queue.value, "tier": bearer.tier, "scope": scope, "phase": phase,
        },
    )  # fmt: skip


def run(session: Session, statement: Statement) -> Sequence[Any]:
    """Run a statement in the caller's transaction and return its rows."""
    return session.connection().exec_driver_sql(statement.sql, dict(statement.values)).all()


def presume_lost_calls(session: Session, *, limit: int = 100) -> int:
    """Settle, at their full reserve, the calls of a gateway that died: never under what the provider may bill."""
    return len(run(session, Statement(_PRESUME_LOST, {"event": EventKind.CALL.value, "limit": limit})))


def bill_of(session: Session, job: Job) -> Bill:
    """Return what a job has cost so far, over all its tiers and attempts."""
    spent, reserved = session.execute(
        select(
            func.coalesce(func.sum(col(Call.cost_nanousd)), 0),
            func.coalesce(func.sum(col(Call.reserved_nanousd)).filter(col(Call.state) == "reserved"), 0),
        ).where(col(Call.job_id) == job.id)
    ).one()
    return Bill(int(spent), int(reserved), job.cap_nanousd)


def calls_of(session: Session, job_id: UUID) -> Sequence[Call]:
    """Return a job's model calls, oldest first."""
    return session.scalars(select(Call).where(col(Call.job_id) == job_id).order_by(text("started_at"))).all()


def _cap_rows(caps: Sequence[CapLimit]) -> str:
    rows = [
        {"place": place, "scope": cap.scope, "key": cap.key, "amount": cap.limit_nanousd}
        for place, cap in enumerate(caps)
    ]
    return to_json(rows).decode()


_BEARER = """
SELECT attempt.id, job.id, job.root_id, job.tenant, attempt.queue, attempt.tier, attempt.fence, job.cap_nanousd,
       tenant.provider, tenant.overrides::text, to_char(timezone('UTC', clock_timestamp()), 'YYYY-MM-DD'),
       attempt.ended_at IS NOT NULL, attempt.deadline <= clock_timestamp(), attempt.fence <> job.fence,
       job.cancel_requested_at IS NOT NULL
FROM attempt JOIN job ON job.id = attempt.job_id JOIN tenant ON tenant.name = job.tenant
WHERE attempt.token_hash = %(token_hash)s
"""

_OPEN_CAPS = """
INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)
SELECT wanted.scope, wanted.key, wanted.amount, 0, 0
FROM jsonb_to_recordset(%(caps)s::jsonb) AS wanted (place int, scope text, key text, amount bigint)
ORDER BY wanted.place
ON CONFLICT DO NOTHING
RETURNING scope
"""

# The job is locked before the caps: the call's foreign keys lock it anyway, and a worker that holds it must not make
# the whole fleet wait for a cap. Limits come with the call, so a lowered policy or a raised budget holds at once.
_RESERVE = f"""
WITH bearer AS MATERIALIZED (
    SELECT 1 FROM job
    WHERE id = %(job_id)s AND fence = %(fence)s AND cancel_requested_at IS NULL
    FOR KEY SHARE
), wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(caps)s::jsonb) AS wanted (place int, scope text, key text, amount bigint)
    WHERE EXISTS (SELECT FROM bearer)
), held AS MATERIALIZED (
    SELECT cap.scope, cap.key, wanted.amount, wanted.amount - cap.spent_nanousd - cap.reserved_nanousd AS room
    FROM cap JOIN wanted ON cap.scope = wanted.scope AND cap.key = wanted.key
    ORDER BY wanted.place
    FOR UPDATE OF cap
), verdict AS (
    SELECT count(*) = jsonb_array_length(%(caps)s::jsonb) AS has_all_caps,
           least(%(max_tokens)s::bigint,
                 (least(min(room), %(call_limit)s::bigint) - %(input_nanousd)s::bigint)
                     / %(token_nanousd)s::bigint) AS tokens
    FROM held
), opened AS (
    INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until,
                      max_tokens, reserved_nanousd, cost_nanousd, prices_as_of,
                      input_tokens, output_tokens, cache_write_tokens, cache_read_tokens)
    SELECT %(id)s, %(job_id)s, %(attempt_id)s,
           (SELECT jsonb_agg(jsonb_build_array(scope, key) ORDER BY place) FROM wanted),
           'reserved', %(provider)s, %(model)s, %(key_hash)s, %(gateway)s, {_AFTER_LEASE},
           tokens, %(input_nanousd)s::bigint + tokens * %(token_nanousd)s::bigint, 0, %(prices_as_of)s, 0, 0, 0, 0
    FROM verdict WHERE has_all_caps AND tokens >= %(least_tokens)s::bigint
    RETURNING max_tokens, reserved_nanousd
), taken AS (
    UPDATE cap SET reserved_nanousd = cap.reserved_nanousd + opened.reserved_nanousd, limit_nanousd = held.amount
    FROM held, opened
    WHERE cap.scope = held.scope AND cap.key = held.key
)
SELECT EXISTS (SELECT FROM bearer), verdict.has_all_caps, tightest.scope, tightest.room,
       opened.max_tokens, opened.reserved_nanousd
FROM verdict
LEFT JOIN (SELECT scope, room FROM held ORDER BY room LIMIT 1) AS tightest ON true
LEFT JOIN opened ON true
"""

_WASTED = ", ".join(f"'{outcome}'" for outcome in sorted(WASTED_OUTCOMES))
_USED = ", ".join(f"'{state}'" for state in sorted(USED_ENDS))

# The rest of a statement whose CTE `closed` has closed calls: their caps in the one order, then one event for each. The
# lock on the attempt makes its end and this booking see each other: exactly one counts what a call cost in vain.
_BOOK = f"""
judged AS MATERIALIZED (
    SELECT id, queue, tier, outcome FROM attempt WHERE id IN (SELECT attempt_id FROM closed) FOR SHARE
), amounts AS MATERIALIZED (
    SELECT pair ->> 0 AS scope, pair ->> 1 AS key, min(place) AS place,
           sum(closed.reserved_nanousd) AS reserved, sum(closed.cost_nanousd) AS cost
    FROM closed JOIN judged ON judged.id = closed.attempt_id,
         jsonb_array_elements(closed.caps) WITH ORDINALITY AS listed (pair, place)
    GROUP BY 1, 2
), held AS MATERIALIZED (
    SELECT cap.scope, cap.key, amounts.reserved, amounts.cost
    FROM cap JOIN amounts ON cap.scope = amounts.scope AND cap.key = amounts.key
    ORDER BY amounts.place, amounts.key
    FOR UPDATE OF cap
), booked AS (
    UPDATE cap SET reserved_nanousd = cap.reserved_nanousd - held.reserved,
                   spent_nanousd = cap.spent_nanousd + held.cost
    FROM held
    WHERE cap.scope = held.scope AND cap.key = held.key
), told AS (
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT %(event)s, job.id, job.tenant, jsonb_build_object(
        'queue', judged.queue, 'tier', judged.tier, 'model', closed.model, 'provider', closed.provider,
        'finish', closed.finish, 'status', closed.status, 'cost_nanousd', closed.cost_nanousd,
        'input_tokens', closed.input_tokens, 'output_tokens', closed.output_tokens,
        'cache_write_tokens', closed.cache_write_tokens, 'cache_read_tokens', closed.cache_read_tokens,
        'wasted_nanousd', CASE WHEN judged.outcome IN ({_WASTED}) OR (job.ended_at IS NOT NULL
            AND judged.outcome IS NOT NULL AND job.state NOT IN ({_USED})) THEN closed.cost_nanousd ELSE 0 END)
    FROM closed JOIN judged ON judged.id = closed.attempt_id JOIN job ON job.id = closed.job_id
)
SELECT id FROM closed
"""

_SETTLE = f"""
WITH closed AS (
    UPDATE call SET state = %(state)s, finish = %(finish)s, status = %(status)s, cost_nanousd = %(cost)s,
                    input_tokens = %(input_tokens)s, output_tokens = %(output_tokens)s,
                    cache_write_tokens = %(cache_write_tokens)s, cache_read_tokens = %(cache_read_tokens)s,
                    ended_at = clock_timestamp()
    WHERE id = %(id)s AND state = 'reserved'
    RETURNING *
), {_BOOK}"""

_PRESUME_LOST = f"""
WITH lost AS MATERIALIZED (
    SELECT id FROM call
    WHERE state = 'reserved' AND lease_until < clock_timestamp()
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), closed AS (
    UPDATE call SET state = 'presumed', finish = 'gateway_lost', status = 0, cost_nanousd = reserved_nanousd,
                    ended_at = clock_timestamp()
    FROM lost WHERE call.id = lost.id
    RETURNING call.*
), {_BOOK}"""

_RENEW = f"""
UPDATE call SET lease_until = {_AFTER_LEASE} WHERE id = ANY(%(ids)s::uuid[]) AND state = 'reserved'
RETURNING id
"""

_STOPPED = """
SELECT attempt.id, attempt.ended_at IS NOT NULL, attempt.deadline <= clock_timestamp(),
       job.cancel_requested_at IS NOT NULL
FROM attempt JOIN job ON job.id = attempt.job_id
WHERE attempt.id = ANY(%(ids)s::uuid[])
  AND (attempt.ended_at IS NOT NULL OR attempt.deadline <= clock_timestamp() OR attempt.fence <> job.fence
       OR job.cancel_requested_at IS NOT NULL)
"""

_LIMIT_HIT = """
INSERT INTO event (kind, job_id, tenant, data)
VALUES (%(event)s, %(job_id)s, %(tenant)s, jsonb_build_object(
    'queue', %(queue)s::text, 'tier', %(tier)s::int, 'limit', 'cost', 'phase', %(phase)s::text,
    'scope', %(scope)s::text))
RETURNING id
"""
