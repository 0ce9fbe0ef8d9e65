"""A real PgBouncer in transaction mode, as compose/pgbouncer.ini sets it up, between the fleet and its ledger."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from psycopg.rows import dict_row

from ledger.operations.activity import read_session
from ledger.operations.partitions import tend
from ledger.store import SESSION, Ledger, create_ledger_engine
from monitoring.event_metrics import fold_pending
from producers.diagnosis import Verdict, judge_session
from producers.local.supervisor import free_port
from tests.factories import Shop
from tests.integration.workers.worker_world import World
from tests.services import Postgres, Valkey, memory, wait_until

SAMPLE = Path(__file__).parents[3] / "compose" / "pgbouncer.ini"
SERVERS = 2
"""Connections to PostgreSQL that everybody shares."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="no pgbouncer here; `make test SYSTEM=1` installs it"),
]


class PgBouncer:
    """The sample's PgBouncer before a test's database, on a port of its own, without passwords."""

    def __init__(self, home: Path, url: str, *, connect_query: str | None = None) -> None:
        parts, self._port = urlsplit(url), free_port()
        ini = ConfigParser(interpolation=None)
        ini.read(SAMPLE)
        limits = connect_query or ini["databases"]["pointsman"].partition(" connect_query=")[2]
        host = parse_qs(parts.query)["host"][0]
        self._owner = Path(host).owner()
        ini["databases"] = {"pointsman": f"host={host} dbname={parts.path[1:]} user=postgres connect_query={limits}"}
        mine = {"listen_addr": "127.0.0.1", "listen_port": self._port, "auth_type": "any", "admin_users": "postgres"}
        mine |= {"default_pool_size": SERVERS, "unix_socket_dir": "", "logfile": home / "pgbouncer.log"}
        ini["pgbouncer"].pop("auth_file")
        ini["pgbouncer"].update({name: str(value) for name, value in mine.items()})
        self._ini = home / "pgbouncer.ini"
        with self._ini.open("w") as file:
            ini.write(file)
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/pointsman"

    def start(self) -> None:
        as_user = ["-u", self._owner] if os.geteuid() == 0 else []  # it refuses to be root
        self._process = subprocess.Popen(["pgbouncer", "-q", *as_user, str(self._ini)], stderr=subprocess.DEVNULL)
        wait_until(self._answers, seconds=10, what="PgBouncer answers")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._home / "pgbouncer.log").read_text()
        try:
            return bool(self.show("VERSION"))
        except psycopg.OperationalError:
            return False

    def show(self, what: str) -> list[dict[str, object]]:
        admin = self.url.replace("/pointsman", "/pgbouncer")
        with closing(psycopg.connect(admin, autocommit=True, row_factory=dict_row)) as connection:
            return connection.execute(f"SHOW {what}".encode()).fetchall()

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)


@contextmanager
def pgbouncer(url: str, *, connect_query: str | None = None) -> Iterator[PgBouncer]:
    home = Path(tempfile.mkdtemp(prefix="pointsman-pgbouncer-", dir=memory()))
    home.chmod(0o777)  # as root it runs as another user
    made = PgBouncer(home, url, connect_query=connect_query)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(home)


def session_behind(pooler: PgBouncer) -> dict[str, str]:
    with closing(Ledger(create_ledger_engine("", pooler_url=pooler.url))) as ledger, ledger.look() as connection:
        return read_session(connection)


def test_sessions_have_the_limits_that_the_sample_sets_and_doctor_misses_them_without(shop: Shop) -> None:
    with pgbouncer(shop.url) as pooler:
        session = session_behind(pooler)
        assert session == SESSION
        assert judge_session(session).verdict is Verdict.OK
    with pgbouncer(shop.url, connect_query="'SELECT 1'") as bare:
        found = judge_session(session_behind(bare))
    assert found.verdict is Verdict.FAIL
    assert "statement_timeout=10s" in found.seen


def test_partitions_are_made_and_dropped_behind_it(postgres: Postgres) -> None:
    with postgres.database() as url, pgbouncer(url) as pooler, closing(Ledger(create_ledger_engine(url))) as ledger:
        shop = Shop(ledger, url=url)
        shop.execute("INSERT INTO event (kind, data, at) VALUES ('fenced', '{}', now() - interval '9 days')")
        fold_pending(ledger)
        mark = int(shop.scalar("SELECT xid FROM rollup_mark"))
        with closing(Ledger(create_ledger_engine("", pooler_url=pooler.url))) as pooled:
            assert tend(pooled, keep_seconds=8 * 86_400, mark=mark) == 1
        assert shop.rows("SELECT * FROM event") == []


def test_workers_of_many_connections_share_two_and_lose_nothing_when_the_pooler_dies(
    shop: Shop, valkey: Valkey, tmp_path: Path
) -> None:
    valkey.flush()
    world = World(shop, valkey, tmp_path)
    with pgbouncer(shop.url) as pooler, world.dispatching(pooler_url=pooler.url):
        try:
            for pool in ("prefork", "dense"):
                world.start("answer", ready=False, concurrency=3, pool=pool, ledger__pooler_url=pooler.url)
            before = [world.ask(f"nap 0.2 {number}") for number in range(12)]
            world.ended(before[0])
            pooler.stop()
            after = [world.ask(f"nap 0.2 {number}") for number in range(12, 24)]
            pooler.start()
            jobs = [world.ended(job_id, seconds=60) for job_id in before + after]
            (shared,) = [row for row in pooler.show("POOLS") if row["database"] == "pointsman"]
        finally:
            world.stop()
    assert {job.state for job in jobs} == {"answered"}
    assert [world.attempts(job.id)[-1][0] for job in jobs] == ["answered"] * 24
    assert int(str(shared["sv_active"])) + int(str(shared["sv_idle"])) <= SERVERS
    assert int(str(shared["cl_active"])) > SERVERS
