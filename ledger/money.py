"""Reserve a model call's worst case under every cap before it is made, and settle it at what it used.

Each step is one SQL statement that commits at once. It locks the caps in one fixed order, so two calls can neither
deadlock nor exceed a cap together, and no cap stays locked while a client is slow (every call of the fleet locks
`fleet_day`). Functions return statements as values: the gateway, which alone reserves, runs them on its event loop,
everyone else in a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlmodel import Session

from ledger.events import EventKind
from ledger.provider_circuits import GATE, OPEN_SECONDS, CircuitUse
from ledger.store import Statement, dump_json
from routing.jobs import USED_ENDS, WASTED_OUTCOMES
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded, Usage
from routing.queues import QueueName

AFTER_LEASE = "clock_timestamp() + make_interval(secs => %(lease_seconds)s)"

BEARER = """
SELECT attempt.id AS attempt_id, job.id AS job_id, job.root_id, job.tenant, attempt.queue, attempt.tier, attempt.fence,
       job.cap_nanousd AS job_cap_nanousd, coalesce(execution.provider, tenant.provider) AS provider,
       tenant.overrides::text AS overrides, to_char(timezone('UTC', clock_timestamp()), 'YYYY-MM-DD') AS today,
       attempt.ended_at IS NOT NULL AS has_ended, attempt.deadline <= clock_timestamp() AS is_late,
       attempt.fence <> job.fence AS is_fenced, job.cancel_requested_at IS NOT NULL AS is_cancelled,
       attempt.egress_address,
       execution.cap_nanousd AS step_cap_nanousd, execution.model AS step_model, tenant.provider AS tenant_provider,
       execution.agent, job.trace, (SELECT id::text FROM epoch ORDER BY since, id LIMIT 1) AS ledger,
       attempt.token_hash, coalesce(tenant.recording_days > 0, false) AS is_recorded
FROM attempt JOIN job ON job.id = attempt.job_id JOIN tenant ON tenant.name = job.tenant
LEFT JOIN agent_executions AS execution ON execution.job_id = job.id
WHERE attempt.token_hash = %(token_hash)s
"""

OPEN_CAPS = """
INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)
SELECT wanted.scope, wanted.key, wanted.amount, 0, 0
FROM jsonb_to_recordset(%(caps)s::jsonb) AS wanted (place int, scope text, key text, amount bigint)
ORDER BY wanted.place
ON CONFLICT DO NOTHING
RETURNING scope
"""


# The job is locked before the caps: the call's foreign keys lock it anyway, and a worker that holds it must not make
# the whole fleet wait for a cap. What the lookup found may be seconds old, so everything in it that can change comes
# along by value and must still hold. Limits come with the call, so a changed policy applies at once. An open
# circuit is noticed before any cap is locked. What the gate makes of a statement is a fifth of its cost. A cap gets its
# row with its first reserve, after the locks: where another call opens it at the same moment, the row's key refuses the
# whole statement, which is run again. Caps are updated last: who opens one that exists is refused at once if it is only
# locked, but waits for who has updated it.
def _reserve(*, gate: str = "", passes: str, told: str, joins: str = "") -> str:
    return f"""
