"""The doctor beside real faults: each is named, with what to do about it."""

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from redis import Redis
from sqlalchemy import text
from typer.testing import CliRunner

from ledger import audit
from ledger.audit import newest_head, seal
from ledger.operations.activity import oldest_transaction, read_blockers, read_connections
from ledger.operations.leaders import CELERY_INTAKE, DISPATCHER, lead
from ledger.operations.workers import WorkerStatus, record_heartbeat
from ledger.store import Ledger
from monitoring.exporter import ExporterApp
from producers import doctor
from producers.bootstrap import Installation, Settings
from producers.cli import app
from producers.diagnosis import LIMIT_SECONDS, Finding, examine
from routing.config import read_settings
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from sites.content_store import ContentStore
from sites.ownership import adopt
from tests.factories import Shop
from tests.http_server import Handler, served
from tests.integration.jobs.test_lifecycle import Rig
from tests.services import Postgres, Valkey, wait_until
from tests.well import well_gateway

KEY = "the key of the seals"


@contextmanager
def installed(**settings: object) -> Iterator[Installation]:
    environment = {"POINTSMAN_AUDIT__SIGNING_KEY": KEY} | {
        f"POINTSMAN_{name.upper()}": str(value) for name, value in settings.items()
    }
    installation = Installation(read_settings(Settings, environment))
    try:
        yield installation
    finally:
        installation.close()


def by_name(findings: Any) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def verdicts(findings: Any) -> dict[str, str]:
    return {finding.name: finding.verdict.value for finding in findings}


def test_a_ledger_that_is_away_is_all_that_is_said_of_it() -> None:
    with installed(ledger__url="postgresql://nobody@127.0.0.1:1/none") as installation:
        (finding,) = doctor.check_ledger(installation)
    assert (finding.name, finding.verdict.value) == ("ledger", "FAIL")
    assert "POINTSMAN_LEDGER__URL" in finding.seen


@pytest.mark.parametrize("url", ["mysql://x@y/z", "nonsense", "postgresql+asyncpg://x@y/z"])
def test_a_url_that_is_no_ledger_s_is_named(url: str) -> None:
    with installed(ledger__url=url) as installation:
        (finding,) = doctor.check_ledger(installation)
    assert (finding.verdict.value, "POINTSMAN_LEDGER__URL is no URL" in finding.seen) == ("FAIL", True)


def test_a_ledger_that_nobody_migrated_says_what_to_run(postgres: Postgres) -> None:
    with postgres.database(template="template1") as url, installed(ledger__url=url) as installation:
        (finding,) = doctor.check_ledger(installation)
    assert finding.verdict.value == "FAIL"
    assert "pointsman migrate" in finding.hint


