"""Bring a ledger to the current schema, once, however many processes ask for it, while older ones work on it.

Each statement waits only briefly for its lock, since whatever stands in line for a table holds up everybody behind it;
a migration that did not get one steps back and comes again. Each of its operations can be done twice, so that it also
goes on where another try, or a crash, left it.

Scripts stay as Alembic writes them. An index on a table that was there before is built and dropped without keeping
writers out, outside of any transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from alembic.operations import Operations, ops
from alembic.runtime.migration import MigrationContext
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import Column, Table

from ledger.errors import LedgerBusyError, SchemaMismatchError
from ledger.sql import Statement
from ledger.store import SCRIPTS, Fit, fit_of, found_revision, wanted_revision

logger = logging.getLogger(__name__)

MIGRATION_WAIT_SECONDS = 120.0
"""How long a migration tries to get its locks, or waits for another one."""
_PAUSE_SECONDS = 0.5
_LOCK_KEY = 7_041_776
"""PostgreSQL advisory lock: migrations run one at a time."""

LOCK_TIMEOUT_MS = 2_000
"""How long a change of a table stands in line for it: others wait behind it."""
_NEW_TABLES = "pointsman_new_tables"


def _new_tables(context: MigrationContext) -> set[str]:
    """Return the tables that this migration has made: nobody works on them yet."""
    made: set[str] = context.opts.setdefault(_NEW_TABLES, set())
    return made


_HALF_BUILT = Statement("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%(name)s) AND NOT indisvalid")


@Operations.implementation_for(ops.CreateTableOp, replace=True)
def create_table(operations: Operations, operation: ops.CreateTableOp) -> Table:
    """Make a table, unless an earlier try did."""
    table = operation.to_table(operations.migration_context)
    operations.impl.create_table(table, if_not_exists=True)  # type: ignore[call-arg]
    _new_tables(operations.migration_context).add(table.name)
    return table


@Operations.implementation_for(ops.AddColumnOp, replace=True)
def add_column(operations: Operations, operation: ops.AddColumnOp) -> None:
    """Add a column, unless an earlier try did."""
    column: Column[object] = operation.column
    operations.impl.add_column(operation.table_name, column, if_not_exists=True)


@Operations.implementation_for(ops.CreateIndexOp, replace=True)
def create_index(operations: Operations, operation: ops.CreateIndexOp) -> None:
    """Build an index: at once on a new table, beside its writers on any other."""
    context = operations.migration_context
    if operation.table_name in _new_tables(context):
        operations.impl.create_index(operation.to_index(context), if_not_exists=True)
        return
    operation.kw["postgresql_concurrently"] = True
    index = operation.to_index(context)
    with _beside_writers(operations):
        _drop_half_built(operations, str(index.name))
        operations.impl.create_index(index, if_not_exists=True)


@Operations.implementation_for(ops.DropIndexOp, replace=True)
def drop_index(operations: Operations, operation: ops.DropIndexOp) -> None:
    """Drop an index beside those who use its table."""
    operation.kw["postgresql_concurrently"] = True
    with _beside_writers(operations):
        operations.impl.drop_index(operation.to_index(operations.migration_context), if_exists=True)


@contextmanager
def _beside_writers(operations: Operations) -> Iterator[None]:
    """Work outside of any transaction, and wait for as long as it takes: this way keeps nobody out meanwhile."""
    with operations.migration_context.autocommit_block():
        operations.execute("SET lock_timeout = 0")
        yield
        operations.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")


def _drop_half_built(operations: Operations, name: str) -> None:
    """Remove what a build that was broken off left behind: such an index costs every write and serves no read."""
    connection = operations.get_bind()
    if _HALF_BUILT.all(connection, {"name": f'"{name}"'}):
        operations.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')


def migrate(engine: Engine, *, to: str = "", patience_seconds: float = MIGRATION_WAIT_SECONDS) -> None:
    """Upgrade the ledger's schema; does nothing when it is there already, or newer.

    Args:
        engine: the ledger.
        to: the revision, empty for the newest.
        patience_seconds: how long to try.

    Raises:
        SchemaMismatchError: the operator's fault: the ledger is of another era.
        LedgerBusyError: nobody's fault: it stayed busy; nothing is half done that the next try does not complete.
    """
    deadline = time.monotonic() + patience_seconds
    with _alone(engine, deadline=deadline) as connection:
        found, wanted = found_revision(engine), to or wanted_revision()
        match fit_of(found, wanted):
            case Fit.FOREIGN:
                raise SchemaMismatchError(found, wanted)
            case Fit.OLDER:
                _upgrade(connection, wanted, deadline=deadline)


@contextmanager
def _alone(engine: Engine, *, deadline: float) -> Iterator[Connection]:
    """Give a connection for one migration at a time.

    The lock is asked for again and again: whoever waited for it in one statement would hold a snapshot, and building an
    index beside others waits for every old snapshot.
    """
    with engine.connect() as connection:
        try:
            while not connection.exec_driver_sql("SELECT pg_try_advisory_lock(%(key)s)", {"key": _LOCK_KEY}).scalar():
                connection.commit()
                _wait(deadline)
            for setting in ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0"):
                connection.exec_driver_sql(f"SET {setting}")
            connection.commit()
            yield connection
        finally:
            connection.invalidate()  # neither the lock nor the settings may come back to the pool


def _upgrade(connection: Connection, to: str, *, deadline: float) -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = connection
    while True:
        connection.exec_driver_sql(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        connection.commit()
        try:
            command.upgrade(config, to)
            connection.commit()
            return
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable | DeadlockDetected):
                raise
            logger.warning("migration_waits_for_a_lock")
        connection.rollback()
        _wait(deadline)


def _wait(deadline: float) -> None:
    if time.monotonic() >= deadline:
        raise LedgerBusyError
    time.sleep(_PAUSE_SECONDS)