WITH seen AS MATERIALIZED (
    SELECT open_until IS NOT NULL AS is_shut, failures, reason, {OPEN_SECONDS} AS wait
    FROM provider_circuit WHERE provider = %(account)s AND model = %(model)s
), bearer AS MATERIALIZED (
    SELECT 1 FROM job JOIN attempt ON attempt.job_id = job.id JOIN tenant ON tenant.name = job.tenant
    WHERE job.id = %(job_id)s AND job.fence = %(fence)s AND job.cancel_requested_at IS NULL
      AND job.cap_nanousd = %(job_cap_nanousd)s
      AND attempt.id = %(attempt_id)s AND attempt.fence = job.fence AND attempt.ended_at IS NULL
      AND attempt.deadline > clock_timestamp()
      AND attempt.token_hash = %(token_hash)s AND attempt.egress_address IS NOT DISTINCT FROM %(egress_address)s
      AND tenant.provider IS NOT DISTINCT FROM %(tenant_provider)s AND tenant.overrides::text = %(overrides)s
    FOR KEY SHARE OF job
), wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(caps)s::jsonb) AS wanted (place int, scope text, key text, amount bigint)
    WHERE EXISTS (SELECT FROM bearer) AND NOT EXISTS (SELECT FROM seen WHERE wait > 0)
), held AS MATERIALIZED (
    SELECT cap.scope, cap.key, wanted.amount, wanted.amount - cap.spent_nanousd - cap.reserved_nanousd AS room
    FROM cap JOIN wanted ON cap.scope = wanted.scope AND cap.key = wanted.key
    ORDER BY wanted.place
    FOR UPDATE OF cap
), new AS MATERIALIZED (
    SELECT place, scope, key, amount FROM wanted
    WHERE NOT EXISTS (SELECT FROM held WHERE held.scope = wanted.scope AND held.key = wanted.key)
), room AS MATERIALIZED (
    SELECT scope, room FROM held UNION ALL SELECT scope, amount FROM new
), verdict AS MATERIALIZED (
    SELECT count(*) > 0 AS is_asked,
           least(%(max_tokens)s::bigint,
                 (least(min(room), %(call_limit)s::bigint) - %(input_nanousd)s::bigint)
                     / %(token_nanousd)s::bigint) AS tokens
    FROM room
){gate}, opened AS (
    INSERT INTO call (id, job_id, attempt_id, caps, state, provider, model, key_hash, gateway, lease_until,
                      max_tokens, reserved_nanousd, cost_nanousd, prices_as_of,
                      input_tokens, output_tokens, cache_write_tokens, cache_read_tokens)
    SELECT %(id)s, %(job_id)s, %(attempt_id)s,
           %(pairs)s::jsonb, 'reserved', %(provider)s, %(model)s, %(key_hash)s, %(gateway)s, {AFTER_LEASE},
           tokens, %(input_nanousd)s::bigint + tokens * %(token_nanousd)s::bigint, 0, %(prices_as_of)s, 0, 0, 0, 0
    FROM verdict WHERE is_asked AND tokens >= %(least_tokens)s::bigint
      AND {passes}
    RETURNING max_tokens, reserved_nanousd
), added AS (
    INSERT INTO cap (scope, key, limit_nanousd, spent_nanousd, reserved_nanousd)
    SELECT scope, key, amount, 0, opened.reserved_nanousd FROM new, opened ORDER BY place
    RETURNING scope
), taken AS (
    UPDATE cap SET reserved_nanousd = cap.reserved_nanousd + opened.reserved_nanousd, limit_nanousd = held.amount
    FROM held, opened
    WHERE cap.scope = held.scope AND cap.key = held.key AND (SELECT count(*) FROM added) >= 0
)
SELECT EXISTS (SELECT FROM bearer) AS holds, tightest.scope, tightest.room,
       opened.max_tokens, opened.reserved_nanousd,
       seen.failures, {told}
