"""The gateway's bookings: shared statements, and which of them wait for the disk."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlmodel import Session

from gateway import ledger_client
from gateway.errors import LedgerUnreachableError
from gateway.journal import Journal, read_journal
from gateway.ledger_client import Ledger as LedgerClient
from gateway.providers.provider import Settlement
from ledger import money
from ledger.attempts import renew_all
from ledger.money import Bearer, CallStart, CapLimit, Reserved
from ledger.store import STATEMENT_TIMEOUT_MS, Ledger, Statement
from routing.policy.prices import Usage
from tests.factories import make_call
from tests.integration.gateway.gateway_world import World

RESERVED = 1000
"""Nanodollars of every call."""


class Watched(LedgerClient):
    """Tells the bookings that waited for the disk from those that did not."""

    def __init__(self, url: str, home: Path | None) -> None:
        super().__init__(url, connections=4, journal=None if home is None else Journal(home, instance="g"))
        self.ran: list[str] = []
        self.durable: list[int] = []
        self.quick: list[int] = []
        """Calls of each statement."""

    async def run(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        rows = await super().run(statement)
        self.ran.append(statement.sql)
        if statement.sql == money.SETTLE:
            self.durable.append(len(rows))
        return rows

    async def query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        rows = await super().query(statement)
        if statement.sql == money.SETTLE:
            self.quick.append(len(rows))
        return rows


@pytest.fixture
def world(ledger: Ledger) -> Iterator[World]:
    world = World(ledger, "")
    world.tenant(provider="own")
    yield world
    world.check_books()


def bearer(world: World) -> Bearer:
    return world.bearer(world.attempt().token)


async def reserve(client: LedgerClient, holder: Bearer, world: World) -> CallStart:
    call = make_call(input_nanousd=RESERVED - 1)
    assert isinstance(await client.reserve(holder, call, money.caps_of(holder, policy=world.policy)), Reserved)
    return call


def booked(cost: int, *, tokens: int = 7) -> Settlement:
    return Settlement(Usage(tokens, 1), cost, "settled", "completed", 200)


def serve(world: World, url: str, home: Path | None, *settlements: Settlement) -> tuple[Watched, list[object]]:
    """Serve one call for each settlement, all ending at once."""

    async def work() -> tuple[Watched, list[object]]:
        client, holder = Watched(url, home), bearer(world)
        calls = [await reserve(client, holder, world) for _ in settlements]
        ends = (client.settle(call.id, ended) for call, ended in zip(calls, settlements, strict=True))
        outcomes: list[object] = await asyncio.gather(*ends, return_exceptions=True)
        await client.close()
        return client, outcomes

    return asyncio.run(work())


def costs(world: World) -> list[tuple[str, int]]:
    return sorted((call.state, call.cost_nanousd) for call in world.calls())


def test_the_first_call_of_a_job_is_reserved_and_its_caps_are_opened_in_one_statement(
    world: World, ledger_url: str
) -> None:
    client, _ = serve(world, ledger_url, None, booked(5), booked(6))
    assert client.ran == [money.RESERVE, money.RESERVE, money.SETTLE, money.SETTLE]
    assert {cap.spent_nanousd for cap in world.caps().values()} == {11}


def test_first_calls_at_the_same_moment_open_their_caps_once_and_all_count(world: World, ledger_url: str) -> None:
    holder, call_count = bearer(world), 4
    fleet_day = money.caps_of(holder, policy=world.policy)[-1]

    async def work() -> None:
        client = LedgerClient(ledger_url, connections=call_count)
        with world.ledger.begin() as session:  # another tenant's call opens the day's cap first, and is slow
            money.open_caps([fleet_day]).all(session)
            asked = [asyncio.ensure_future(reserve(client, holder, world)) for _ in range(call_count)]
            done, _ = await asyncio.wait(asked, timeout=0.3)
            assert not done, "they wait for it"
        await asyncio.gather(*asked)
        await client.close()

    asyncio.run(work())
    assert {cap.reserved_nanousd for cap in world.caps().values()} == {call_count * RESERVED}


def test_a_call_that_waits_for_a_cap_to_be_opened_has_changed_no_other_yet(world: World, ledger_url: str) -> None:
    holder = bearer(world)
    caps = money.caps_of(holder, policy=world.policy)
    with world.ledger.begin() as session:
        money.open_caps(caps[-1:]).all(session)

    async def work() -> None:
        client = LedgerClient(ledger_url, connections=1)
        with world.ledger.begin() as session:  # another call of this attempt is slow to open the first cap
            money.open_caps(caps[:1]).all(session)
            asked = asyncio.ensure_future(reserve(client, holder, world))
            done, _ = await asyncio.wait([asked], timeout=0.3)
            assert not done, "it waits for it"
            session.connection().execute(text("SET LOCAL lock_timeout = '300ms'"))
            assert money.open_caps(caps[-1:]).all(session) == [], "the last cap is there, and nothing is waited for"
        await asked
        await client.close()

    asyncio.run(work())
    assert {cap.reserved_nanousd for cap in world.caps().values()} == {RESERVED}


def test_a_booking_that_waits_for_a_cap_has_changed_no_other_yet(world: World, ledger_url: str) -> None:
    holder = bearer(world)
    caps = money.caps_of(holder, policy=world.policy)

    async def work() -> None:
        client = LedgerClient(ledger_url, connections=1)
        call = await reserve(client, holder, world)
        with world.ledger.begin() as session:  # a call that read the caps before this one opened them
            session.connection().execute(text("SELECT FROM cap WHERE scope = 'fleet_day' FOR UPDATE"))
            ending = asyncio.ensure_future(client.settle(call.id, booked(5)))
            done, _ = await asyncio.wait([ending], timeout=0.3)
            assert not done, "it waits for the last cap"
            session.connection().execute(text("SET LOCAL lock_timeout = '300ms'"))
            assert money.open_caps(caps[:1]).all(session) == [], "the first cap is there, and nothing is waited for"
        await ending
        await client.close()

    asyncio.run(work())
    assert {cap.spent_nanousd for cap in world.caps().values()} == {5}


def test_a_row_that_is_there_already_is_no_opened_cap_unless_it_is_one(world: World, ledger_url: str) -> None:
    with world.ledger.begin() as session:
        money.open_caps([CapLimit("fleet_day", "2026-11-28", 1)]).all(session)

    async def work() -> None:
        client = LedgerClient(ledger_url, connections=1)
        for table, error in (("cap", ledger_client.CapOpenedError), ("tenant", LedgerUnreachableError)):
            with pytest.raises(error):
                await client.run(Statement(f"INSERT INTO {table} SELECT * FROM {table} RETURNING 1"))
        await client.close()

    asyncio.run(work())


def test_what_ends_while_a_booking_is_under_way_shares_the_next_one(
    world: World, ledger_url: str, tmp_path: Path
) -> None:
    client, outcomes = serve(world, ledger_url, tmp_path, *(booked(number) for number in range(1, 41)))
    assert outcomes == [None] * 40
    assert sum(client.quick) == 40
    assert len(client.quick) <= 4
    assert client.durable == []
    assert costs(world) == [("settled", number) for number in range(1, 41)]
    assert len(world.events("call")) == 40
    assert sorted(served.cost_nanousd for served in read_journal(tmp_path)) == list(range(1, 41))


def test_a_booking_whose_loss_could_be_too_cheap_or_that_stands_nowhere_else_waits_for_the_disk(
    world: World, ledger_url: str, tmp_path: Path
) -> None:
    nothing = Settlement(Usage(), 0, "settled", "refused", 529)
    client, _ = serve(world, ledger_url, tmp_path, booked(RESERVED), booked(RESERVED + 1), nothing)
    assert (client.quick, client.durable) == ([1], [1, 1])
    client, _ = serve(world, ledger_url, None, booked(5))
    assert (client.quick, client.durable) == ([], [1])


def test_a_call_that_the_ledger_does_not_take_keeps_no_other_from_being_booked(
    world: World, ledger_url: str, tmp_path: Path
) -> None:
    client, outcomes = serve(world, ledger_url, tmp_path, booked(1), booked(2, tokens=2**40), booked(3), booked(4))
    assert [type(outcome) for outcome in outcomes].count(LedgerUnreachableError) == 1
    assert isinstance(outcomes[1], LedgerUnreachableError)
    assert costs(world) == [("reserved", 0), ("settled", 1), ("settled", 3), ("settled", 4)]
    assert sum(client.quick) + sum(client.durable) == 3


def test_a_call_whose_booking_was_lost_is_presumed_at_no_less_or_repaired_from_the_journal(
    world: World, ledger_url: str, tmp_path: Path
) -> None:
    serve(world, ledger_url, tmp_path, booked(600), booked(700))
    lost = "UPDATE call SET state = 'reserved', cost_nanousd = 0"
    world.execute(lost)
    world.execute("DELETE FROM event WHERE kind = 'call'")
    world.execute("UPDATE cap SET spent_nanousd = 0, reserved_nanousd = :all", all=2 * RESERVED)
    first, _ = read_journal(tmp_path)

    async def repair() -> None:
        client = Watched(ledger_url, tmp_path)
        assert await client.unbooked([first.id]) == {first.id}
        assert client.ran == [ledger_client._WRITE_OUT], "what it does not name is never asked for again"
        await client.book(first)
        assert client.durable == [1], "the journal is not read again from before it"
        await client.close()

    asyncio.run(repair())
    world.execute("UPDATE call SET lease_until = clock_timestamp() - interval '1 second'")
    with world.ledger.begin() as session:
        assert money.presume_lost_calls(session) == 1
    assert costs(world) == [("presumed", RESERVED), ("settled", first.cost_nanousd)]


def test_a_worker_that_is_frozen_with_its_attempt_delays_its_own_call_s_booking_alone(
    world: World, ledger_url: str, tmp_path: Path
) -> None:
    frozen, other = bearer(world), bearer(world)

    async def work() -> float:
        client = Watched(ledger_url, tmp_path)
        own, foreign = [await reserve(client, holder, world) for holder in (frozen, other)]
        with psycopg.connect(ledger_url) as worker:
            worker.execute("UPDATE attempt SET reason = 'x' WHERE id = %s", (frozen.attempt_id,))
            waiting = asyncio.create_task(client.settle(own.id, booked(5)))
            began = time.monotonic()
            await client.settle(foreign.id, booked(6))
            took = time.monotonic() - began
            with pytest.raises(LedgerUnreachableError):
                await waiting
        await client.settle_later(own.id, booked(5))
        await client.close()
        return took

    assert asyncio.run(work()) < STATEMENT_TIMEOUT_MS / 2000
    assert costs(world) == [("settled", 5), ("settled", 6)]


async def open_two(world: World, ledger_url: str) -> list[CallStart]:
    client, holder = LedgerClient(ledger_url, connections=1), bearer(world)
    calls = [await reserve(client, holder, world) for _ in range(2)]
    await client.close()
    return calls


def test_a_lease_is_renewed_without_waiting_for_a_call_that_is_being_booked(world: World, ledger_url: str) -> None:
    first, second = asyncio.run(open_two(world, ledger_url))
    with world.ledger.begin() as booking, world.ledger.begin() as session:
        booking.connection().execute(text("SELECT 1 FROM call WHERE id = :id FOR UPDATE"), {"id": first.id})
        session.connection().execute(text("SET LOCAL lock_timeout = '300ms'"))
        renewed = money.renew_calls([first.id, second.id]).all(session)
    assert [row.id for row in renewed] == [second.id]


def test_leases_of_attempts_and_calls_are_renewed_in_place(world: World, ledger_url: str) -> None:
    """As an index would be written to by every renewal, each few seconds for all that runs (issue 23)."""
    calls = asyncio.run(open_two(world, ledger_url))
    attempt = world.calls()[0].attempt_id
    writes = text(
        "SELECT relname, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname IN ('attempt', 'call')"
    )

    with world.ledger.engine.connect() as connection:

        def told() -> dict[str, tuple[int, int]]:
            connection.execute(text("SELECT pg_stat_force_next_flush()"))
            connection.commit()
            return {row.relname: (row.n_tup_upd, row.n_tup_hot_upd) for row in connection.execute(writes)}

        before = told()
        for _ in range(20):
            with Session(connection) as session, session.begin():
                assert all(renew_all(session, [attempt], lease_seconds=30).values())
                assert len(money.renew_calls([call.id for call in calls]).all(session)) == len(calls)
        after = told()
    for table, rows in (("attempt", 1), ("call", len(calls))):
        updated, in_place = (now - then for now, then in zip(after[table], before[table], strict=True))
        assert updated == 20 * rows
        assert in_place >= 0.9 * updated
