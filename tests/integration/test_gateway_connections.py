"""The gateway's connections to a real ledger."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from sandbox.gateway.connections import Connections
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
