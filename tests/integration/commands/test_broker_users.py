"""The fleet under the broker's own access rules: everything works, and a tenant reaches nothing but its own source."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import Celery
from pydantic import SecretStr
from redis import Redis
from redis.exceptions import NoPermissionError

from ledger.cells.directory import CellRecord
from ledger.dispatch_window import Push
from ledger.tables import Job
from monitoring.gauges import read_broker
from monitoring.metrics import Reading
from producers.cells.intake import Forwarder
from producers.config import DispatcherConfig
from producers.dispatch.broker import BrokerLists, Publisher
from producers.dispatch.dispatcher import Dispatcher
from producers.intake.celery_intake import CeleryIntake, IntakeLists
from producers.intake.submit import Submitter
from producers.local.supervisor import free_port
from routing.broker import create_app, fleet_users, tenant_user
from routing.config import CellSecrets
from routing.queues import QueueName
from tests.directories import new_directory
from tests.factories import Shop
from tests.services import Postgres, Valkey, wait_until

TENANTS = ("acme", "other", "acme-x3")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A broker with the users of the fleet and of two tenants; each one's password is its name."""
    directory = tmp_path_factory.mktemp("guarded")
    users = [*fleet_users(), *map(tenant_user, TENANTS)]
    lines = [user.line(hashlib.sha256(user.name.encode()).hexdigest()) for user in users]
    lines += ["user admin reset on >admin ~* &* +@all", "user default reset off"]
    (directory / "users.acl").write_text("".join(f"{line}\n" for line in lines))
    with Valkey(directory, "--aclfile", str(directory / "users.acl"), login="admin:admin") as server:
        yield server


def url_of(guarded: Valkey, user: str) -> str:
    return guarded.url_for(f"pointsman-{user}:pointsman-{user}")


class Fleet:
    """A dispatcher with its intake_user in this process; workers are processes of their own."""

    def __init__(self, shop: Shop, guarded: Valkey, directory: Path) -> None:
        self.shop = shop
        self.guarded = guarded
        url = url_of(guarded, "dispatcher")
        publisher = Publisher(create_app(url))
        self.submitter = Submitter(shop.ledger, publisher, shop.policy)
        self.lists = IntakeLists(url)
        self.source = CeleryIntake(self.lists, shop.ledger, self.submitter, holder="test")
        self.dispatcher = Dispatcher(
            shop.ledger,
            publisher,
            BrokerLists(url),
            policy=shop.policy,
            config=DispatcherConfig(),
            holder="test",
            signing_key=b"key",
        )
        self.environment = {
            **os.environ,
            "POINTSMAN_LEDGER__URL": shop.url,
            "POINTSMAN_BROKER__URL": url_of(guarded, "worker"),
            "POINTSMAN_CONTENT_STORE__ROOT": str(directory / "content-store"),
        }

    def turn(self) -> None:
        self.source.submit_waiting()
        self.lists.wait(0.05)
        self.dispatcher.run_once()

    def ended(self, job_id: UUID) -> Job:
        def look() -> Job | None:
            self.turn()
            assert denied(self.guarded) == []
            job: Job | None = self.shop.find(Job, job_id)
            return job if job is not None and job.ended_at is not None else None

        return wait_until(look, seconds=300, what="the job has ended")


@pytest.fixture
def fleet(shop: Shop, guarded: Valkey, tmp_path: Path) -> Iterator[Fleet]:
    with Redis.from_url(guarded.url) as admin:
        admin.flushall()
        admin.acl_log_reset()
    shop.tenant("other")
    made = Fleet(shop, guarded, tmp_path)
    yield made
    made.lists.close()


def send(guarded: Valkey, source: str, /, *, queue: str = "", **kwargs: Any) -> UUID:
    """Submit as any Celery client does."""
    task_id = uuid4()
    client = Celery(broker=url_of(guarded, f"tenant-{source}"), set_as_current=False)
    client.send_task("pointsman.submit", kwargs=kwargs, task_id=str(task_id), queue=queue or f"intake.{source}")
    client.close()
    return task_id


