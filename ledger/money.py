"""Money: a call's worst case is reserved under every cap before it is made, and settled at what it used.

Each step is one SQL statement that commits at once: it locks the caps in one fixed order, so two calls can neither
deadlock nor pass a cap together, and no cap stays locked while a client is waited for (`fleet_day` is locked by every
call of the fleet). Statements are values here: the gateway, the only one that reserves (DESIGN.md section 4), runs them
on its event loop, everyone else in a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, select
from sqlmodel import Session, col

from ledger import money_sql as sql
from ledger.events import EventKind
from ledger.record_tables import Event
from ledger.spending import members_of
from ledger.sql import Statement, dump_json
from ledger.tables import Attempt, Call, Job
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded, Usage
from routing.provider_circuit import LaneRules
from routing.queues import QueueName

OF_THE_DAY = frozenset({"tenant_day", "key_day", "fleet_day"})
"""Scopes of caps that are whole again tomorrow, whatever a bill has spent."""
CALL_LEASE_SECONDS = 30.0
"""How long an open call is believed alive after its gateway last said so."""


class CapLimit(NamedTuple):
    """A limit on money: `tier`, `job`, `tenant_day`, `key_day` and `fleet_day`, always in this order."""

    scope: str
    key: str
    limit_nanousd: int


class Bill(NamedTuple):
    """What a job has cost."""

    spent_nanousd: int
    reserved_nanousd: int
    cap_nanousd: int
    calls: int
    """Model calls so far."""


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
    door: str | None = None
    """The only address it may call from; None for an attempt without a box."""
    step_cap_nanousd: int | None = None
    """What this execution of a run's step may spend of what its run has left."""
    step_model: str | None = None
    """The only model that this execution of a run's step may call."""
    tenant_provider: str | None = None
    """The tenant's own provider; `provider` is another one where a project of the tenant names it."""
    agent: str | None = None
    """The agent of a run's step."""
    trace: str | None = None
    """What the job's row carries of its trace."""


_BEARER_FIELDS = tuple(item.name for item in fields(Bearer))
"""In the order of the columns of `money_sql.BEARER`."""


@dataclass(frozen=True, kw_only=True)
class LaneUse:
    """The lane that a call wants to use, and its rules; without an account it has none."""

    account: str = ""
    """The name by which the gateway knows the provider's account: two accounts are two lanes."""
    rules: LaneRules = field(default_factory=LaneRules)
    input_tokens: int = 0
    """The most that the call can read."""

    @property
    def is_metered(self) -> bool:
        """Whether the lane has buckets of ours."""
        return self.rules.requests_per_minute is not None or self.rules.tokens_per_minute is not None


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
    lane: LaneUse = field(default_factory=LaneUse)


class Reserved(NamedTuple):
    """What an admitted call may write, and what was reserved for it."""

    max_tokens: int
    nanousd: int
    lane_failures: int = 0
    """How many calls of its lane failed in a row before it."""
    is_lane_test: bool = False
    """Whether it is the one call that tests a lane which was parked."""


class LaneRefusal(NamedTuple):
    """The lane makes no call now."""

    seconds: float
    """When to ask again."""
    reason: str | None
    """Why it is parked (routing.provider_circuit.Trouble); None when a bucket of ours is empty."""


class LaneMissing(NamedTuple):
    """A lane with buckets has no row yet: open it, then ask again."""


class CapsMissing(NamedTuple):
    """A cap has no row yet: open the caps, then ask again."""


class BearerGone(NamedTuple):
    """The attempt lost its job, or was cancelled, since it was looked up."""


ReserveOutcome = Reserved | BudgetExceeded | LaneRefusal | CapsMissing | LaneMissing | BearerGone


def bearer_of(token_hash: str) -> Statement:
    """Look up the attempt that a token belongs to."""
    return Statement(sql.BEARER, {"token_hash": token_hash})


def read_bearer(row: Sequence[Any]) -> Bearer:
    """Read the row that `bearer_of` returned."""
    facts = dict(zip(_BEARER_FIELDS, row, strict=True))
    return Bearer(**facts | {"queue": QueueName(facts["queue"])})