def test_a_fleet_whose_dispatcher_is_gone_and_whose_chain_was_cut(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    with installed(ledger__url=ledger_url, audit__head_path=tmp_path / "head") as installation:
        before = verdicts(doctor.check_ledger(installation))
        assert {name for name, verdict in before.items() if verdict == "FAIL"} == {
            "dispatcher",
            "Celery intake",
            "workers",
        }
        with ledger.begin() as session:
            for role in (DISPATCHER, CELERY_INTAKE):
                assert lead(session, role, "one", seconds=30)
            queues = tuple(queue.value for queue in QueueName if queue is not QueueName.UNROUTED)
            record_heartbeat(session, WorkerStatus(id="w", host="h", pid=1, queues=queues, slots=2))
        for number in range(3):
            with ledger.begin() as session:
                audit.append(session, "key_created", actor="test", number=number)
            with ledger.begin() as session:
                assert seal(session, signing_key=KEY.encode(), patience_seconds=2) is not None
                installation.audit_heads.keep(newest_head(session))
        well = verdicts(doctor.check_ledger(installation))
        assert {name for name, verdict in well.items() if verdict != "OK"} == set()
        with ledger.begin() as session:
            session.execute(text("UPDATE audit_seal SET rows = rows + 1 WHERE number = 3"))
        edited = by_name(doctor.check_ledger(installation))["audit chain"]
        assert (edited.verdict.value, "edited" in edited.seen) == ("FAIL", True)
        with ledger.begin() as session:
            session.execute(text("DELETE FROM audit_seal WHERE number = 3"))
        cut = by_name(doctor.check_ledger(installation))["audit chain"]
        assert (cut.verdict.value, "kept head 3:" in cut.seen) == ("FAIL", True)
    with installed(ledger__url=ledger_url, audit__signing_key="") as keyless:
        assert verdicts(doctor.check_ledger(keyless))["audit key"] == "WARN"


def test_a_broker_that_may_drop_messages_and_one_that_is_away(tmp_path: Path) -> None:
    with Valkey(tmp_path) as server, installed(broker__url=server.url) as installation:
        assert verdicts(doctor.check_broker(installation)) == {
            "broker": "OK",
            "broker keeps messages": "OK",
            "broker persistence": "WARN",
        }
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            client.config_set("save", "3600 1")
        found = by_name(doctor.check_broker(installation))
        assert found["broker keeps messages"].verdict.value == "FAIL"
        assert "noeviction" in found["broker keeps messages"].hint
        assert found["broker persistence"].verdict.value == "OK"
    with installed(broker__url=server.url) as installation:
        assert verdicts(doctor.check_broker(installation)) == {"broker": "FAIL"}


def test_a_broker_over_its_memory_limit_is_not_well(tmp_path: Path) -> None:
    with Valkey(tmp_path) as server, installed(broker__url=server.url) as installation:
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory", 1)
            assert client.dbsize() == 0
        found = by_name(doctor.check_broker(installation))["broker"]
        assert found.verdict.value == "FAIL", found
        assert "maxmemory" in found.seen + found.hint


def test_a_transaction_that_hangs_and_whom_it_blocks_are_named_by_pid(ledger: Ledger, ledger_url: str) -> None:
    with installed(ledger__url=ledger_url) as installation, ledger.engine.connect() as hanging:
        hanging.execute(text("SET idle_in_transaction_session_timeout = 0"))
        hanging.execute(text("LOCK TABLE worker"))
        pid = hanging.execute(text("SELECT pg_backend_pid()")).scalar_one()
        with ThreadPoolExecutor(1) as pool, ledger.engine.connect() as waiting:
            waits = pool.submit(waiting.execute, text("SELECT count(*) FROM worker"))
            with ledger.begin() as session:
                (blocker,) = wait_until(lambda: read_blockers(session), seconds=10, what="it waits")
                oldest = oldest_transaction(session)
                connections = read_connections(session)
            assert (blocker.pid, blocker.waiting) == (pid, 1)
            assert oldest is not None
            assert (oldest.pid, oldest.state) == (pid, "idle in transaction")
            assert 3 <= connections.used < connections.most
            assert verdicts(doctor.check_sessions(installation))["ledger connections"] == "OK"
            hanging.rollback()
            waits.result(10)


def test_exhausted_connections_are_said_in_the_server_s_own_words(postgres: Postgres, ledger_url: str) -> None:
    with installed(ledger__url=ledger_url.replace("postgres:@", "stranger:@")) as installation:
        with psycopg.connect(ledger_url, autocommit=True) as admin:
            admin.execute("CREATE ROLE stranger LOGIN CONNECTION LIMIT 0")
            try:
                (found,) = doctor.check_ledger(installation)
            finally:
                admin.execute("DROP ROLE stranger")
        assert list(doctor.check_sessions(installation)) == []
    assert found.verdict.value == "FAIL"
    assert "too many connections for role" in found.seen
    assert "max_connections" in found.hint
    assert "start it" not in found.hint


def test_callbacks_that_nobody_took_are_told(shop: Shop) -> None:
    ids = [shop.accept(tier=None) for _ in range(3)]
    for job_id, next_at in zip(ids, ("now()", "now()", "NULL"), strict=True):
        shop.execute(
            "INSERT INTO notification (job_id, callback_url, payload, attempts, next_at, created_at)"
            f" VALUES (:id, 'https://receiver.example', '{{}}', 1, {next_at}, now() - interval '5 minutes')",
            id=job_id,
        )
    shop.execute("UPDATE notification SET created_at = now() WHERE job_id = :id", id=ids[1])
    shop.execute(
        "INSERT INTO delivery (job_id, number, outcome, detail, seconds) VALUES (:id, 1, 'x', '', 0)", id=ids[2]
    )
    with installed(ledger__url=shop.url) as installation:
        found = by_name(doctor.check_ledger(installation))["webhooks"]
    assert (found.verdict.value, found.seen) == ("WARN", "1 are late, 1 were given up within a day")


def test_a_slow_gateway_is_not_well() -> None:
    class Slow(Handler):
        def answer(self) -> None:
            time.sleep(0.7)
            self.say(b'{"service": "pointsman-gateway"}')

    with served(Slow) as url:  # whose keys are in its own environment, as they should be
        (finding,) = doctor.check_gateway(url, {"POINTSMAN_GATEWAY__PORT": "1"})
    assert (finding.name, finding.verdict.value) == ("gateway", "WARN")
    assert ", in " in finding.seen


def test_everything_that_hangs_at_once_costs_what_two_asks_of_one_check_may(ledger_url: str, tmp_path: Path) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nsleep 30\n")
    npm.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as hole:
        port = hole.getsockname()[1]
        silent = {"broker__url": f"redis://127.0.0.1:{port}/0", "exporter__port": port, "mirror__npm": npm}
        silent |= {"worker__gateway_url": f"http://127.0.0.1:{port}", "ledger__url": ledger_url}
        with installed(**silent) as installation:
            checks = doctor.checks_of(installation, {"POINTSMAN_BOX__ENGINE": f"tcp://127.0.0.1:{port}"})
            began = time.monotonic()
            found = verdicts(examine(checks))
            assert time.monotonic() - began < LIMIT_SECONDS + 1
    assert found["content store disk"] == "OK"
    assert found["broker"] in ("FAIL", "WARN")
    assert {found[name] for name in ("gateway", "exporter", "package registry", "box engine")} == {"WARN"}


def test_a_den_that_cannot_be_written_to_or_cannot_link(tmp_path: Path) -> None:
    with installed(content_store__root=tmp_path / "content-store") as installation:
        assert verdicts(doctor.check_files(installation))["content store"] == "WARN"
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "content-store").mkdir()
        assert verdicts(doctor.check_files(installation))["content store"] == "OK"
        assert list((tmp_path / "content-store").iterdir()) == []
    (tmp_path / "file").write_text("")
    with installed(content_store__root=tmp_path / "file") as installation:
        assert installation.audit_heads.newest() is None, "it is the store's finding, and hides none of the ledger"
    for root in (tmp_path / "file", tmp_path / "file" / "content-store", Path("/proc/den"), Path("/sys")):
        with installed(content_store__root=root) as installation:
            (finding,) = doctor.check_files(installation)
            assert (finding.name, finding.verdict.value) == ("content store", "FAIL")
            assert str(root) in finding.seen