def denied(guarded: Valkey) -> list[Any]:
    with Redis.from_url(guarded.url) as admin:
        return [(found["username"], found["reason"], found["object"]) for found in admin.acl_log()]


@pytest.mark.slow
@pytest.mark.timeout(400)  # a busy machine takes a minute to start a worker
def test_a_job_comes_in_on_its_tenants_queue_and_ends_with_every_program_under_its_own_rules(
    fleet: Fleet, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "workers.main", "intake", "tools", "control", "--concurrency", "1"]
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(argv, env=fleet.environment, stdout=log, stderr=log)
    try:
        job = fleet.ended(send(fleet.guarded, "acme", prompt="pwd"))
        strange = fleet.ended(send(fleet.guarded, "acme", prompt="pwd", tenant="other"))
        own = fleet.ended(send(fleet.guarded, "other", prompt="pwd", tenant="other"))
    finally:
        worker.terminate()
        worker.wait(30)
    assert (job.tenant, job.source, job.state) == ("acme", "celery", "answered")
    assert (own.tenant, own.state) == ("other", "answered")
    assert (strange.tenant, strange.state) == ("acme", "rejected")
    assert strange.result["errors"][0]["field"] == "tenant"
    assert denied(fleet.guarded) == []


def test_the_api_pushes_and_the_doctor_looks_with_their_own_rules(fleet: Fleet) -> None:
    publisher = Publisher(create_app(url_of(fleet.guarded, "api")))
    limits = fleet.shop.policy.queues[QueueName.TOOLS]
    publisher.push_all([(Push(uuid4(), 1, QueueName.TOOLS, "acme"), limits)])
    with Redis.from_url(url_of(fleet.guarded, "doctor")) as doctor:
        assert doctor.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert denied(fleet.guarded) == []


FORBIDDEN: dict[str, Callable[[Redis], Any]] = {
    "push to the shared queue": lambda client: client.lpush("intake", "x"),
    "push to a tier's queue": lambda client: client.lpush("agent", "x"),
    "push to another tenant's source": lambda client: client.lpush("intake.other", "x"),
    "push to the source of a tenant with a name that goes on": lambda client: client.lpush("intake.acme-x3", "x"),
    "read the own source": lambda client: client.lrange("intake.acme", 0, -1),
    "take from the own source": lambda client: client.rpop("intake.acme"),
    "read another's source": lambda client: client.lrange("intake.other", 0, -1),
    "delete the own source": lambda client: client.delete("intake.acme"),
    "list keys": lambda client: client.keys(),
    "scan keys": lambda client: client.scan(),
    "read the configuration": lambda client: client.config_get("*"),
    "see other clients": lambda client: client.client_list(),
    "read the users": lambda client: client.acl_list(),
    "watch everybody": lambda client: client.execute_command("MONITOR"),
    "run a script": lambda client: client.eval("return 1", 0),
    "hear what is published": lambda client: client.execute_command("SUBSCRIBE", "/0.celery.pidbox"),
    "tell workers what to do": lambda client: client.publish("/0.celery.pidbox", "{}"),
    "read unacknowledged messages": lambda client: client.hgetall("unacked"),
    "empty the broker": lambda client: client.flushall(),
    "stop the broker": lambda client: client.execute_command("SHUTDOWN"),
    "copy the broker": lambda client: client.execute_command("SYNC"),
    "move lists": lambda client: client.lmove("intake.acme", "agent"),
}


@pytest.mark.parametrize("deed", FORBIDDEN)
def test_a_tenant_cannot(guarded: Valkey, deed: str) -> None:
    with Redis.from_url(url_of(guarded, "tenant-acme")) as client:
        assert client.lpush("intake.acme", "x")
        with pytest.raises(NoPermissionError):
            FORBIDDEN[deed](client)


def test_nobody_of_the_fleet_can_do_more_than_its_work(guarded: Valkey) -> None:
    for user in ("api", "dispatcher", "worker", "exporter", "doctor"):
        with Redis.from_url(url_of(guarded, user)) as client:
            for deed in ("list keys", "read the users", "watch everybody", "empty the broker", "stop the broker"):
                with pytest.raises(NoPermissionError):
                    FORBIDDEN[deed](client)
    with Redis.from_url(url_of(guarded, "api")) as api, pytest.raises(NoPermissionError):
        api.rpop("tools")