FROM verdict
LEFT JOIN (SELECT scope, room FROM room ORDER BY room LIMIT 1) AS tightest ON true
LEFT JOIN opened ON true
LEFT JOIN seen ON true
{joins}
"""


RESERVE = _reserve(
    passes="NOT EXISTS (SELECT FROM seen WHERE is_shut)",
    told="coalesce(seen.is_shut, false) AS is_test, seen.reason, seen.wait AS open_seconds, NULL::float AS short",
)
RESERVE_GATED = _reserve(
    gate=GATE,
    passes="""(NOT (%(is_metered)s::bool OR EXISTS (SELECT FROM seen WHERE is_shut))
           OR EXISTS (SELECT FROM passed))""",
    told="""coalesce(passed.is_test, false) AS is_test, coalesce(gate.reason, seen.reason) AS reason,
       greatest(seen.wait, gate.open_seconds) AS open_seconds, shortage.seconds AS short""",
    joins="LEFT JOIN gate ON true LEFT JOIN shortage ON true LEFT JOIN passed ON true",
)

WASTED = ", ".join(f"'{outcome}'" for outcome in sorted(WASTED_OUTCOMES))
USED = ", ".join(f"'{state}'" for state in sorted(USED_ENDS))


def book_caps(closed: str) -> str:
    """Return CTEs that release the reserves of calls and book their costs: caps in the fixed order.

    A cap stands where the call with the most caps has it, so that all of them together keep the order of each. None is
    updated before all are locked, as a reserve holds a later one while it opens a cap.

    Args:
        closed: a FROM clause with `closed`, the calls.
    """
    return f"""amounts AS MATERIALIZED (
    SELECT pair ->> 0 AS scope, pair ->> 1 AS key, max(place) AS place,
           sum(closed.reserved_nanousd) AS reserved, sum(closed.cost_nanousd) AS cost
    FROM {closed}, jsonb_array_elements(closed.caps) WITH ORDINALITY AS listed (pair, place)
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
    WHERE cap.scope = held.scope AND cap.key = held.key AND (SELECT count(*) FROM held) > 0
)"""


# Books the calls of the CTE `closed`: their caps, then one event for each call. The lock on the attempt makes its end
# and this booking see each other, so that exactly one of them counts wasted cost.
BOOK = f"""
judged AS MATERIALIZED (
    SELECT id, queue, tier, outcome FROM attempt WHERE id IN (SELECT attempt_id FROM closed) ORDER BY id FOR SHARE
), {book_caps("closed JOIN judged ON judged.id = closed.attempt_id")}, told AS (
    INSERT INTO event (kind, job_id, tenant, data)
    SELECT %(event)s, job.id, job.tenant, jsonb_build_object(
        'queue', judged.queue, 'tier', judged.tier, 'model', closed.model, 'provider', closed.provider,
        'finish', closed.finish, 'status', closed.status, 'cost_nanousd', closed.cost_nanousd,
        'input_tokens', closed.input_tokens, 'output_tokens', closed.output_tokens,
        'cache_write_tokens', closed.cache_write_tokens, 'cache_read_tokens', closed.cache_read_tokens,
        'wasted_nanousd', CASE WHEN judged.outcome IN ({WASTED}) OR (job.ended_at IS NOT NULL
            AND judged.outcome IS NOT NULL AND job.state NOT IN ({USED})) THEN closed.cost_nanousd ELSE 0 END)
    FROM closed JOIN judged ON judged.id = closed.attempt_id JOIN job ON job.id = closed.job_id
)
SELECT id FROM closed
"""

SETTLE = f"""
WITH patience AS MATERIALIZED (
    SELECT set_config('lock_timeout', coalesce(%(patience)s::text, current_setting('lock_timeout')), true)
), ended AS MATERIALIZED (
    SELECT ended.* FROM patience, jsonb_to_recordset(%(calls)s::jsonb) AS ended (
        id uuid, state text, finish text, status int, cost_nanousd bigint,
        input_tokens int, output_tokens int, cache_write_tokens int, cache_read_tokens int)
), closed AS (
    UPDATE call SET state = ended.state, finish = ended.finish, status = ended.status,
                    cost_nanousd = ended.cost_nanousd, input_tokens = ended.input_tokens,
                    output_tokens = ended.output_tokens, cache_write_tokens = ended.cache_write_tokens,
                    cache_read_tokens = ended.cache_read_tokens, ended_at = clock_timestamp()
    FROM ended WHERE call.id = ended.id AND call.state = 'reserved'
    RETURNING call.*
), {BOOK}"""

# A worker that is frozen in a transaction may hold an attempt: its call is left for later, and nobody waits for it.
PRESUME_LOST = f"""
WITH lost AS MATERIALIZED (
    SELECT call.id FROM call JOIN attempt ON attempt.id = call.attempt_id
    WHERE state = 'reserved' AND call.lease_until < (SELECT clock_timestamp())
    ORDER BY call.lease_until LIMIT %(limit)s
    FOR UPDATE OF call SKIP LOCKED FOR SHARE OF attempt SKIP LOCKED
), closed AS (
    UPDATE call SET state = 'presumed', finish = 'gateway_lost', status = 0, cost_nanousd = reserved_nanousd,
                    ended_at = clock_timestamp()
    FROM lost WHERE call.id = lost.id
    RETURNING call.*
), {BOOK}"""

# A call that is being booked needs no lease, and waiting for it could lock both.
RENEW = f"""
UPDATE call SET lease_until = {AFTER_LEASE}
WHERE id IN (SELECT id FROM call WHERE id = ANY(%(ids)s::uuid[]) AND state = 'reserved' FOR NO KEY UPDATE SKIP LOCKED)
RETURNING id
"""

LIMIT_HIT = """
INSERT INTO event (kind, job_id, tenant, data)
VALUES (%(event)s, %(job_id)s, %(tenant)s, jsonb_build_object(
    'queue', %(queue)s::text, 'tier', %(tier)s::int, 'limit', 'cost', 'phase', %(phase)s::text,
    'scope', %(scope)s::text))
