"""Connect to the ledger: engine, transactions, raw statements, and whether the schema fits this version.

SQLAlchemy examines a statement, its parameters and its result on every execution, which costs three times as much as
sending it. A `Statement` goes straight to psycopg instead, in the caller's transaction and on its connection.

A revision's number says whether the schema fits: `0102` is the second of era `01`. Within an era migrations only add (a
test reads the scripts), so a process works on any newer revision of its own era. On an older one it waits for
`pointsman migrate`. No revision leads from one era to the next. Leases go by the database's clock alone, so hosts may
disagree.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum, unique
from pathlib import Path
from select import POLLIN, poll
from types import MappingProxyType
from typing import Any, cast

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import ColumnElement, Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InvalidatePoolError,
    OperationalError,
    ProgrammingError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm.attributes import set_committed_value
from sqlalchemy.pool import ManagesConnection, NullPool, QueuePool
from sqlmodel import Session, SQLModel

from ledger.errors import ERA_DIGITS, SchemaMismatchError
from routing.config import UNSTORABLE

logger = logging.getLogger(__name__)

LEDGER_UNREACHABLE = (OperationalError, InterfaceError, PoolTimeoutError)
"""The ledger is down or restarting, or every connection of this process is busy."""
WORK_CHANNEL = "pointsman_work"
"""NOTIFY channel that wakes the dispatcher."""
_WAKE = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify('{WORK_CHANNEL}', '')"
_WAKES = "wakes_dispatcher"
_CURSOR, _INPUT = "cursor", "input"
"""What a pooled connection keeps: to make a cursor takes as long as to use it."""


def wake_dispatcher(session: Session) -> None:
    """Wake the dispatcher once the transaction of `Ledger.begin` has committed."""
    session.info[_WAKES] = True


@unique
class AdvisoryLock(IntEnum):
    """Keys of the database's advisory locks: what only one process does at a time, in any cell."""

    MIGRATION = 7_041_776
    EVENT_FOLD = 7_041_777
    AUDIT = 7_041_778
    TENANT_ROWS = 7_041_779
    PARTITIONS = 7_041_780
    DIRECTORY = 7_041_781