def test_a_content_store_without_this_ledger_s_files_is_named(shop: Shop, tmp_path: Path) -> None:
    rig = Rig(shop, ContentStore(tmp_path / "own"))
    rig.site()
    adopt(shop.ledger, rig.content_store)
    (tmp_path / "empty").mkdir()
    ContentStore(tmp_path / "other").blobs.own("another")
    for name, verdict in (("own", "OK"), ("other", "FAIL"), ("empty", "FAIL")):
        with installed(content_store__root=tmp_path / name, ledger__url=shop.url) as installation:
            found = by_name(doctor.check_ledger(installation))["files of live sites"]
            assert found.verdict.value == verdict, found
    assert list((tmp_path / "empty").iterdir()) == []


def test_workspaces_that_could_not_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with installed(runs__root=tmp_path / "runs") as installation:
        assert verdicts(doctor.check_workspaces(installation)) == {"workspaces": "OK"}
    assert not (tmp_path / "runs").exists()
    for root in (tmp_path / "file", tmp_path / "file" / "runs", Path("/proc/runs")):
        with installed(runs__root=root) as installation:
            (finding,) = doctor.check_workspaces(installation)
            assert (finding.verdict.value, str(root) in finding.seen) == ("WARN", True)


def test_connections_in_the_clear_over_a_network_are_named() -> None:
    urls = {"ledger__url": "postgresql://db.example/p", "broker__url": "redis://broker.example/0"}
    urls |= {"content_store__url": "s3://bucket", "content_store__options": '{"endpoint": "http://s3.example"}'}
    with installed(**urls) as installation:
        assert verdicts(doctor.check_transport(installation)) == {
            "broker over TLS": "FAIL",
            "content store over TLS": "FAIL",
            "ledger over TLS": "FAIL",
        }
    with installed() as installation:
        assert list(doctor.check_transport(installation)) == []