def test_a_dispatcher_hands_messages_to_another_cell_with_its_own_rules(guarded: Valkey, postgres: Postgres) -> None:
    broker_url = url_of(guarded, "dispatcher")
    secrets = {"east": CellSecrets(broker=SecretStr("pointsman-dispatcher"))}
    with new_directory(postgres, secrets) as (_, directory):
        directory.add_cell(CellRecord("east", "", "", broker_url, "", "{}"))
        directory.claim("acme", cell="east")
        with (
            closing(Forwarder(directory, cell="west", broker_url=broker_url, tls={})) as forwarder,
            Redis.from_url(guarded.url) as admin,
        ):
            admin.flushall()
            assert forwarder("acme", "intake.acme", b"{}")
            forwarder.hand_over()
            assert admin.rpop("intake.acme") == b"{}"
            forwarder.hand_over()
            assert admin.keys() == []


def test_the_exporter_reads_memory_and_lengths_with_its_own_rules(guarded: Valkey) -> None:
    with Redis.from_url(guarded.url) as admin:
        admin.flushall()
        admin.lpush("unrouted", "x", "y")
        admin.lpush("intake", "z")
    with Redis.from_url(url_of(guarded, "exporter")) as broker:
        found = {(reading.name, *reading.labels): reading.value for reading in read_broker(broker)}
        with pytest.raises(NoPermissionError):
            broker.lrange("unrouted", 0, 1)
    assert found["broker_up",] == 1
    assert found["broker_messages", "unrouted"] == 2
    assert found["broker_messages", "celery_intake"] == 1
    assert found["broker_messages", "spec"] == 0
    assert found["broker_memory_used_bytes",] > 100_000
    assert found["broker_clients",] >= 1


def test_a_broker_that_does_not_answer_is_told_as_such() -> None:
    with Redis.from_url(f"redis://127.0.0.1:{free_port()}/0") as broker:
        assert read_broker(broker) == [Reading("broker_up", (), 0)]


def test_at_a_closed_shared_queue_nobody_is_taken_in(shop: Shop, broker_url: str) -> None:
    lists = IntakeLists(broker_url)
    submitter = Submitter(shop.ledger, Publisher(create_app(broker_url)), shop.policy)
    source = CeleryIntake(lists, shop.ledger, submitter, holder="test", is_shared=False)
    ids = {queue: uuid4() for queue in ("intake", "intake.acme")}
    client = Celery(broker=broker_url, set_as_current=False)
    for queue, task_id in ids.items():
        client.send_task(
            "pointsman.submit", kwargs={"tenant": "acme", "prompt": "pwd"}, task_id=str(task_id), queue=queue
        )
    client.close()
    source.submit_waiting()
    assert [shop.find(Job, ids[queue]) is not None for queue in ids] == [False, True]
    assert lists.look(["acme"]) == []
    lists.close()


def test_a_tenant_that_fills_its_queue_holds_up_nobody_else_and_fills_nothing_else(shop: Shop, broker_url: str) -> None:
    shop.tenant("other")
    lists = IntakeLists(broker_url)
    submitter = Submitter(shop.ledger, Publisher(create_app(broker_url)), shop.policy)
    source = CeleryIntake(lists, shop.ledger, submitter, holder="test")
    with Redis.from_url(broker_url) as client:
        client.lpush("intake.acme", *(b"[" * 100 for _ in range(200)), b"x" * 2_000_000)
        sender = Celery(broker=broker_url, set_as_current=False)
        job_id = uuid4()
        sender.send_task("pointsman.submit", kwargs={"prompt": "pwd"}, task_id=str(job_id), queue="intake.other")
        sender.close()
        source.submit_waiting()
        assert shop.job(job_id).tenant == "other"
        while source.submit_waiting():
            pass
        assert (client.llen("intake.acme"), client.llen("unrouted")) == (0, 0)
    refusals = shop.rows("SELECT tenant FROM audit WHERE action = 'job_refused'")
    assert {tenant for (tenant,) in refusals} == {"acme"}
    lists.close()
