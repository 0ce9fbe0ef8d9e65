"""The gateway's connections to a real ledger."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg import sql

from monitoring.ledger.money import Statement
from sandbox.gateway.accounts import Accounts
from sandbox.gateway.connections import Connections, Disk
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
    assert open_connections(url) == 0


def test_what_is_run_is_on_the_disk_before_anybody_hears_of_it(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept (value int)")
        name = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = on").format(name))
    kept = Statement("INSERT INTO kept VALUES (%(value)s) RETURNING pg_current_wal_insert_lsn()::text", {"value": 1})
    written = "SELECT pg_current_wal_flush_lsn() > %(place)s::pg_lsn"

    async def work() -> list[bool]:
        accounts = Accounts(url, connections=2)
        found = []
        for _ in range(20):
            [[place]] = await accounts.run(kept)
            [[is_written]] = await accounts.ask(Statement(written, {"place": place}))
            found.append(is_written)
        await accounts.close()
        return found

    assert asyncio.run(work()) == [True] * 20


def test_one_wait_for_the_disk_serves_all_that_was_committed_before_it_and_nothing_later(url: str) -> None:
    class Slow(Connections):
        began: ClassVar[list[int]] = []
        so_far = 0

        async def run(self, text: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
            self.began.append(Slow.so_far)
            await asyncio.sleep(0.02)
            return []

    async def work() -> list[tuple[int, int]]:
        disk, seen = Disk(url), []
        disk._connections = Slow(url, size=1)

        async def one(number: int) -> None:
            await asyncio.sleep(number * 0.003)
            Slow.so_far = number
            await disk.written()
            seen.append((number, Slow.began[-1]))

        await asyncio.gather(*(one(number) for number in range(1, 31)))
        return seen

    seen = asyncio.run(work())
    assert len(seen) == 30
    assert all(began >= number for number, began in seen)
    assert len(Slow.began) < 10


def test_who_stops_waiting_for_the_disk_takes_it_from_nobody(url: str) -> None:
    async def work() -> None:
        disk = Disk(url)
        first, second = asyncio.create_task(disk.written()), asyncio.create_task(disk.written())
        await asyncio.sleep(0)
        first.cancel()
        await second
        await disk.written()
        await disk.close()

    asyncio.run(work())
    assert open_connections(url) == 0
