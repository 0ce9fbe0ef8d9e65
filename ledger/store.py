"""One way into the ledger: a connection pool, a transaction, and whether the schema fits this version.

A revision's number says whether it does: `0002` is the second of era `00`. Within an era every migration only adds (a
test reads the scripts), so a process works on any newer revision of its own era. On an older one it waits for
`pointsman migrate`.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from select import POLLIN, poll
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DBAPIError, InterfaceError, InvalidatePoolError, OperationalError, ProgrammingError
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.pool import NullPool
from sqlmodel import Session, SQLModel

from ledger.errors import SchemaMismatchError

# SQL that is made once and goes straight to psycopg, and values as PostgreSQL takes them.
#
# SQLAlchemy looks at a statement, its parameters and its result anew each time, which costs three times what sending
# it
# does. What goes through `Statement` is in the caller's transaction and on its connection, prepared there after a few
# times, and fails with the errors that SQLAlchemy has for it.
#
# Leases go by the database's clock alone, so hosts may disagree (notes/fleet.md, 3).

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Statement:
    """A statement with psycopg's placeholders, `%(name)s`: its text never changes, so that its plan can be kept."""

    sql: str
    values: Mapping[str, Any] | None = None
    """What it is run with unless the caller gives values: the gateway takes statement and values on its event loop."""

    def all(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Run it in a session's transaction, or on a connection, and return its rows, as named tuples.

        The session is not flushed before: what its objects have not written yet, this does not see.

        Raises:
            DBAPIError: what SQLAlchemy raises; the message names no parameters.
        """
        connection = where.connection() if isinstance(where, Session) else where
        driver: Any = connection.connection.driver_connection
        values = self.values if values is None else values
        try:
            with driver.cursor(row_factory=namedtuple_row) as cursor:
                # Who counts or explains what SQLAlchemy sends hears of this, too.
                connection.dispatch.before_cursor_execute(connection, cursor, self.sql, values, None, False)
                cursor.execute(self.sql, values)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._as_dbapi_error(error, connection, is_lost=driver.closed) from error

    def one(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first row, or None; see `all`."""
        rows = self.all(where, values)
        return rows[0] if rows else None

    def scalar(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None; see `all`."""
        row = self.one(where, values)
        return None if row is None else row[0]

    def scalars(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the first column of every row; see `all`."""
        return [row[0] for row in self.all(where, values)]

    def _as_dbapi_error(self, error: psycopg.Error, connection: Connection, *, is_lost: bool) -> BaseException:
        if is_lost:
            connection.invalidate(error)
        facts: dict[str, Any] = {"hide_parameters": True, "connection_invalidated": is_lost}
        raised: BaseException = DBAPIError.instance(
            self.sql, None, error, psycopg.Error, dialect=connection.dialect, **facts
        )
        return raised


def now() -> ColumnElement[datetime]:
    """Return the database's clock at the moment the statement runs."""
    return func.clock_timestamp()


def after(seconds: float) -> ColumnElement[datetime]:
    """Return the database's clock, `seconds` from now."""
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def moment(seconds: float = 0.0) -> ColumnElement[datetime]:
    """Return the database's clock as it is read once for a whole statement, or `seconds` later: to find rows by a time.

    With `now()` itself the clock would be read for every row, so that no index on the time could be used.
    """
    return select(after(seconds) if seconds else now()).scalar_subquery()


def set_persisted(row: SQLModel, **columns: Any) -> None:
    """Set attributes as a statement has written them into the row: the session does not write them once more."""
    for name, value in columns.items():
        set_committed_value(row, name, value)


def storable(text: str) -> str:
    """Return `text` with what PostgreSQL cannot hold, NUL and lone surrogates, replaced by U+FFFD.

    A model or a caller can write both; neither may stop a job.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def dump_json(value: Any) -> str:
    """Return JSON that `jsonb` takes: the ledger's serializer. Ids and moments become text."""
    text = json.dumps(value, default=str)
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_storable_value(value), default=str)
    return text


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(name)): _storable_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable_value(item) for item in value]
    return value


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
        driver_url,
        connect_args=connect_args,
        json_serializer=dump_json,
        hide_parameters=True,
        **(pool if pool_size else {"poolclass": NullPool}),
    )
    event.listen(engine, "checkout", _check_alive)
    return engine


