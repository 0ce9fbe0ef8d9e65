"""The servers that both sides of a race share: PostgreSQL and Valkey from their wheels, as `pointsman up` starts them.

The database keeps its defaults, so that a commit is on the disk. Where they are stands in the environment of the sides.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks import places
from ledger.operations.migrate import migrate
from ledger.store import Ledger, create_ledger_engine
from producers.local.preparation import start_postgres
from producers.use_cases.tenants import create_tenant
from tests.services import Valkey

TENANT = "bench"


@contextmanager
def shared() -> Iterator[None]:
    """Run both servers, each with a part for us and one for peers; ours holds a migrated ledger with a tenant."""
    directory = Path(tempfile.mkdtemp(prefix="pointsman-bench-"))
    try:
        with _database(directory / "postgres") as databases, Valkey(directory) as broker:
            url = broker.url.removesuffix("/0")
            os.environ.update(databases | {places.BROKER: f"{url}/0", places.PEER_BROKER: f"{url}/1"})
            yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _database(directory: Path) -> Iterator[dict[str, str]]:
    directory.mkdir()
    server = start_postgres(directory)
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE ledger")
            connection.execute("CREATE DATABASE peer")
        urls = {places.LEDGER: server.get_uri(database="ledger"), places.PEER_DATABASE: server.get_uri(database="peer")}
        ledger = Ledger(create_ledger_engine(urls[places.LEDGER], pool_size=0))
        migrate(ledger.engine)
        with ledger.begin() as session:
            create_tenant(session, TENANT, provider="fake")
        ledger.close()
        yield urls
    finally:
        server.cleanup()
