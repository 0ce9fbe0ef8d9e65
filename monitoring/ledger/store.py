"""One way into the ledger: a connection pool, and a transaction around everything that belongs together."""

from __future__ import annotations

import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import NullPool
from sqlmodel import Session

from monitoring.ledger.storable import dump_json

STATEMENT_TIMEOUT_MS = 10_000
IDLE_TRANSACTION_TIMEOUT_MS = 30_000
"""A writer that hangs in a transaction would hold back the metrics and the audit seals."""
SILENCE: Mapping[str, int] = MappingProxyType(
    {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
)
"""What libpq is told about a server that vanished without a word: found dead in 20 to 25 s, not in a quarter hour."""
SILENT_CLIENT = (
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3 -c tcp_user_timeout=14000"
)
"""What the server is told about a client that vanished without a word: its locks are free after 14 s, before its lease
has run out. The server's own defaults would keep them for two hours."""


def create_ledger_engine(url: str, *, pool_size: int = 4, application: str = "pointsman") -> Engine:
    """Return an engine for a `postgresql://` URL. Its errors name no values: those are prompts, answers and hashes.

    Args:
        url: where the ledger is.
        pool_size: connections kept open; 0 opens one for each transaction (for a process that forks).
        application: the name that the database shows for these connections.
    """
    driver_url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    connect_args = {
        "application_name": application,
        "connect_timeout": 5,
        "options": f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c TimeZone=UTC "
        f"-c idle_in_transaction_session_timeout={IDLE_TRANSACTION_TIMEOUT_MS} {SILENT_CLIENT}",
        **SILENCE,
    }
    pool: dict[str, Any] = {"pool_size": pool_size, "max_overflow": pool_size}
    engine = create_engine(
        driver_url, connect_args=connect_args, json_serializer=dump_json, hide_parameters=True,
        **(pool if pool_size else {"poolclass": NullPool}),
    )  # fmt: skip
    event.listen(engine, "checkout", _check_alive)
    return engine


def _check_alive(connection: psycopg.Connection, *_: object) -> None:
    """Ask the server, before a pooled connection is used again, if anything came in while it rested.

    A server that went away has closed its end, which shows there without a round trip for each transaction.
    """
    try:
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        if waiting.poll(0):
            connection.execute("SELECT 1")
            connection.rollback()
    except psycopg.Error as error:
        raise InvalidatePoolError from error


class Ledger:
    """The ledger as a resource: made after a fork, closed by its owner."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._looking = engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """Open a transaction: committed when the block ends, rolled back when it raises."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Open a connection for one statement that only reads: it needs no transaction, nor the round trips of one."""
        with self._looking.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()