def _check_alive(connection: psycopg.Connection, *_: object) -> None:
    """Ask the server, before a pooled connection is used again, if anything came in while it rested.

    A server that went away has closed its end, which shows there without a round trip for each transaction.
    """
    try:
        waiting = poll()
        waiting.register(connection.fileno(), POLLIN)
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


logger = logging.getLogger(__name__)

SCRIPTS = Path(__file__).parent / "migrations"
SCHEMA_WAIT_SECONDS = 60.0
"""How long a process that was started before `pointsman migrate` waits for it."""
_SCHEMA_POLL_SECONDS = 1.0
_ERA_DIGITS = 2


class Fit(StrEnum):
    """How a ledger's schema stands to the one that this version was made for."""

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    """Of the same era: it has what this version needs, and more."""
    FOREIGN = "foreign"
    """Of another era: what this version needs may be gone."""


def fit_of(found: str | None, wanted: str) -> Fit:
    """Tell how a ledger at revision `found`, None for an empty one, stands to what a version wants."""
    if found == wanted:
        return Fit.CURRENT
    if found is None or found < wanted:
        return Fit.OLDER
    return Fit.NEWER if found[:_ERA_DIGITS] == wanted[:_ERA_DIGITS] else Fit.FOREIGN


def wanted_revision() -> str:
    """Return the newest revision that this version knows."""
    return max(path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*_*.py"))


def found_revision(engine: Engine) -> str | None:
    """Return the revision that a ledger is at, None when it has no schema."""
    try:
        with engine.connect() as connection:
            revision: str | None = Statement("SELECT version_num FROM alembic_version").scalar(connection)
            return revision
    except ProgrammingError:
        return None


def fit(engine: Engine) -> Fit:
    """Tell how a ledger stands to this version."""
    return fit_of(found_revision(engine), wanted_revision())


def serves(engine: Engine) -> bool:
    """Tell whether this version can work on a ledger: it has the schema that it was made for, or a newer one."""
    return fit(engine) in (Fit.CURRENT, Fit.NEWER)


def await_schema(
    ledger_url: str, *, patience_seconds: float = SCHEMA_WAIT_SECONDS, pause: Callable[[float], None] = time.sleep
) -> None:
    """Wait until a ledger has a schema that this version can work on; called once, at a process's start.

    A ledger that is away is nobody's wrong version: whoever starts then goes on and waits for it in its own way.

    Args:
        ledger_url: where the ledger is.
        patience_seconds: how long to wait for a migration.
        pause: sleeps for so many seconds.

    Raises:
        SchemaMismatchError: the operator's fault: it was not migrated in time, or is of another era.
    """
    engine = create_ledger_engine(ledger_url, pool_size=0)
    wanted, deadline = wanted_revision(), time.monotonic() + patience_seconds
    try:
        while (found := found_revision(engine)) != wanted:
            match fit_of(found, wanted):
                case Fit.NEWER:
                    logger.warning("ledger_is_newer", extra={"found": found, "made_for": wanted})
                    return
                case Fit.FOREIGN:
                    raise SchemaMismatchError(found, wanted)
            if time.monotonic() >= deadline:
                raise SchemaMismatchError(found, wanted)
            logger.warning("ledger_is_older", extra={"found": found, "made_for": wanted})
            pause(_SCHEMA_POLL_SECONDS)
    except (OperationalError, InterfaceError):
        logger.warning("ledger_unreachable")
    finally:
        engine.dispose()
