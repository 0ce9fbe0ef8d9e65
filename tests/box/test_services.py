"""Services beside a box: what a project's tests need is walled as the box is, ready before it, and ends with it."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ledger.store import Ledger, create_ledger_engine
from routing.policy.services import OfferedService, ProjectService, Service, services_of
from sandbox.docker.box import DockerBox, DockerMaker
from sandbox.docker.engine import Engine
from sandbox.errors import SandboxStartupError, SandboxUnavailableError, ServiceFailedError
from sandbox.execution import Clocks
from sandbox.pool import Reaper, build_maker
from sites.content_store import ContentStore
from tests.box.service_images import OFFERS, build_service_images
from tests.box.test_leftovers import ROOT, standing
from tests.engine import INTERNET, METADATA, Listener, TestEngine
from tests.factories import Shop
from tests.integration.runs.step_world import Done, StepYard, policy_with_file_remotes
from tests.outside_mirror import python_file_hosts
from tests.services import Postgres
from workers.boxes import open_engine_pool
from workers.lifecycle import Resources

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

CLOCKS = Clocks(soft_seconds=60, hard_seconds=70, grace_seconds=2)
MIRROR_PORT = 8114


@pytest.fixture(scope="module", autouse=True)
def images(daemon: TestEngine) -> None:
    build_service_images(daemon)


def asked(offers: dict[str, OfferedService] = OFFERS, **services: Any) -> tuple[Service, ...]:
    return services_of({name: ProjectService.model_validate(fields) for name, fields in services.items()}, offers)


DB, CACHE = {"image": "postgresql", "env": {"POSTGRES_DB": "shop"}}, {"image": "redis"}


def say(box: DockerBox, line: str) -> str:
    done = box.run(("bash", "-c", line), clocks=CLOCKS)
    return (done.stdout + done.stderr).decode().strip()


@pytest.fixture
def roomy(daemon: TestEngine, engine: Engine, gateway: Listener, mirror: Listener) -> DockerMaker:
    return build_maker(daemon.config(memory_mib=640, processes=128), engine)


def test_services_are_ready_under_their_names_before_the_box_and_gone_with_it(
    roomy: DockerMaker, engine: Engine
) -> None:
    in_database = "psql -h 127.0.0.1 -U postgres -d shop -c 'SELECT 1'"
    box = roomy.create(asked(db={**DB, "ready": in_database}, cache=CACHE))
    try:
        assert standing(engine) == {"container": 4, "network": 1, "volume": 3}
        assert say(box, "exec 3<>/dev/tcp/cache/6379; printf 'PING\\r\\n' >&3; head -1 <&3") == "+PONG"
        assert say(box, "exec 3<>/dev/tcp/db/5432 && echo open") == "open"
        box.check_services(watch=lambda: None)
    finally:
        box.close()
    assert standing(engine) == {}


@pytest.fixture
def with_cache(roomy: DockerMaker) -> Iterator[DockerBox]:
    box = roomy.create(asked(cache=CACHE))
    yield box
    box.close()


def inspected(engine: Engine, box: DockerBox, name: str = "service-cache") -> Any:
    return engine.client.api.inspect_container(f"pointsman-{engine.install}-{box.id}-{name}")


@pytest.mark.threat("B1", "B2")
def test_a_service_is_walled_as_its_box_is_and_counts_for_it(
    engine: Engine, roomy: DockerMaker, with_cache: DockerBox, outside: Listener
) -> None:
    found, own = inspected(engine, with_cache), inspected(engine, with_cache, "box")
    for part in ("SecurityOpt", "CapDrop", "ReadonlyRootfs", "NetworkMode", "IpcMode", "Privileged", "MaskedPaths"):
        assert found["HostConfig"][part] == own["HostConfig"][part], part
    assert found["Config"]["User"] == own["Config"]["User"] != "0:0"
    limits = roomy.spec.limits
    assert found["HostConfig"]["Memory"] + own["HostConfig"]["Memory"] == limits.memory_bytes
    assert found["HostConfig"]["NanoCpus"] + own["HostConfig"]["NanoCpus"] == limits.cpus * 1e9
    assert found["HostConfig"]["PidsLimit"] + own["HostConfig"]["PidsLimit"] == limits.processes

    def inside(line: str) -> str:
        made = engine.client.api.exec_create(found["Id"], ["timeout", "10", "bash", "-c", line])
        return engine.client.api.exec_start(made["Id"]).decode()

    assert "Read-only file system" in inside("touch /opt/x")
    assert inside("df --output=fstype /data | tail -1").strip() == "tmpfs"
    assert "denied" in inside("ulimit -c; mount -t tmpfs x /mnt || echo denied")
    before = len(outside.requests())
    for host in (INTERNET, METADATA, "172.17.0.1"):
        assert "reached" not in inside(f"exec 3<>/dev/tcp/{host}/8000 && echo reached"), host
    assert outside.requests()[before:] == []


@pytest.mark.threat("A13")
def test_services_of_a_killed_worker_are_swept_with_its_box(daemon: TestEngine, engine: Engine) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.box.worker", daemon.url, engine.install, "cache"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "working\n"
        assert Reaper(engine).sweep().total == 0
        assert standing(engine)["container"] == 5, "box, service and forwarder, and a spare with its own"
        worker.send_signal(signal.SIGKILL)
    Reaper(engine).sweep()
    assert standing(engine) == {}


SHUTDOWN = "exec 3<>/dev/tcp/cache/6379; echo 'SHUTDOWN NOSAVE' >&3; cat <&3; false"


def test_a_service_that_is_still_ending_has_ended(roomy: DockerMaker, engine: Engine) -> None:
    lingering = b'FROM test-redis\nENTRYPOINT ["bash", "-c", "/opt/valkey-server --protected-mode no; sleep 1; exit 3"]'
    engine.client.images.build(fileobj=io.BytesIO(lingering), tag="test-lingering", rm=True)
    offers = {"redis": OFFERS["redis"].model_copy(update={"image": "test-lingering"})}
    box = roomy.create(asked(offers, cache=CACHE))
    try:
        say(box, SHUTDOWN)
        with pytest.raises(ServiceFailedError, match=r"service cache \(redis\) ended with status 3"):
            box.check_services(watch=lambda: None)
    finally:
        box.close()


def failure(maker: DockerMaker, engine: Engine, services: tuple[Service, ...]) -> str:
    with pytest.raises(ServiceFailedError) as caught:
        maker.create(services)
    assert standing(engine) == {}
    return str(caught.value)


def test_a_service_that_ends_is_named_with_its_last_words_but_no_password(roomy: DockerMaker, engine: Engine) -> None:
    said = failure(roomy, engine, asked(db={**DB, "env": {"PGPORT": "password=hunter22"}}))

    assert "service db (postgresql) ended with status 1" in said
    assert "invalid value for parameter" in said
    assert "hunter22" not in said


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"port": 6380}, "port 6380 does not answer"), ({"ready": "false"}, "`false` fails"), ({"ready": "sleep 60"}, "")],
)
def test_a_service_that_does_not_get_ready_is_waited_for_no_longer_than_it_may_take(
    roomy: DockerMaker, engine: Engine, fields: dict[str, Any], why: str
) -> None:
    offers = {"redis": OFFERS["redis"].model_copy(update={"ready_seconds": 1.0})}
    said = failure(roomy, engine, asked(offers, cache={**CACHE, **fields}))

    assert "service cache (redis) was not ready within 1 s" in said
    assert why in said
    assert "Ready to accept connections" in said


@pytest.mark.timeout(40, func_only=True)  # a line that hangs may take `ready_seconds`, a minute here
@pytest.mark.parametrize("fields", [{"port": 1}, {"ready": "sleep 60"}])
def test_who_waits_for_a_service_can_be_interrupted(roomy: DockerMaker, engine: Engine, fields: dict[str, Any]) -> None:
    waited = count()

    def interrupt() -> None:
        if next(waited) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        roomy.create(asked(cache={**CACHE, **fields}), watch=interrupt)
    assert standing(engine) == {}


@pytest.mark.threat("A14", "A15")
def test_a_service_that_would_write_to_disk_or_take_too_much_is_never_started(
    roomy: DockerMaker, engine: Engine
) -> None:
    (service,) = asked(cache=CACHE)
    with pytest.raises(SandboxStartupError, match=r"service cache \(redis\): Mounts are .*/data"):
        roomy.create([replace(service, data=())])
    with pytest.raises(SandboxUnavailableError, match="more than half of its memory"):
        roomy.create([replace(service, memory_bytes=roomy.spec.limits.memory_bytes)])
    with pytest.raises(SandboxUnavailableError, match=r"no none:none; `docker pull` it for service cache \(redis\)"):
        roomy.create([replace(service, image="none:none")])
    assert standing(engine) == {}


SETTINGS = """
stack: {language: python, database: postgresql}
services:
  db: {image: postgresql, env: {POSTGRES_DB: shop}, ready: "psql -h 127.0.0.1 -U postgres -d shop -c 'SELECT 1'"}
  cache: {image: redis}