def caps_of(bearer: Bearer, *, policy: Policy, key_day_usd: float | None = None) -> tuple[CapLimit, ...]:
    """Return the caps that a bearer's calls count against, in their fixed order.

    Args:
        bearer: who calls.
        policy: as the tenant's overrides leave it.
        key_day_usd: what the key that pays may spend in a day; None where its owner declared no limit.
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
    """Make sure that every cap has its row."""
    return Statement(sql.OPEN_CAPS, {"caps": _cap_rows(caps)})


def reserve(bearer: Bearer, call: CallStart, caps: Sequence[CapLimit]) -> Statement:
    """Reserve a call's worst case under every cap and open its row, or do nothing.

    Where the caps do not have room for all output tokens asked for, the call gets what fits, down to `least_tokens`.
    """
    rules = call.lane.rules
    values = vars(call) | {
        "job_id": bearer.job_id,
        "attempt_id": bearer.attempt_id,
        "fence": bearer.fence,
        "call_limit": call.call_limit_nanousd,
        "lease_seconds": CALL_LEASE_SECONDS,
        "caps": _cap_rows(caps),
    }
    lane = vars(call.lane) | {"is_metered": call.lane.is_metered}
    limits = {"requests_per_minute": rules.requests_per_minute, "tokens_per_minute": rules.tokens_per_minute}
    pauses = {"probe_seconds": rules.probe_seconds, "pause_seconds": rules.pause_seconds}
    return Statement(sql.RESERVE, {**values, **lane, **limits, **pauses})


def read_reserve(row: Sequence[Any], call: CallStart) -> ReserveOutcome:
    """Read the row that `reserve` returned."""
    holds, has_all_caps, scope, left_nanousd, max_tokens, reserved, failures, is_test, reason, parked, short = row
    if max_tokens is not None:
        return Reserved(max_tokens, reserved, failures or 0, is_test)
    if not holds:
        return BearerGone()
    if (parked or 0) > 0:
        return LaneRefusal(float(parked), reason)
    if (short or 0) > 0:
        return LaneRefusal(float(short), None)
    if call.lane.is_metered and failures is None:
        return LaneMissing()
    if not has_all_caps:
        return CapsMissing()
    of_call = BudgetExceeded("call", call.call_limit_nanousd)
    return min(of_call, BudgetExceeded(scope, left_nanousd), key=lambda budget: budget.left_nanousd)


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
    end = {"cost": cost_nanousd, "finish": finish, "status": status, "state": state}
    return Statement(sql.SETTLE, {"id": call_id, "event": EventKind.CALL.value, **end, **usage._asdict()})


def renew_calls(call_ids: Sequence[UUID]) -> Statement:
    """Say that open calls are alive."""
    return Statement(sql.RENEW, {"ids": list(call_ids), "lease_seconds": CALL_LEASE_SECONDS})


def stopped_attempts(attempt_ids: Sequence[UUID]) -> Statement:
    """Find, among attempts with open calls, those that may not go on: rows of id, has_ended, is_late, is_cancelled."""
    return Statement(sql.STOPPED, {"ids": list(attempt_ids)})


def limit_hit(bearer: Bearer, *, scope: str, phase: str) -> Statement:
    """Record that money ran out: at a call's admission (`admit`) or while it was streamed (`stream`)."""
    place = {"job_id": bearer.job_id, "tenant": bearer.tenant, "queue": bearer.queue.value, "tier": bearer.tier}
    values = {"event": EventKind.LIMIT_HIT.value, **place, "scope": scope, "phase": phase}
    return Statement(sql.LIMIT_HIT, values)


def presume_lost_calls(session: Session, *, limit: int = 100) -> int:
    """Settle, at their full reserve, the calls of a gateway that died: never under what the provider may bill."""
    return len(Statement(sql.PRESUME_LOST).all(session, {"event": EventKind.CALL.value, "limit": limit}))


def bill_of(session: Session, job: Job) -> Bill:
    """Return what a job has cost so far, over all its tiers and attempts; a run's steps are part of it."""
    spent, reserved, calls = session.execute(
        select(
            func.coalesce(func.sum(col(Call.cost_nanousd)), 0),
            func.coalesce(func.sum(col(Call.reserved_nanousd)).filter(col(Call.state) == "reserved"), 0),
            func.count(),
        ).where(col(Call.job_id).in_(members_of(job.id)))
    ).one()
    return Bill(int(spent), int(reserved), job.cap_nanousd, calls)


def budget_exceeded_by(session: Session, attempt: Attempt) -> BudgetExceeded | None:
    """Return the budget that last refused or cut a model call of an attempt; None when none did."""
    return last_budget_exceeded(session, attempt.job_id, since=attempt.started_at)


def last_budget_exceeded(session: Session, job_id: UUID, *, since: datetime | None = None) -> BudgetExceeded | None:
    """Return the budget that last refused or cut a model call of a job; None when none is on record.

    The end of a job notes its limit, too, and names no budget.
    """
    scope = col(Event.data)["scope"].as_string()
    hits = select(scope).where(
        col(Event.job_id) == job_id, col(Event.kind) == EventKind.LIMIT_HIT.value, scope.is_not(None)
    )
    if since is not None:
        hits = hits.where(col(Event.at) >= since)
    found = session.scalars(hits.order_by(col(Event.id).desc()).limit(1)).first()
    return None if found is None else BudgetExceeded(found)


def calls_of(session: Session, job_id: UUID) -> Sequence[Call]:
    """Return a job's model calls, those of a run's steps among them, oldest first."""
    return session.scalars(
        select(Call).where(col(Call.job_id).in_(members_of(job_id))).order_by(col(Call.started_at))
    ).all()


def _cap_rows(caps: Sequence[CapLimit]) -> str:
    rows = [
        {"place": place, "scope": cap.scope, "key": cap.key, "amount": cap.limit_nanousd}
        for place, cap in enumerate(caps)
    ]
    return dump_json(rows)


_IS_LIVE_ADDRESS = """
SELECT EXISTS (
    SELECT FROM attempt JOIN job ON job.id = attempt.job_id
    WHERE attempt.ended_at IS NULL AND attempt.door = %(address)s AND attempt.deadline > clock_timestamp()
      AND attempt.fence = job.fence AND job.cancel_requested_at IS NULL
)
"""


def is_live_address(address: str) -> Statement:
    """Ask whether an attempt that may go on is bound to this address: one row with true or false."""
    return Statement(_IS_LIVE_ADDRESS, {"address": address})
