"""Reserve and settle against a real ledger: whatever is interleaved, the books balance and no cap is passed."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from ledger import money
from ledger.money import (
    Bearer,
    BearerGone,
    CallStart,
    CircuitRefusal,
    CircuitShut,
    Reserved,
)
from ledger.provider_circuits import CircuitUse
from ledger.record_tables import ProviderCircuit
from ledger.store import Ledger
from routing.policy.prices import NANOUSD_PER_USD, BudgetExceeded, Usage
from routing.queues import QueueName
from tests.factories import Shop, make_call
from tests.integration.gateway.gateway_world import World
from tests.services import wait_until

LIMIT = 1000
"""Nanodollars of every cap in these tests."""
Outcome = Reserved | BudgetExceeded | BearerGone


@pytest.fixture
def world(ledger: Ledger) -> World:
    world = World(ledger, "")
    world.tenant(provider="own", max_running=1000)  # the examples of one test leave their attempts open
    return world


def bearer(world: World, **fields: Any) -> Bearer:
    return world.bearer(world.attempt(**fields).token)


def start(nanousd: int, *, tokens: int = 1, least: int = 1) -> CallStart:
    return make_call(input_nanousd=nanousd - tokens, max_tokens=tokens, least_tokens=least)


def reserve(world: World, holder: Bearer, call: CallStart, *, limit: int | None = LIMIT) -> Outcome:
    caps = money.caps_of(holder, policy=world.policy)
    if limit is not None:
        caps = tuple(cap._replace(limit_nanousd=limit) for cap in caps)
    try:
        with world.ledger.begin() as session:
            return money.read_reserve(money.reserve(holder, call, caps).all(session)[0], call)
    except IntegrityError:  # another call opened one of the caps at the same moment, as the gateway finds it, too
        return reserve(world, holder, call, limit=limit)


def settle(world: World, call_id: UUID, cost: int) -> bool:
    statement = money.settle(call_id, usage=Usage(), cost_nanousd=cost, finish="completed", status=200, state="settled")
    with world.ledger.begin() as session:
        return bool(statement.all(session))


def test_a_circuit_that_may_have_to_be_tested_takes_a_call_through_its_gate_alone(world: World) -> None:
    holder, call = bearer(world), replace(start(400), circuit=CircuitUse(account="own"))
    caps = money.caps_of(holder, policy=world.policy)
    with world.ledger.begin() as session:
        just_now = datetime.now(UTC) - timedelta(seconds=1)
        session.add(ProviderCircuit(provider="own", model="m", failures=3, open_until=just_now))
    with world.ledger.begin() as session:
        found = [
            money.read_reserve(
                money.reserve(holder, replace(call, id=uuid4()), caps, is_gated=gated).one(session), call
            )
            for gated in (False, True, True)
        ]
    assert found[:2] == [CircuitShut(), Reserved(1, 400, circuit_failures=3, is_circuit_test=True)]
    assert isinstance(found[2], CircuitRefusal), "one call tests it"


@pytest.mark.req("H-100", "H-101", "H-102")
@pytest.mark.parametrize(("queue", "usd"), [(QueueName.SPEC, 0.05), (QueueName.PATCH, 0.10), (QueueName.AGENT, 0.50)])
def test_a_tier_may_spend_exactly_its_limit_and_not_a_nanodollar_more(
    world: World, queue: QueueName, usd: float
) -> None:
    held = world.attempt()
    world.execute("UPDATE attempt SET queue = :queue", queue=queue.value)
    holder = world.bearer(held.token)
    limit = round(usd * NANOUSD_PER_USD)
    over = reserve(world, holder, start(limit + 1), limit=None)
    assert over == BudgetExceeded("tier", limit)
    exact = start(limit)
    assert reserve(world, holder, exact, limit=None) == Reserved(1, limit)
    assert settle(world, exact.id, limit)
    assert reserve(world, holder, start(1), limit=None) == BudgetExceeded("tier", 0)
    world.check_books()


def test_an_open_call_is_believed_for_half_a_minute_and_then_charged_in_full(world: World) -> None:
    assert isinstance(reserve(world, bearer(world), start(400)), Reserved)
    with world.ledger.begin() as session:
        left = session.connection().scalar(text("SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM call"))
        assert 20 < float(left or 0) <= 30
        assert money.presume_lost_calls(session) == 0
    world.execute("UPDATE call SET lease_until = clock_timestamp() - interval '1 second'")
    with world.ledger.begin() as session:
        assert money.presume_lost_calls(session) == 1
    assert {(cap.spent_nanousd, cap.reserved_nanousd) for cap in world.caps().values()} == {(400, 0)}
    world.check_books()


def test_a_call_that_is_booked_twice_is_paid_once(world: World) -> None:
    holder, call = bearer(world), start(400)
    assert isinstance(reserve(world, holder, call), Reserved)
    assert settle(world, call.id, 300)
    assert not settle(world, call.id, 300)
    assert len(world.events("call")) == 1
    assert {cap.spent_nanousd for cap in world.caps().values()} == {300}
    world.check_books()


def test_what_has_room_for_fewer_tokens_gets_fewer(world: World) -> None:
    holder = bearer(world)
    assert isinstance(reserve(world, holder, start(700)), Reserved)
    assert reserve(world, holder, start(500, tokens=400, least=400)) == BudgetExceeded("tier", 300)
    assert reserve(world, holder, start(500, tokens=400, least=100)) == Reserved(200, 300)
    assert reserve(world, holder, start(500, tokens=400, least=1)) == BudgetExceeded("tier", 0)
    world.check_books()


@pytest.mark.threat("C2")
@pytest.mark.parametrize("change", ["fence = fence + 1", "cancel_requested_at = now()"])
def test_an_attempt_that_lost_its_job_since_it_was_looked_up_reserves_nothing(world: World, change: str) -> None:
    holder = bearer(world)
    world.execute(f"UPDATE job SET {change}")
    assert isinstance(reserve(world, holder, start(1)), BearerGone)
    assert world.calls() == []


@pytest.mark.threat("C2")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE attempt SET ended_at = now()",
        "UPDATE attempt SET deadline = clock_timestamp()",
        "UPDATE attempt SET fence = fence + 1",
        "UPDATE attempt SET token_hash = 'another'",
        "UPDATE attempt SET egress_address = '10.0.0.2'",
        "UPDATE attempt SET egress_address = NULL",
        "UPDATE job SET cap_nanousd = cap_nanousd - 1",
        "UPDATE tenant SET provider = NULL",
        "UPDATE tenant SET overrides = jsonb_build_object('budgets', jsonb_build_object())",
    ],
)
def test_what_a_lookup_found_must_still_hold_when_it_reserves(world: World, change: str) -> None:
    world.execute("UPDATE tenant SET overrides = '{}'")
    held = world.attempt()
    world.execute("UPDATE attempt SET egress_address = '10.0.0.1'")
    holder = world.bearer(held.token)
    assert isinstance(reserve(world, holder, start(1)), Reserved)
    world.execute(change)
    assert isinstance(reserve(world, holder, start(1)), BearerGone)
    assert len(world.calls()) == 1


def test_a_booking_of_many_locks_caps_in_the_order_of_each(world: World) -> None:
    """One call has a key's cap before the fleet's, the other none: booked together, neither may come first."""
    holder = bearer(world)
    plain, keyed = (money.caps_of(holder, policy=world.policy, key_day_usd=usd) for usd in (None, 1.0))
    calls = start(10), start(10)
    with world.ledger.begin() as session:
        for call, caps in zip(calls, (plain, keyed), strict=True):
            assert isinstance(money.read_reserve(money.reserve(holder, call, caps).all(session)[0], call), Reserved)
    ended = [money.Ended(call.id, Usage(), 5, "settled", "completed", 200) for call in calls]

    def book() -> int:
        with world.ledger.begin() as session:
            return len(money.settle_all(ended).all(session))

    lock = "SELECT 1 FROM cap WHERE scope = '{}' FOR UPDATE"
    with ThreadPoolExecutor(1) as pool:
        with world.ledger.begin() as session:
            connection = session.connection()
            connection.execute(text(lock.format("key_day")))
            booking = pool.submit(book)
            waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            wait_until(lambda: connection.scalar(waits), seconds=5, what="the booking waits")
            connection.execute(text(lock.format("fleet_day") + " NOWAIT"))
        assert booking.result(5) == 2
    world.check_books()


def test_a_raised_budget_holds_at_once(world: World) -> None:
    holder = bearer(world)
    assert isinstance(reserve(world, holder, start(1000)), Reserved)
    assert isinstance(reserve(world, holder, start(500)), BudgetExceeded)
    assert isinstance(reserve(world, holder, start(500), limit=1500), Reserved)
    assert {cap.limit_nanousd for cap in world.caps().values()} == {1500}


def test_concurrent_calls_neither_deadlock_nor_pass_a_cap(world: World) -> None:
    holders = [bearer(world) for _ in range(4)]

    def work(seed: int) -> int:
        chance = random.Random(seed)
        admitted = 0
        for _ in range(40):
            call = start(chance.randrange(100, 500))
            if isinstance(reserve(world, chance.choice(holders), call), Reserved):
                admitted += 1
                if chance.random() < 0.8:
                    settle(world, call.id, chance.randrange(0, 5))
                else:
                    world.execute("UPDATE call SET lease_until = now() - interval '1 hour' WHERE id = :id", id=call.id)
                    with world.ledger.begin() as session:
                        money.presume_lost_calls(session)
        return admitted

    with ThreadPoolExecutor(6) as pool:
        admitted = sum(pool.map(work, range(6)))
    assert len(world.calls()) == admitted > 5
    world.check_books()
    assert all(cap.spent_nanousd <= LIMIT and cap.reserved_nanousd == 0 for cap in all_caps(world))


def all_caps(world: World) -> list[Any]:
    with world.ledger.begin() as session:
        return list(session.connection().execute(text("SELECT spent_nanousd, reserved_nanousd FROM cap")))


def test_the_caps_of_a_policy_are_its_own(world: World) -> None:
    holder = bearer(world, cap_usd=0.3)
    caps = {cap.scope: cap.limit_nanousd / NANOUSD_PER_USD for cap in money.caps_of(holder, policy=world.policy)}
    assert list(caps) == ["tier", "job", "tenant_day", "fleet_day"]
    assert caps == {"tier": 0.05, "job": 0.3, "tenant_day": 50, "fleet_day": 500}


@pytest.mark.req("S-019")
def test_a_step_may_spend_its_own_budget_and_not_a_nanodollar_more(world: World) -> None:
    step = replace(bearer(world), step_cap_nanousd=LIMIT)
    assert reserve(world, step, start(LIMIT + 1), limit=None) == BudgetExceeded("tier", LIMIT)
    assert reserve(world, step, start(LIMIT), limit=None) == Reserved(1, LIMIT)


def test_a_call_that_was_looked_up_before_its_attempt_handed_the_job_on_gets_no_money(shop: Shop) -> None:
    world = World(shop.ledger, "")
    claimed = shop.running()
    holder = shop.bearer(claimed.token)
    assert isinstance(reserve(world, holder, start(1)), Reserved)
    shop.offer(claimed)
    assert isinstance(reserve(world, holder, start(1)), BearerGone)
