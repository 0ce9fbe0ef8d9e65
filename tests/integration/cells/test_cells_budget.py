"""The fleet's budget of a day over several cells: never more than it in all slices, whatever order cells ask in."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import date, timedelta
from itertools import count

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from gateway.errors import BudgetExceededError, GatewayUnreachableError, LedgerUnreachableError
from gateway.fleet_budget import FleetBudget
from ledger.cells.directory import CellRecord, Directory
from ledger.money import CapLimit
from ledger.runs.steps import charge_unmetered_step
from ledger.store import Ledger, create_ledger_engine
from monitoring.config import CellsConfig
from routing.policy.platform import platform_policy
from routing.policy.prices import NANOUSD_PER_USD
from tests.directories import new_directory
from tests.factories import Shop
from tests.integration.gateway.gateway_world import (
    HAIKU,
    World,
    closing,
    gateway_world,
    opening,
    provider,
    scripted_provider,
    stream,
)
from tests.services import Postgres

DAYS = count()


@pytest.fixture(scope="module")
def directory_url(postgres: Postgres) -> Iterator[str]:
    with new_directory(postgres) as (url, directory):
        for name in ("east", "west", "north"):
            directory.add_cell(CellRecord(name, "http://x", "http://y", "redis://z", "z", "{}"))
        yield url


@pytest.fixture(scope="module")
def directory(directory_url: str) -> Iterator[Directory]:
    opened = Directory(directory_url)
    yield opened
    opened.close()


def a_day() -> str:
    """Return a day that no other test has spent on."""
    return str(date(2100, 1, 1) + timedelta(days=next(DAYS)))


REQUESTS = st.tuples(st.sampled_from(["east", "west", "north"]), st.integers(1, 60), st.integers(1, 40), st.booleans())


@given(limit=st.integers(0, 200), requests=st.lists(REQUESTS, max_size=25))
def test_all_slices_together_never_exceed_the_budget_and_what_is_left_is_given(
    directory: Directory, limit: int, requests: list[tuple[str, int, int, bool]]
) -> None:
    day, leased = a_day(), defaultdict[str, int](int)
    for cell, least, size, is_stale in requests:
        known = 0 if is_stale else leased[cell]
        room = limit - sum(leased.values())
        told = directory.lease(cell, day=day, limit=limit, known=known, least=least, slice_nanousd=size)
        if leased[cell] - known >= least:
            assert told == leased[cell], "another gateway of the cell has asked for it already"
        else:
            assert told == leased[cell] + min(room, max(least, size))
        leased[cell] = told
    assert sum(leased.values()) <= limit


def test_cells_that_ask_at_once_get_no_more_than_there_is(directory: Directory) -> None:
    day, cells = a_day(), ["east", "west", "north"]

    def ask(place: int) -> tuple[str, int]:
        cell = cells[place % 3]
        return cell, directory.lease(cell, day=day, limit=100, known=10**9, least=7, slice_nanousd=9)

    with ThreadPoolExecutor(6) as pool:
        told = [*pool.map(ask, range(60))]
    assert sum(max(total for cell, total in told if cell == name) for name in cells) == 100


def open_cell(stack: ExitStack, postgres: Postgres, name: str, directory_url: str, *, fleet_usd: float) -> World:
    url = stack.enter_context(postgres.database())
    ledger = Ledger(create_ledger_engine(url, pool_size=2))
    stack.callback(ledger.close)
    parts = opening(), closing(output_tokens=100)
    upstream = stack.enter_context(scripted_provider(lambda played, http: stream(played, http, *parts)))
    policy = platform_policy()
    budgets = policy.budgets.model_copy(update={"fleet_day_usd": fleet_usd})
    cells = CellsConfig(directory_url=SecretStr(directory_url), name=name, slice_usd=0.002)
    return stack.enter_context(
        gateway_world(
            ledger,
            url,
            {"own": provider(upstream.url)},
            policy=policy.model_copy(update={"budgets": budgets}),
            cells=cells,
        )
    )


def spend(world: World) -> bool:
    """Make one model call; False if a budget refuses it."""
    held = world.attempt()
    try:
        with world.client(held) as client:
            client.create(["hello"], model=HAIKU, max_tokens=300)
    except BudgetExceededError:
        return False
    return True


def spend_all(world: World) -> int:
    """Make model calls until a budget refuses one; returns how many were made."""
    return next(made for made in count() if not spend(world))


def test_two_cells_spend_one_budget_as_each_needs_it_and_no_more(postgres: Postgres) -> None:
    with ExitStack() as stack:
        url, directory = stack.enter_context(new_directory(postgres))
        east, west = (open_cell(stack, postgres, name, url, fleet_usd=0.01) for name in ("east", "west"))
        assert [spend(west), spend(west)] == [True, True]
        assert spend_all(east) > 2, "the busy cell gets what the other does not ask for"
        leased = directory.leased_today()
        assert sum(leased.values()) <= 0.01 * NANOUSD_PER_USD
        for world, name in ((east, "east"), (west, "west")):
            world.check_books()
            assert world.caps()["fleet_day"].spent_nanousd <= leased[name]


OPEN_TRANSACTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start < now()"


def test_steps_that_no_gateway_meters_are_charged_to_one_budget_by_all_cells(postgres: Postgres) -> None:
    with ExitStack() as stack:
        url, directory = stack.enter_context(new_directory(postgres))
        budgets = platform_policy().budgets.model_copy(update={"fleet_day_usd": 0.01})
        policy = platform_policy().model_copy(update={"budgets": budgets})
        charged = dict.fromkeys(("east", "west"), 0)

        def charge(cell: str, nanousd: int) -> str | None:
            """Charge a step in a cell; returns the scope of the budget that has no room for it."""
            shop, budget = cells[cell]
            claimed = shop.running(tier=None)

            def leased(fleet: CapLimit, total_nanousd: int) -> CapLimit:
                with psycopg.connect(shop.url) as connection:
                    open_ones = connection.execute(OPEN_TRANSACTIONS).fetchone()
                assert open_ones == (0,), "a directory that is slow holds up nothing"
                return budget.leased(fleet, total_nanousd)

            exceeded = charge_unmetered_step(
                shop.ledger, claimed, nanousd=nanousd, model="m", worker="w1", within=leased
            )
            charged[cell] += 0 if exceeded else nanousd
            return exceeded.scope if exceeded else None

        cells = {}
        for name in charged:
            ledger_url = stack.enter_context(postgres.database())
            ledger = Ledger(create_ledger_engine(ledger_url, pool_size=1))
            stack.callback(ledger.close)
            budget = FleetBudget(CellsConfig(directory_url=SecretStr(url), name=name, slice_usd=0.0001))
            stack.callback(budget.close)
            cells[name] = Shop(ledger, ledger_url, policy), budget
        assert charge("east", 6_000_000) is None
        assert charge("west", 6_000_000) == "fleet_day", "what the other cell has is not there"
        assert charge("west", 3_000_000) is None
        assert charge("east", 2_000_000) == "fleet_day"
        assert sum(charged.values()) <= sum(directory.leased_today().values()) <= 10_000_000


def test_without_its_directory_a_cell_spends_its_slice_and_then_calls_wait(postgres: Postgres) -> None:
    with ExitStack() as stack:
        with new_directory(postgres) as (url, _):
            world = open_cell(stack, postgres, "east", url, fleet_usd=10.0)
            assert spend(world)
        with pytest.raises(GatewayUnreachableError, match="ledger"):  # nobody knows what is left: it is tried later
            spend_all(world)
        world.check_books()


def test_calls_do_not_queue_behind_a_directory_that_does_not_answer() -> None:
    stops, waited = threading.Event(), 0.5

    def answer_nobody(server: socket.socket) -> None:
        while not stops.is_set():
            with suppress(OSError), server.accept()[0]:
                stops.wait(waited)

    caps = (CapLimit("fleet_day", a_day(), NANOUSD_PER_USD),)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer_nobody, args=(server,), daemon=True).start()
        url = f"postgresql://x@127.0.0.1:{server.getsockname()[1]}/x?sslmode=disable"
        budget = FleetBudget(CellsConfig(directory_url=SecretStr(url), name="east"))

        async def ask() -> None:
            asked = (budget.extend(caps, budget.within(caps), needed_nanousd=1) for _ in range(10))
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(one) for one in told} == {LedgerUnreachableError}

        began = time.monotonic()
        asyncio.run(ask())
        assert waited <= time.monotonic() - began < 5 * waited
        stops.set()
        budget.close()
        server.shutdown(socket.SHUT_RDWR)