RETURNING id
"""


OF_THE_DAY = frozenset({"tenant_day", "key_day", "fleet_day"})
"""Scopes of caps that are renewed every day."""
CALL_LEASE_SECONDS = 30.0
"""How long an open call counts as alive after its gateway last renewed it."""


class CapLimit(NamedTuple):
    """A limit on money: `tier`, `job`, `tenant_day`, `key_day` and `fleet_day`, always in this order."""

    scope: str
    key: str
    limit_nanousd: int


@dataclass(frozen=True, kw_only=True)
class Bearer:
    """The attempt that a token belongs to, at the time of the lookup."""

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
    egress_address: str | None = None
    """The only address it may call from; None for an attempt without a box."""
    step_cap_nanousd: int | None = None
    """What this execution of a run's step may spend of its run's budget."""
    step_model: str | None = None
    """The only model that this execution of a run's step may call."""
    tenant_provider: str | None = None
    """The tenant's own provider; `provider` differs when a project names another one."""
    agent: str | None = None
    """The agent of a run's step."""
    trace: str | None = None
    """The job's `traceparent`."""
    ledger: str | None = None
    """The ledger that knows the attempt (`operations.served_calls.History`)."""
    token_hash: str = ""
    """Of the token that was looked up."""
    is_recorded: bool = False
    """Whether the tenant wants its calls recorded."""


_BEARER_FIELDS = tuple(item.name for item in fields(Bearer))
"""In the order of the columns of `BEARER`."""


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
    """Output tokens below which the call is not worth making."""
    call_limit_nanousd: int
    """The most that one call may cost, whatever the caps have left."""
    circuit: CircuitUse = field(default_factory=CircuitUse)


class Reserved(NamedTuple):
    """How much an admitted call may write, and what was reserved for it."""

    max_tokens: int
    nanousd: int
    circuit_failures: int = 0
    """How many calls of its circuit failed in a row before it."""
    is_circuit_test: bool = False
    """Whether it is the one call that tests an open circuit."""


class CircuitRefusal(NamedTuple):
    """The circuit takes no call now."""

    seconds: float
    """When to ask again."""
    reason: str | None
    """Why it is open (routing.provider_circuit.Trouble); None when a bucket of ours is empty."""


class CircuitMissing(NamedTuple):
    """A metered circuit has no row yet: open it and retry."""


class CircuitShut(NamedTuple):
    """The circuit may have to be tested: reserve through its gate."""


class Ended(NamedTuple):
    """How a call ended, and what it is booked at."""

    id: UUID
    usage: Usage
    """As the provider reported it, or as counted when the stream was cut."""
    cost_nanousd: int
    state: str
    """`settled`, or `presumed` when its usage is unknown."""
    finish: str
    status: int
    """The HTTP status that its caller got; 0 for none."""


class BearerGone(NamedTuple):
    """What the lookup found does not hold any more: look again."""


ReserveOutcome = Reserved | BudgetExceeded | CircuitRefusal | CircuitShut | CircuitMissing | BearerGone


def bearer_of(token_hash: str) -> Statement:
    """Return the statement that looks up the attempt of a token."""
    return Statement(BEARER, {"token_hash": token_hash})


def read_bearer(row: Sequence[Any]) -> Bearer:
    """Read the row that `bearer_of` returned."""
    facts = dict(zip(_BEARER_FIELDS, row, strict=True))
    return Bearer(**facts | {"queue": QueueName(facts["queue"])})


def caps_of(bearer: Bearer, *, policy: Policy, key_day_usd: float | None = None) -> tuple[CapLimit, ...]:
    """Return the caps that a bearer's calls count against, in their fixed order.

    Args:
        bearer: who calls.
        policy: as the tenant's overrides leave it.
        key_day_usd: the daily limit of the key that pays; None when its owner declared none.
    """
    budgets = policy.budgets
    queue_nanousd = policy.queues[bearer.queue].llm_nanousd
    own_nanousd = queue_nanousd if bearer.step_cap_nanousd is None else min(queue_nanousd, bearer.step_cap_nanousd)
    key_day = (
        ()
        if key_day_usd is None
        else (CapLimit("key_day", f"{bearer.provider}/{bearer.today}", round(key_day_usd * NANOUSD_PER_USD)),)
    )
    return (
        CapLimit("tier", f"{bearer.job_id}/{bearer.queue.value}", own_nanousd),
        CapLimit("job", str(bearer.root_id), bearer.job_cap_nanousd),
        CapLimit("tenant_day", f"{bearer.tenant}/{bearer.today}", round(budgets.tenant_day_usd * NANOUSD_PER_USD)),
        *key_day,
        CapLimit("fleet_day", bearer.today, round(budgets.fleet_day_usd * NANOUSD_PER_USD)),
    )


def open_caps(caps: Sequence[CapLimit]) -> Statement:
    """Return the statement that creates the missing rows of caps."""
    return Statement(OPEN_CAPS, {"caps": _cap_rows(tuple(caps))})