def test_an_exporter_is_asked_how_far_it_is_behind(ledger: Ledger) -> None:
    import uvicorn

    from tests.threads import serve_in_thread

    app = ExporterApp(ledger, platform_policy())
    with (
        serve_in_thread(uvicorn.Config(app, lifespan="off", log_config=None), name="exporter") as url,
        installed(exporter__port=url.rpartition(":")[2]) as installation,
    ):
        (finding,) = doctor.check_exporter(installation)
        assert (finding.name, finding.verdict.value) == ("exporter", "OK"), finding
    with installed(exporter__port=1) as installation:
        (finding,) = doctor.check_exporter(installation)
        assert finding.verdict.value == "WARN"


def test_a_gateway_that_accepts_and_says_nothing_costs_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        url = f"http://127.0.0.1:{hole.getsockname()[1]}"
        (finding,) = doctor.check_gateway(url, {"POINTSMAN_WORKER__GATEWAY_URL": url})
    assert (finding.name, finding.verdict.value) == ("gateway", "FAIL")


def test_another_server_is_neither_gateway_nor_exporter() -> None:
    with well_gateway() as url:
        with installed(exporter__port=urlsplit(url).port) as installation:
            (exporter,) = doctor.check_exporter(installation)
        (gateway,) = doctor.check_gateway(url, {"POINTSMAN_WORKER__GATEWAY_URL": url})
    assert (gateway.verdict.value, gateway.seen) == ("FAIL", f"what answers at {url} is no gateway")
    assert (exporter.verdict.value, "is no exporter" in exporter.seen) == ("WARN", True)


def test_what_speaks_something_else_than_http_is_no_gateway() -> None:
    def babble() -> None:
        caller, _ = server.accept()
        with caller:
            caller.recv(1000)
            caller.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(babble)
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        (finding,) = doctor.check_gateway(url, {"POINTSMAN_WORKER__GATEWAY_URL": url})
    assert (finding.name, finding.verdict.value) == ("gateway", "FAIL")


def test_an_exporter_is_asked_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(doctor, "_get", asked.append)
    for host in ("0.0.0.0", "::", "fd00::7", "10.0.0.7"):
        with installed(exporter__host=host, exporter__port=9108) as installation:
            list(doctor.check_exporter(installation))
    assert asked == [f"http://{place}:9108/metrics" for place in ("127.0.0.1", "[::1]", "[fd00::7]", "10.0.0.7")]


def test_a_box_setting_that_cannot_be_read_is_a_finding_like_any_other(ledger_url: str) -> None:
    wrong = {"POINTSMAN_LEDGER__URL": ledger_url, "POINTSMAN_BOX__SUBNETS": "ten", "POINTSMAN_MIRROR__NPM": "no-npm"}
    done = CliRunner().invoke(app, ["doctor", "--json"], env=wrong)
    findings = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert (done.exit_code, findings["sandboxes"]["verdict"]) == (1, "FAIL")
    assert "POINTSMAN_BOX__SUBNETS" in findings["sandboxes"]["seen"]
    assert findings["package registry"]["verdict"] == "WARN", "what comes beside it is looked at all the same"


@pytest.mark.parametrize("url", ["no-url", "http://127.0.0.1:1", "http://[::1"])
def test_a_gateway_that_is_not_there_names_the_setting_and_fails_where_it_is_set(url: str) -> None:
    (unset,), (given,) = (
        doctor.check_gateway(url, environment) for environment in ({}, {"POINTSMAN_WORKER__GATEWAY_URL": url})
    )
    assert (unset.verdict.value, given.verdict.value) == ("WARN", "FAIL")
    assert all("POINTSMAN_WORKER__GATEWAY_URL" in finding.hint for finding in (unset, given))
