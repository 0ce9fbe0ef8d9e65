"""The gateway's connections to a real ledger."""

import asyncio
import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql as psycopg_sql

from gateway.ledger_client import Connections, DurableConnections, Executed, Ledger, Link
from ledger.store import Statement
from tests.cluster import cluster
from tests.services import Postgres

OPEN = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name = 'pointsman-gateway' AND datname = current_database()"
)


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    with postgres.database() as found:
        yield found


def open_connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute(OPEN).fetchone()
    assert found is not None
    return int(found[0])


def are_all_closed(url: str, *, within: float = 5.0) -> bool:
    """Tell whether the server has none left; it takes a moment to see that its client is gone."""
    ends = time.monotonic() + within
    while open_connections(url):
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def test_a_connection_in_use_when_all_are_closed_is_closed_when_its_statement_is_done(url: str) -> None:
    async def work() -> int:
        connections = Connections(url, size=2)
        assert await connections.run("SELECT 1", {}) == [(1,)]
        slow = asyncio.create_task(connections.run("SELECT 2 FROM pg_sleep(0.3)", {}))
        await asyncio.sleep(0.1)
        await connections.close()
        during = open_connections(url)
        assert await slow == [(2,)]
        return during

    assert asyncio.run(work()) == 1
    assert are_all_closed(url)


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["refused", "silent"])
def test_a_connection_whose_opening_is_given_up_is_closed(url: str, seconds: float) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        name = psycopg_sql.Identifier(connection.info.dbname)
        connection.execute("CREATE SCHEMA slow")
        connection.execute(
            "CREATE FUNCTION slow.pg_postmaster_start_time() RETURNS text LANGUAGE sql AS "
            f"'SELECT (1 / {int(seconds)})::text FROM pg_catalog.pg_sleep({seconds})'"
        )
        connection.execute(psycopg_sql.SQL("ALTER DATABASE {} SET search_path = slow, pg_catalog, public").format(name))

    async def work() -> int:
        connections = Connections(url, size=1)
        opening = asyncio.create_task(connections.run("SELECT 1", {}))
        for _ in range(500):
            if opening.done() or await asyncio.to_thread(open_connections, url):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # it is connected, and asks which server it has
        opening.cancel()
        with pytest.raises((asyncio.CancelledError, psycopg.Error)):
            await opening
        gc.collect()  # a connection that is left open is told by a warning now, which is an error here
        return connections._slots.qsize()

    assert asyncio.run(work()) == 1, "another statement may try"
    assert are_all_closed(url)


def test_what_is_run_is_on_the_disk_before_anybody_hears_of_it(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (value int)")
        name = psycopg_sql.Identifier(connection.info.dbname)
        connection.execute(psycopg_sql.SQL("ALTER DATABASE {} SET synchronous_commit = on").format(name))
    keep = Statement("INSERT INTO kept VALUES (%(value)s) RETURNING pg_current_wal_insert_lsn()::text", {"value": 1})
    written = "SELECT pg_current_wal_flush_lsn() > %(place)s::pg_lsn"

    async def work(at_once: int) -> list[bool]:
        accounts = Ledger(url, connections=4)

        async def one() -> list[bool]:
            found = []
            for _ in range(10):
                [[place]] = await accounts.run(keep)
                [[is_written]] = await accounts.query(Statement(written, {"place": place}))
                found.append(is_written)
            return found

        found = await asyncio.gather(*(one() for _ in range(at_once)))
        await accounts.close()
        return [is_written for own in found for is_written in own]

    assert asyncio.run(work(1)) == [True] * 10
    assert asyncio.run(work(4)) == [True] * 40


LINK = Link(cast("psycopg.AsyncRawCursor[Any]", None), None, 0.0)


def test_one_wait_for_the_disk_serves_all_that_was_committed_before_it_and_nothing_later(url: str) -> None:
    committed: list[int] = []
    waits: list[set[int]] = []

    class Quick(Connections):
        async def execute(self, sql: str, values: Mapping[str, Any]) -> Executed:
            committed.append(values["number"])
            return Executed([], LINK)

    class Slow(Connections):
        async def execute(self, sql: str, values: Mapping[str, Any]) -> Executed:
            served = {*committed, *(values[name] for name in values)}
            await asyncio.sleep(0.02)
            waits.append(served)
            return Executed([], LINK)

    async def work() -> None:
        kept = DurableConnections(url, Quick(url, size=1))
        kept._waiting = Slow(url, size=1)

        async def one(number: int) -> None:
            await asyncio.sleep(number * 0.003)
            await kept.run("x", {"number": number})
            assert number in waits[-1]

        await asyncio.gather(*(one(number) for number in range(1, 31)))

    asyncio.run(work())
    assert len(committed) > 20
    assert len(waits) < 15


def test_who_stops_waiting_for_the_disk_takes_it_from_nobody(url: str) -> None:
    async def work() -> list[Sequence[tuple[Any, ...]]]:
        connections = Connections(url, size=2)
        kept = DurableConnections(url, connections)
        tasks = [asyncio.create_task(kept.run(f"SELECT {number} FROM pg_sleep(0.1)", {})) for number in range(3)]
        await asyncio.sleep(0.15)
        tasks[1].cancel()
        rows = [await tasks[0], await tasks[2], await kept.run("SELECT 3", {})]
        await kept.close()
        await connections.close()
        return rows

    assert asyncio.run(work()) == [[(0,)], [(2,)], [(3,)]]
    assert are_all_closed(url)


def test_a_statement_that_waits_for_a_row_keeps_no_other_from_the_disk(url: str) -> None:
    async def work() -> float:
        connections = Connections(url, size=2)
        kept = DurableConnections(url, connections)
        held = asyncio.create_task(kept.run("SELECT 1 FROM pg_sleep(1.5)", {}))
        await asyncio.sleep(0.1)
        began = asyncio.get_running_loop().time()
        assert await kept.run("SELECT 2", {}) == [(2,)]
        took = asyncio.get_running_loop().time() - began
        assert not held.done()
        await held
        await kept.close()
        await connections.close()
        return took

    assert asyncio.run(work()) < 1.4


def test_a_new_server_is_no_proof_of_what_the_old_one_lost_between_commit_and_flush() -> None:
    class Frozen(Connections):
        """Flushes only when the server has crashed and is back."""

        async def execute(self, sql: str, values: Mapping[str, Any]) -> Executed:
            if "emit_message" in sql:
                await asyncio.to_thread(server.restart)
                await self.forget_idle()
            return await super().execute(sql, values)

    async def work() -> tuple[object, object]:
        connections = Connections(server.url, size=2)
        kept = DurableConnections(server.url, connections)
        kept._waiting = Frozen(server.url, size=2, waits=True)
        outcomes = await asyncio.gather(
            kept.run("SELECT 1 FROM pg_sleep(0.5)", {}),
            kept.run("INSERT INTO kept VALUES (1) RETURNING value", {}),
            return_exceptions=True,
        )
        await kept.close()
        await connections.close()
        return outcomes

    with cluster() as server:
        server.execute("CREATE TABLE kept (value int)")
        _, outcome = asyncio.run(work())
        assert isinstance(outcome, psycopg.OperationalError), outcome
        assert server.execute("SELECT * FROM kept") == []