@dataclass(frozen=True)
class Statement:
    """A statement with psycopg's placeholders, `%(name)s`. Its text never changes, so the server keeps its plan."""

    sql: str
    values: Mapping[str, Any] | None = None
    """Defaults for the values of a run: the gateway passes a statement and its values to its event loop as one."""

    def all(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Run it in a session's transaction or on a connection, and return its rows as named tuples.

        The session is not flushed first: the statement does not see pending changes of its objects.

        Raises:
            DBAPIError: as SQLAlchemy raises it; the message names no parameters.
        """
        connection = where.connection() if isinstance(where, Session) else where
        pooled = connection.connection
        driver: Any = pooled.driver_connection
        values = self.values if values is None else values
        try:
            if (cursor := pooled.info.get(_CURSOR)) is None:
                cursor = pooled.info[_CURSOR] = driver.cursor(row_factory=namedtuple_row)
            # Listeners that count or explain SQLAlchemy's statements hear of this one, too.
            connection.dispatch.before_cursor_execute(connection, cursor, self.sql, values, None, False)
            cursor.execute(self.sql, values)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._as_dbapi_error(error, connection, is_lost=driver.closed) from error

    def one(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first row, or None."""
        rows = self.all(where, values)
        return rows[0] if rows else None

    def scalar(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None."""
        row = self.one(where, values)
        return None if row is None else row[0]

    def scalars(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the first column of every row."""
        return [row[0] for row in self.all(where, values)]

    def _as_dbapi_error(self, error: psycopg.Error, connection: Connection, *, is_lost: bool) -> BaseException:
        if is_lost:
            connection.invalidate(error)
        facts: dict[str, Any] = {"hide_parameters": True, "connection_invalidated": is_lost}
        raised: BaseException = DBAPIError.instance(
            self.sql, None, error, psycopg.Error, dialect=connection.dialect, **facts
        )
        return raised


CLOSED_TENANTS = r"""
    ARRAY(SELECT unnest(array_remove(string_to_array(encode(tgargs, 'escape'), '\000'), '')) FROM pg_trigger
           WHERE tgname = 'pointsman_closed_insert' AND tgrelid = 'tenant'::regclass)
"""
"""SQL for the tenants that nobody may write here (`cells.tenant_rows`)."""
OF_OPEN_TENANTS = f"coalesce(tenant <> ALL ({CLOSED_TENANTS}), true)"
"""Leaves closed tenants' rows out of a batch of all tenants' oldest: they would be that again and again.

`coalesce` keeps the planner from an estimate: of one tenant or two it expects next to no row to be left, and sorts all.
"""


def now() -> ColumnElement[datetime]:
    """Return the database's clock when the statement runs."""
    return func.clock_timestamp()


def after(seconds: float) -> ColumnElement[datetime]:
    """Return the database's clock, `seconds` from now."""
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def moment(seconds: float = 0.0) -> ColumnElement[datetime]:
    """Return the database's clock, or `seconds` later, read once per statement: for conditions on a time column.

    `now()` would be read for every row, so that no index on the column could be used.
    """
    return select(after(seconds) if seconds else now()).scalar_subquery()


def set_persisted(row: SQLModel, **columns: Any) -> None:
    """Set attributes that a statement has already written, so that the session does not write them again."""
    for name, value in columns.items():
        set_committed_value(row, name, value)


def storable(text: str) -> str:
    """Return `text` with NUL and lone surrogates, which PostgreSQL cannot store, replaced by U+FFFD.

    Models and callers can write both; neither may stop a job.
    """
    return UNSTORABLE.sub("\ufffd", text)


def dump_json(value: Any) -> str:
    """Serialize to JSON that `jsonb` accepts; ids and times become text."""
    text = _encode(value)
    if "\\u0000" in text or "\\ud" in text:
        text = _encode(_storable_value(value))
    return text


_encode = json.JSONEncoder(default=str).encode


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
"""A writer that hangs in a transaction holds back the metrics and the audit seals."""
IDLE_SESSION_TIMEOUT_MS = 60_000
"""A pooled connection that nobody used for so long is closed by the server; `_check_alive` sees that."""
SESSION: Mapping[str, str] = MappingProxyType(
    {
        "statement_timeout": f"{STATEMENT_TIMEOUT_MS // 1000}s",
        "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_TIMEOUT_MS // 1000}s",
        "TimeZone": "UTC",
    }
)
"""What every session has, as `SHOW` gives it."""
SILENCE: Mapping[str, int] = MappingProxyType(
    {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 20_000}
)
"""libpq notices a server that vanished silently within 20 to 25 s instead of a quarter of an hour."""
SILENT_CLIENT = (
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3 -c tcp_user_timeout=14000"
)
"""The server frees the locks of a client that vanished silently after 14 s, before its lease runs out. By default it
would keep them for two hours."""


def create_ledger_engine(
    url: str, *, pooler_url: str = "", pool_size: int = 4, application: str = "pointsman"
) -> Engine:
    """Return an engine for a `postgresql://` URL. Its errors name no values: those are prompts, answers and hashes.

    Args:
        url: the ledger's URL.
        pooler_url: the URL of a pooler in transaction mode that is used instead; empty for none. A statement finds any
            of its connections, so the limits of a session are the pooler's to set (compose/pgbouncer.ini) and no
            statement is prepared.
        pool_size: connections kept open, of as many again and four at least; 0 opens one for each transaction (for a
            process that forks).
        application: the name that the database shows for these connections.

    Raises:
        ArgumentError: the operator's fault: a URL is none of PostgreSQL's.
    """
    driver_url = (pooler_url or url).replace("postgresql://", "postgresql+psycopg://", 1)
    if not driver_url.startswith("postgresql+psycopg://"):
        raise ArgumentError("a ledger's URL begins with postgresql://")
    connect_args: dict[str, Any] = {"application_name": application, "connect_timeout": 5, **SILENCE}
    if pooler_url:
        connect_args["prepare_threshold"] = None
    else:
        limits = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        idle = f"-c idle_session_timeout={IDLE_SESSION_TIMEOUT_MS}" if pool_size else ""
        connect_args["options"] = f"{limits} {SILENT_CLIENT} {idle}"
    # The connection used last is used next, so that those of a busy hour are closed when it is over.
    pool: dict[str, Any] = {"pool_size": pool_size, "max_overflow": max(3, pool_size), "pool_use_lifo": True}
    engine = create_engine(
        driver_url,
        connect_args=connect_args,
        json_serializer=dump_json,
        hide_parameters=True,
        use_native_hstore=False,  # costs a query on each engine's first connection
        **(pool if pool_size else {"poolclass": NullPool}),
    )
    event.listen(engine, "checkout", _check_alive)
    return engine


def _check_alive(connection: psycopg.Connection, place: ManagesConnection, *_: object) -> None:
    """Check a pooled connection for input that arrived while it was idle.

    A server that went away has closed its end, which shows without a round trip for each transaction.
    """
    try:
        if (waiting := place.info.get(_INPUT)) is None:
            waiting = place.info[_INPUT] = poll()
            waiting.register(connection.fileno(), POLLIN)
        if waiting.poll(0):
            connection.execute("SELECT 1")
            connection.rollback()
    except psycopg.Error as error:
        raise InvalidatePoolError from error


class Ledger:
    """A connection to the ledger, created after a fork and closed by its owner."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._looking = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._idle: list[Connection] = []
        self._most_idle = engine.pool.size() if isinstance(engine.pool, QueuePool) else 0

    @contextmanager
    def begin(self) -> Iterator[Session]:
        """Open a transaction: committed when the block ends, rolled back when it raises."""
        with Session(self.engine, expire_on_commit=False) as session:
            with session.begin():
                yield session
            if session.info.get(_WAKES):
                self.wake_dispatcher()

    def wake_dispatcher(self) -> None:
        """Notify in a transaction of its own: NOTIFY holds a lock of the whole cluster until its commit is on disk."""
        try:
            with self.look() as connection:
                Statement(_WAKE).all(connection)
        except LEDGER_UNREACHABLE:
            logger.info("dispatcher_not_woken")  # its next tick finds the work

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """Open a connection on which each statement commits by itself, without the round trips of a transaction.

        Up to half of the pool's connections stay as they are for the next look: to take one out of the pool and to put
        it back costs more than to send a statement.
        """
        connection, is_kept = self._take(), False
        try:
            yield connection
            is_kept = len(self._idle) < self._most_idle  # not after an error, which may have cut a statement off
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.close()

    def _take(self) -> Connection:
        with suppress(IndexError):
            while connection := self._idle.pop():
                try:
                    pooled = connection.connection
                    _check_alive(cast("psycopg.Connection", pooled.driver_connection), pooled)
                    return connection
                except InvalidatePoolError:
                    connection.invalidate()
                    connection.close()
        return self._looking.connect()

    def close(self) -> None:
        """Close every connection."""
        while self._idle:
            self._idle.pop().close()
        self.engine.dispose()


SCRIPTS = Path(__file__).parent / "migrations"
SCHEMA_WAIT_SECONDS = 60.0
"""How long a process that was started before `pointsman migrate` waits for it."""
_SCHEMA_POLL_SECONDS = 1.0


class Fit(StrEnum):
    """How a ledger's schema compares with the one that this version was made for."""

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    """Of the same era: it has everything this version needs, and more."""
    FOREIGN = "foreign"
    """Of another era: what this version needs may be gone, or not be there yet."""


def fit_of(found: str | None, wanted: str) -> Fit:
    """Return how a ledger at revision `found` (None when empty) fits a version made for `wanted`."""
    if found == wanted:
        return Fit.CURRENT
    if found is None:
        return Fit.OLDER
    if found[:ERA_DIGITS] != wanted[:ERA_DIGITS]:
        return Fit.FOREIGN
    return Fit.OLDER if found < wanted else Fit.NEWER


def wanted_revision() -> str:
    """Return the newest revision that this version knows."""
    return max(path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*_*.py"))


def found_revision(engine: Engine) -> str | None:
    """Return the revision of a ledger; None when it has no schema."""
    try:
        with engine.connect() as connection:
            revision: str | None = Statement("SELECT version_num FROM alembic_version").scalar(connection)
            return revision
    except ProgrammingError:
        return None


def fit(engine: Engine) -> Fit:
    """Return how a ledger's schema fits this version."""
    return fit_of(found_revision(engine), wanted_revision())


def serves(engine: Engine) -> bool:
    """Whether this version can work on a ledger: its schema is current or newer within the era."""
    return fit(engine) in (Fit.CURRENT, Fit.NEWER)


def await_schema(
    ledger_url: str, *, patience_seconds: float = SCHEMA_WAIT_SECONDS, pause: Callable[[float], None] = time.sleep
) -> None:
    """Wait, at the start of a process, until a ledger has a schema that this version can work on.

    An unreachable ledger is not a mismatch: this returns, and the process waits for it in its own way.

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
