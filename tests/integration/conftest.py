"""A ledger that the tests of one module share, emptied before each: a database for each would cost a second."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from ledger.store import Ledger, create_ledger_engine
from tests.factories import Shop
from tests.services import Postgres


@pytest.fixture(scope="module")
def module_ledger(postgres: Postgres) -> Iterator[tuple[Ledger, str]]:
    with postgres.database() as url:
        ledger = Ledger(create_ledger_engine(url, pool_size=8))
        yield ledger, url
        ledger.close()


@pytest.fixture
def shop(module_ledger: tuple[Ledger, str]) -> Shop:
    made = Shop(module_ledger[0], url=module_ledger[1])
    made.clear()
    made.tenant()
    return made


@pytest.fixture
def broker(broker_url: str) -> Iterator[Any]:
    """A client of an empty broker."""
    with Redis.from_url(broker_url, decode_responses=True) as client:
        yield client