commands:
  setup: python -m venv .venv && .venv/bin/pip install --quiet pytest redis 'psycopg[binary]'
  test: DATABASE_URL=postgresql://postgres@db/shop .venv/bin/python -m pytest -q
"""
FILES = {
    "pyproject.toml": b"[project]\nname = 'shop'\nversion = '1'\n",
    "tests/test_shop.py": b"""import os

import psycopg
import redis


def test_an_order_is_stored():
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("CREATE TABLE orders (cents int)")
        connection.execute("INSERT INTO orders VALUES (115)")
        assert connection.execute("SELECT sum(cents) FROM orders").fetchone() == (115,)


def test_a_basket_is_counted():
    assert redis.Redis("cache").incr("basket") == 2
""",
}


def step_with(settings: str, daemon: TestEngine, postgres: Postgres, home: Path, *packages: str) -> Done:
    hosts = python_file_hosts(*packages) if packages else set()
    if packages and not hosts:
        assert not os.environ.get("CI"), "pip names no index of packages"
        pytest.skip("pip names no index of packages")
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        if packages:
            daemon.serve_mirror(stack, MIRROR_PORT, ledger_url=url, cache=home / "packages", python_files=hosts)
            daemon.await_ports(MIRROR_PORT)
        ledger = Ledger(create_ledger_engine(url, pool_size=2))
        stack.callback(ledger.close)
        size = {"memory_mib": 1280, "workspace_mib": 256, "workspace_files": 20_000, "processes": 128}
        pool = open_engine_pool(daemon.config(mirror_port=MIRROR_PORT, warm=0, **size))
        stack.callback(pool.close)
        policy = policy_with_file_remotes()
        policy = policy.model_copy(update={"runs": policy.runs.model_copy(update={"services": OFFERS})})
        shop = Shop(ledger, url=url, policy=policy)
        shop.tenant(provider="fake")
        resources = Resources(
            ledger=ledger,
            content_store=ContentStore(home / "content-store"),
            policy=shop.policy,
            gateway_url="",
            worker="w1",
            boxes=pool,
            environment={"PATH": os.defpath},
            runs=StepYard.runs_config(home),
        )
        return StepYard(shop, resources, home, files=FILES, settings=settings).do(None, "Check it")


def test_a_python_project_is_set_up_from_the_mirror_and_tested_with_its_database_and_cache_in_a_step(
    daemon: TestEngine, engine: Engine, postgres: Postgres, tmp_path: Path
) -> None:
    done = step_with(SETTINGS, daemon, postgres, tmp_path, "pytest", "redis", "psycopg")

    (found,) = done.result["issues"]
    assert "1 failed, 1 passed" in found["detail"], found
    assert (found.get("file"), found.get("line")) == ("tests/test_shop.py", 15), found
    assert done.changes() == {}, "neither packages nor caches are part of the project"
    assert standing(engine) == {}


def test_a_service_that_ends_in_the_middle_of_a_step_is_what_the_step_fails_for(
    daemon: TestEngine, engine: Engine, postgres: Postgres, tmp_path: Path
) -> None:
    settings = f'stack: {{language: python}}\nservices: {{cache: {{image: redis}}}}\ncommands: {{test: "{SHUTDOWN}"}}\n'
    done = step_with(settings, daemon, postgres, tmp_path)

    assert (done.job.state, done.job.reason) == ("failed", "service_failed"), done.job.detail
    assert "service cache (redis) ended with status 0" in (done.job.detail or "")
    assert "bye bye" in (done.job.detail or "")
    assert standing(engine) == {}