def reserve(bearer: Bearer, call: CallStart, caps: Sequence[CapLimit], *, is_gated: bool = True) -> Statement:
    """Return the statement that reserves a call's worst case under every cap and opens its row, or does nothing.

    It does nothing either when what the bearer says is no longer so: fence, deadline, address, token, budget, provider.
    When the caps lack room for all requested output tokens, the call gets what fits, down to `least_tokens`. Without
    the gate, which only a metered circuit always needs, a circuit that is to be tested takes no call (`CircuitShut`).
    """
    rules = call.circuit.rules
    values = (
        vars(bearer)
        | vars(call)
        | {
            "call_limit": call.call_limit_nanousd,
            "lease_seconds": CALL_LEASE_SECONDS,
            "caps": _cap_rows(tuple(caps)),
            "pairs": cap_pairs(tuple(caps)),
        }
    )
    circuit = vars(call.circuit) | {"is_metered": call.circuit.is_metered}
    limits = {"requests_per_minute": rules.requests_per_minute, "tokens_per_minute": rules.tokens_per_minute}
    pauses = {"probe_seconds": rules.probe_seconds, "pause_seconds": rules.pause_seconds}
    return Statement(RESERVE_GATED if is_gated else RESERVE, {**values, **circuit, **limits, **pauses})


def read_reserve(row: Sequence[Any], call: CallStart) -> ReserveOutcome:
    """Read the row that `reserve` returned."""
    holds, scope, left_nanousd, max_tokens, reserved, failures, is_test, reason, open_seconds, short = row
    if max_tokens is not None:
        return Reserved(max_tokens, reserved, failures or 0, is_test)
    if not holds:
        return BearerGone()
    if (open_seconds or 0) > 0:
        return CircuitRefusal(float(open_seconds), reason)
    if (short or 0) > 0:
        return CircuitRefusal(float(short), None)
    if call.circuit.is_metered and failures is None:
        return CircuitMissing()
    if is_test:
        return CircuitShut()
    of_call = BudgetExceeded("call", call.call_limit_nanousd)
    return min(of_call, BudgetExceeded(scope, left_nanousd), key=lambda budget: budget.left_nanousd)


def settle(call_id: UUID, *, usage: Usage, cost_nanousd: int, finish: str, status: int, state: str) -> Statement:
    """Return the statement that closes one open call, as `settle_all` does."""
    return settle_all([Ended(call_id, usage, cost_nanousd, state, finish, status)])


def settle_all(calls: Iterable[Ended], *, patience: str | None = None) -> Statement:
    """Return the statement that closes those calls which are open, and selects their ids.

    It releases their reserves and books their costs. With `patience` (`1s`) it fails when it has waited for a row for
    so long, an attempt's or a cap's: a worker that is frozen in a transaction may hold one.
    """
    rows = [call._asdict() | call.usage._asdict() for call in calls]
    return Statement(SETTLE, {"calls": dump_json(rows), "event": EventKind.CALL.value, "patience": patience})


def renew_calls(call_ids: Sequence[UUID]) -> Statement:
    """Return the statement that renews the leases of open calls."""
    return Statement(RENEW, {"ids": list(call_ids), "lease_seconds": CALL_LEASE_SECONDS})


def limit_hit(bearer: Bearer, *, scope: str, phase: str) -> Statement:
    """Return the statement that records a budget hit, on admission of a call (`admit`) or in its stream (`stream`)."""
    place = {"job_id": bearer.job_id, "tenant": bearer.tenant, "queue": bearer.queue.value, "tier": bearer.tier}
    values = {"event": EventKind.LIMIT_HIT.value, **place, "scope": scope, "phase": phase}
    return Statement(LIMIT_HIT, values)


def presume_lost_calls(session: Session, *, limit: int = 100) -> int:
    """Settle the calls of a dead gateway at their full reserve, the most that the provider may bill."""
    return len(Statement(PRESUME_LOST).all(session, {"event": EventKind.CALL.value, "limit": limit}))


@lru_cache(maxsize=1024)  # the calls of one attempt count against the same caps
def _cap_rows(caps: tuple[CapLimit, ...]) -> str:
    rows = [
        {"place": place, "scope": cap.scope, "key": cap.key, "amount": cap.limit_nanousd}
        for place, cap in enumerate(caps)
    ]
    return dump_json(rows)


@lru_cache(maxsize=1024)
def cap_pairs(caps: tuple[CapLimit, ...]) -> str:
    """Return how a call's row names its caps."""
    return dump_json([[cap.scope, cap.key] for cap in caps])
