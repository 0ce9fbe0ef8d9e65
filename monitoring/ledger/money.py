"""Money: a call's worst case is reserved under every cap before it is made, and settled at what it used.

One conditional UPDATE for each cap, in one fixed order, in one transaction: either every cap has room or nothing is
reserved, and two calls can neither deadlock nor pass a cap together. Only the gateway calls this (DESIGN.md section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.ledger.clock import after, now
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.tables import Attempt, Call, Cap, Job
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD, Price, Usage, cost_nanousd
from routing.tiers import QueueName

CALL_LEASE_SECONDS = 30.0
"""How long an open call is believed alive after its gateway last said so."""


class CapKey(NamedTuple):
    """Which limit: `tier` and `job` before `tenant_day` and `fleet_day`, always in this order."""

    scope: str
    key: str


class CapRefusal(NamedTuple):
    """The cap that had no room."""

    scope: str
    left_nanousd: int


class Bill(NamedTuple):
    """What a job has cost."""

    spent_nanousd: int
    reserved_nanousd: int
    cap_nanousd: int


@dataclass(frozen=True, kw_only=True)
class CallStart:
    """A model call that asks to be admitted."""

    id: UUID
    provider: str
    model: str
    key_hash: str
    gateway: str
    max_tokens: int
    reserve_nanousd: int
    prices_as_of: str


def caps_of(session: Session, job: Job, queue: QueueName, *, policy: Policy) -> tuple[CapKey, ...]:
    """Make sure that every cap a job's calls count against exists, and return them in their fixed order."""
    today = session.scalar(select(func.to_char(func.timezone("UTC", now()), "YYYY-MM-DD"))) or ""
    limits = {
        CapKey("tier", f"{job.id}/{queue.value}"): policy.queues[queue].llm_nanousd,
        CapKey("job", str(job.root_id)): job.cap_nanousd,
        CapKey("tenant_day", f"{job.tenant}/{today}"): round(policy.budgets.tenant_day_usd * NANOUSD_PER_USD),
        CapKey("fleet_day", today): round(policy.budgets.fleet_day_usd * NANOUSD_PER_USD),
    }
    rows = [
        {"scope": cap.scope, "key": cap.key, "limit_nanousd": limit, "spent_nanousd": 0, "reserved_nanousd": 0}
        for cap, limit in limits.items()
    ]
    session.execute(insert(Cap).values(rows).on_conflict_do_nothing())
    return tuple(limits)


def left(session: Session, caps: Sequence[CapKey]) -> CapRefusal:
    """Return the cap with the least room, and how much that is in nanodollars."""
    room = col(Cap.limit_nanousd) - col(Cap.spent_nanousd) - col(Cap.reserved_nanousd)
    rows = session.execute(
        select(col(Cap.scope), room).where(func.row(col(Cap.scope), col(Cap.key)).in_([func.row(*cap) for cap in caps]))
    )
    return min((CapRefusal(scope, left_nanousd) for scope, left_nanousd in rows), key=lambda cap: cap.left_nanousd)


def reserve(
    session: Session, job: Job, attempt: Attempt, call: CallStart, caps: Sequence[CapKey]
) -> CapRefusal | None:  # fmt: skip
    """Reserve a call's worst case under every cap and open its row.

    Returns:
        None when it is admitted; otherwise the cap that had no room, and the caller must roll back.
    """
    for cap in caps:
        admitted = session.execute(
            sql_update(Cap)
            .where(
                col(Cap.scope) == cap.scope,
                col(Cap.key) == cap.key,
                col(Cap.spent_nanousd) + col(Cap.reserved_nanousd) + call.reserve_nanousd <= col(Cap.limit_nanousd),
            )
            .values(reserved_nanousd=col(Cap.reserved_nanousd) + call.reserve_nanousd)
        )
        if admitted.rowcount == 0:  # type: ignore[attr-defined]
            return CapRefusal(cap.scope, 0)
    session.execute(
        insert(Call).values(
            id=call.id, job_id=job.id, attempt_id=attempt.id, caps=[list(cap) for cap in caps], state="reserved",
            provider=call.provider, model=call.model, key_hash=call.key_hash, gateway=call.gateway,
            lease_until=after(CALL_LEASE_SECONDS), max_tokens=call.max_tokens,
            reserved_nanousd=call.reserve_nanousd, cost_nanousd=0, prices_as_of=call.prices_as_of,
            input_tokens=0, output_tokens=0, cache_write_tokens=0, cache_read_tokens=0,
        )
    )  # fmt: skip
    return None


def settle(
    session: Session, call_id: UUID, *, usage: Usage, price: Price, finish: str, status: int, state: str = "settled",
    cost: int | None = None,
) -> int:  # fmt: skip
    """Close an open call: release its reserve, book what it used. Does nothing to a call that is closed already.

    Args:
        session: the caller's transaction.
        call_id: the call.
        usage: tokens as the provider reported them, or as counted when the stream was cut.
        price: what the model costs.
        finish: how the call ended.
        status: the HTTP status that its caller got.
        state: `settled`, or `presumed` when nobody knows what it used.
        cost: nanodollars, for a call whose usage is not known.

    Returns:
        The nanodollars booked by this settlement.
    """
    call = session.scalars(select(Call).where(col(Call.id) == call_id).with_for_update()).one()
    if call.state != "reserved":
        return 0
    booked = cost_nanousd(price, usage) if cost is None else cost
    call.state, call.finish, call.status, call.cost_nanousd = state, finish, status, booked
    call.input_tokens, call.output_tokens = usage.input_tokens, usage.output_tokens
    call.cache_write_tokens, call.cache_read_tokens = usage.cache_write_tokens, usage.cache_read_tokens
    call.ended_at = now()  # type: ignore[assignment]
    session.flush()
    for scope, key in call.caps:
        session.execute(
            sql_update(Cap)
            .where(col(Cap.scope) == scope, col(Cap.key) == key)
            .values(
                reserved_nanousd=col(Cap.reserved_nanousd) - call.reserved_nanousd,
                spent_nanousd=col(Cap.spent_nanousd) + booked,
            )
        )
    _record_call(session, call, booked=booked)
    return booked


def _record_call(session: Session, call: Call, *, booked: int) -> None:
    attempt = session.get_one(Attempt, call.attempt_id)
    job = session.get_one(Job, call.job_id)
    record(
        session, EventKind.CALL, job=job, queue=attempt.queue, tier=attempt.tier, model=call.model,
        provider=call.provider, finish=call.finish, status=call.status, cost_nanousd=booked,
        input_tokens=call.input_tokens, output_tokens=call.output_tokens,
        cache_write_tokens=call.cache_write_tokens, cache_read_tokens=call.cache_read_tokens,
    )  # fmt: skip


def renew_calls(session: Session, gateway: str) -> None:
    """Say that a gateway's open calls are alive."""
    session.execute(
        sql_update(Call)
        .where(col(Call.gateway) == gateway, col(Call.state) == "reserved")
        .values(lease_until=after(CALL_LEASE_SECONDS))
    )


def presume_lost_calls(session: Session, *, limit: int = 100) -> int:
    """Settle, at their full reserve, the calls of a gateway that died: never under what the provider may bill."""
    lost = session.scalars(
        select(Call)
        .where(col(Call.state) == "reserved", col(Call.lease_until) < now())
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()
    free = Price(input=0, output=0, cache_write=0, cache_read=0)
    for call in lost:
        settle(
            session, call.id, usage=Usage(), price=free, finish="gateway_lost", status=0, state="presumed",
            cost=call.reserved_nanousd,
        )  # fmt: skip
    return len(lost)


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
