"""The twenty ways in which long, dear tasks go wrong on Celery and Redis (docs/pitfalls.md), each by its number.

Number 6 is in test_stopping.py, 12's boxes are in tests/box, and intake's half of 7 in test_celery_intake.py.
One worker serves most tests; its visibility timeout is one second, so whatever that can do would show. What needs no
worker runs in CI; the others start and kill processes for minutes, and run in `make chaos ONLY=long`.
"""

import ast
import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
from celery.exceptions import QueueNotFound
from redis import Redis

from ledger.dispatch_window import Push
from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from ledger.store import Ledger
from monitoring.heartbeat import is_well
from producers.dispatch.broker import Publisher
from producers.errors import PublishError
from producers.local.embedded import WORKERS
from routing.broker import SETTINGS, TRANSPORT_OPTIONS, build_queues, create_app, list_of
from routing.policy.platform import platform_policy
from routing.queues import QUEUES, QueueName
from tests.bait import Bait
from tests.factories import Shop
from tests.integration.workers.worker_world import Proxy, Worker, World
from tests.services import Valkey, wait_until
from workers.errors import SoftTimeLimit

ROOT = Path(__file__).parents[3]
HEARTBEAT = "heartbeat"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pitfalls")


@pytest.fixture(scope="module")
def standing(module_ledger: tuple[Ledger, str], valkey: Valkey, home: Path) -> Iterator[World]:
    """A world with one worker of one pool child, for all tests that leave it as it was."""
    valkey.flush()
    made = World(Shop(module_ledger[0], url=module_ledger[1]), valkey, home)
    limits = {"worker__max_memory_kib_per_child": 300 * 1024, "worker__most_memory_kib_per_child": 1024 * 1024}
    made.start("answer", worker__heartbeat=home / HEARTBEAT, **limits)
    yield made
    made.stop()


@pytest.fixture
def world(standing: World, shop: Shop) -> Iterator[World]:
    standing.policy_changes = {"answer": {"soft_seconds": 14, "hard_seconds": 18}}
    with standing.dispatching():
        yield standing


@pytest.fixture
def unmanned(shop: Shop, valkey: Valkey, home: Path) -> Iterator[World]:
    """A world with a dispatcher alone: what it pushes stays where it is."""
    made = World(shop, valkey, home)
    with made.dispatching():
        yield made


@pytest.fixture
def worker(world: World) -> Worker:
    return world.workers[0]


def unacked(broker: Redis) -> int:
    names = broker.keys("*unacked*")
    assert isinstance(names, list)
    return sum(broker.hlen(name) for name in names if broker.type(name) == "hash")  # type: ignore[misc]


def standing_of(broker: Any, job_id: UUID) -> int:
    return sum(message["headers"]["id"] == f"{job_id}/0" for message in messages(broker, "answer"))


def messages(broker: Any, name: str) -> list[dict[str, Any]]:
    return [json.loads(body) for body in broker.lrange(name, 0, -1)]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_01_and_09_a_job_far_longer_than_the_visibility_timeout_runs_once_and_its_worker_holds_nothing_else(
    world: World, worker: Worker
) -> None:
    long, waiting = world.ask("nap 4"), None
    world.running(worker, "nap 4")
    with world.broker() as broker:
        waiting = world.ask("nap 0.01")
        wait_until(lambda: standing_of(broker, waiting), seconds=10, what="the second message stands")
        time.sleep(2)
        assert (standing_of(broker, waiting), unacked(broker)) == (1, 0)
    assert world.ended(long).state == world.ended(waiting).state == "answered"
    assert len(worker.started("nap 4")) == 1


def test_02_the_keys_of_unacknowledged_messages_are_our_own_and_no_message_of_the_fleet_s_is_ever_in_them() -> None:
    names = {TRANSPORT_OPTIONS[name] for name in ("unacked_key", "unacked_index_key", "unacked_mutex_key")}
    assert len(names) == 3
    assert all(name.startswith("pointsman:") for name in names)
    assert "visibility_timeout" not in TRANSPORT_OPTIONS
    assert all(queue.no_ack for queue in build_queues())
    assert SETTINGS["task_acks_late"] is False


@pytest.mark.long
@pytest.mark.timeout(300)
def test_03_and_04_a_host_s_death_costs_a_lease_though_its_message_was_acked_and_clocks_differ(world: World) -> None:
    """The host that takes over lives ten minutes ahead: leases are of the ledger's clock."""
    faketime = shutil.which("faketime")
    if faketime is None:
        pytest.skip("needs Debian's package faketime: `make test SYSTEM=1` installs it")
    world.start("tools", prefix=(faketime, "-f", "+10m"))
    with world.broker() as broker:
        assert broker.llen("tools") == unacked(broker) == 0
    job_id = world.ask("nap 0", queue=QueueName.TOOLS, is_pushed=True)
    world.shop.claim(job_id, worker="a host that dies now")
    world.shop.execute("UPDATE attempt SET lease_until = now() + interval '1 second' WHERE ended_at IS NULL")
    job = world.ended(job_id, seconds=60)
    assert (job.state, job.lost_attempts) == ("answered", 1)
    assert world.attempts(job_id) == [("lost", "worker_lost"), ("answered", "done")]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_05_a_job_that_kills_its_worker_each_time_ends_after_a_few_and_the_worker_goes_on(
    world: World, worker: Worker
) -> None:
    job = world.ended(world.ask("die"), seconds=60)
    assert (job.state, job.reason, job.detail) == ("failed", "worker_lost", "its worker died 2 times")
    assert len(worker.started("die")) == world.policy.attempts.max_lost == 2
    assert world.ended(world.ask("nap 0")).state == "answered"


def test_07_a_message_that_is_popped_and_lost_is_pushed_again(unmanned: World) -> None:
    job_id = unmanned.ask("date", queue=QueueName.PATCH)
    with unmanned.broker() as broker:
        first = wait_until(lambda: broker.rpop("patch"), seconds=10, what="it is pushed")
        again = wait_until(lambda: broker.lindex("patch", 0), seconds=10, what="it is pushed again")
        broker.delete("patch")
    assert json.loads(str(first))["headers"]["id"] == json.loads(str(again))["headers"]["id"] == f"{job_id}/0"


@pytest.mark.long
@pytest.mark.timeout(400)
def test_08_a_worker_outlives_a_silent_and_a_restarted_broker_and_then_reads_its_own_queue_alone(
    shop: Shop, tmp_path: Path
) -> None:
    broker = Valkey(tmp_path)
    with broker:
        proxy = Proxy(int(broker.url.split(":")[2].split("/")[0]))
        world = World(shop, broker, tmp_path)
        try:
            worker = world.start("answer", broker__url=proxy.url, worker__heartbeat=tmp_path / HEARTBEAT)
            with world.dispatching():
                assert world.ended(world.ask("nap 0")).state == "answered"
                proxy.freeze()
                stuck = world.ask("nap 0.1")
                time.sleep(3)
                proxy.thaw()
                assert world.ended(stuck, seconds=60).state == "answered"
                broker.__exit__(None, None, None)
                lost = world.ask("nap 0.2")
                broker.__enter__()
                assert world.ended(lost, seconds=60).state == "answered"
                foreign = world.ask("date", queue=QueueName.TOOLS)
                wait_until(lambda: world.broker().llen("tools"), seconds=10, what="a message for others stands")
                assert world.ended(world.ask("nap 0.3"), seconds=60).state == "answered"
                assert world.broker().llen("tools") == 1
                assert world.attempts(foreign) == []
            wait_until(lambda: is_well(tmp_path / HEARTBEAT), seconds=20, what="it says that it is well")
            assert worker.process.poll() is None
        finally:
            world.stop()
            proxy.close()


def test_08_a_worker_that_is_killed_or_stuck_is_seen_to_be_silent(tmp_path: Path) -> None:
    path = tmp_path / HEARTBEAT
    assert not is_well(path)
    path.write_text(f"{time.monotonic() - 40}\n")
    assert not is_well(path)
    path.write_text(f"{time.monotonic() + 1000}\n")  # of another start of the machine
    assert not is_well(path)
    path.write_text(f"{time.monotonic()}\n")
    assert is_well(path)
    path.write_text("")
    assert not is_well(path)


def calls(names: frozenset[str]) -> list[str]:
    """Where the product calls a method, or gives a keyword argument, of one of these names."""
    found = []
    for package in ("routing", "monitoring", "sandbox", "workers", "producers"):
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text()
            if not any(name in source for name in names):
                continue
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call):
                    used = {keyword.arg for keyword in node.keywords}
                    used |= {node.func.attr} if isinstance(node.func, ast.Attribute) else set()
                    found += [f"{path.name}:{node.lineno} {name}" for name in names & used]
    return found


def test_10_nothing_waits_in_a_worker_s_memory_no_message_has_an_eta_no_task_retries_itself(
    unmanned: World,
) -> None:
    used = calls(
        frozenset({"apply_async", "countdown", "retry_backoff", "autoretry_for", "crontab", "add_periodic_task"})
    )
    assert used == []
    unmanned.ask("date", queue=QueueName.PATCH)
    with unmanned.broker() as broker:
        (message,) = wait_until(lambda: messages(broker, "patch"), seconds=10, what="it is pushed")
        broker.delete("patch")
    assert (message["headers"]["eta"], message["headers"]["expires"], message["headers"]["retries"]) == (None, None, 0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_11_12_and_13_a_job_that_ignores_its_limit_is_killed_with_its_children_and_shows_in_every_record(
    world: World, worker: Worker
) -> None:
    assert not issubclass(SoftTimeLimit, Exception)
    job_id = world.ask("stubborn 100")
    job = world.ended(job_id, seconds=60)
    assert (job.state, job.reason) == ("timed_out", "time_limit")
    grandchild = int(worker.said.rpartition("grandchild ")[2].split()[0])
    wait_until(lambda: not psutil.pid_exists(grandchild), seconds=10, what="the grandchild is dead")
    (ended,) = world.shop.rows("SELECT data FROM event WHERE job_id = :id AND kind = 'attempt_ended'", id=job_id)
    assert (ended[0]["outcome"], ended[0]["reason"]) == ("lost", "time_limit")
    assert ended[0]["seconds"] >= 2
    assert world.ended(world.ask("nap 0")).state == "answered"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_14_a_cancel_is_a_row_it_outlives_whoever_was_told_and_reaches_a_running_job(
    world: World, worker: Worker
) -> None:
    running = world.ask("heed 8")
    world.running(worker, "heed 8")
    waiting = world.ask("nap 9")
    for job_id in (running, waiting):
        with world.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="test")
    with world.broker() as broker:
        broker.flushall()
    assert world.ended(running).state == world.ended(waiting).state == "cancelled"
    assert worker.started("nap 9") == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_15_no_worker_listens_to_broadcasts_so_there_is_no_reply_queue_to_leak(world: World, worker: Worker) -> None:
    assert SETTINGS["worker_enable_remote_control"] is False
    world.ended(world.ask("nap 0"))
    with world.broker() as broker:
        keys = set(map(str, broker.keys("*")))  # type: ignore[arg-type]
        assert not [key for key in keys if "pidbox" in key or "celeryev" in key]
        others = {key for key in keys if not key.startswith(("_kombu.binding", "pointsman:"))}
        assert others <= {list_of(queue) for queue in QueueName}
        assert (broker.pubsub_channels(), broker.pubsub_numpat()) == ([], 0), "kombu's fan-out subscribes to patterns"


def test_16_a_message_is_small_whatever_was_asked_says_nothing_of_it_and_leaves_no_result(unmanned: World) -> None:
    secret = "a secret plan " * 2000
    unmanned.ask(secret, queue=QueueName.PATCH)
    with unmanned.broker() as broker:
        raw = wait_until(lambda: broker.lindex("patch", 0), seconds=10, what="it is pushed")
        broker.delete("patch")
        assert broker.keys("celery-task-meta-*") == []
    message = json.loads(str(raw))
    assert len(str(raw)) < 2048
    assert "secret" not in str(raw) + base64.b64decode(message["body"]).decode()
    assert (message["headers"]["argsrepr"], message["headers"]["kwargsrepr"]) == ("-", "-")
    assert SETTINGS["task_ignore_result"]
    assert not SETTINGS["task_store_errors_even_if_ignored"]


def test_17_a_lost_binding_loses_no_message_and_what_has_no_place_is_kept(unmanned: World) -> None:
    with unmanned.broker() as broker:
        broker.delete(*(list(broker.keys("_kombu.binding*")) or ["none"]))  # type: ignore[arg-type]
        unmanned.ask("date", queue=QueueName.PATCH)
        wait_until(lambda: broker.llen("patch") == 1, seconds=10, what="it is pushed all the same")
        broker.delete("patch")
        assert broker.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert TRANSPORT_OPTIONS["deadletter_queue"] == "unrouted"


@pytest.mark.timeout(120)
def test_18_a_broker_that_takes_and_never_answers_costs_seconds_once_and_then_nothing(
    valkey: Valkey, broker_url: str
) -> None:
    proxy = Proxy(int(valkey.url.split(":")[2].split("/")[0]))
    now = [0.0]
    publisher = Publisher(create_app(proxy.url), clock=lambda: now[0])
    limits = platform_policy().queues[QueueName.TOOLS]

    def push() -> float:
        began = time.monotonic()
        try:
            publisher.push_all([(Push(uuid4(), 0, QueueName.TOOLS, "acme"), limits)])
        except PublishError:
            return time.monotonic() - began
        return 0.0

    assert push() == 0
    proxy.freeze()
    assert 0 < push() < 12
    assert 0 < push() < 0.5
    proxy.thaw()
    now[0] += 3
    assert push() == 0
    proxy.close()
    assert SETTINGS["broker_pool_acquire_timeout"] <= 5
    assert not TRANSPORT_OPTIONS.get("retry_on_timeout")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_19_a_typo_makes_no_queue_an_unknown_task_is_kept_and_urgency_needs_no_second_list(
    world: World, worker: Worker
) -> None:
    app = create_app(world.valkey.url)
    with pytest.raises(QueueNotFound):
        app.send_task("pointsman.answer", queue="anwser")
    app.send_task("pointsman.anwser", queue="answer", kwargs={"kept": "yes"})
    app.close()
    with world.broker() as broker:
        (kept,) = wait_until(lambda: messages(broker, "unrouted"), seconds=20, what="the message is kept")
        assert kept["headers"]["task"] == "pointsman.anwser"
        assert json.loads(base64.b64decode(kept["body"]))[1] == {"kept": "yes"}
        broker.delete("unrouted")
        for priority in ("P0", "P3"):
            world.ask("date", queue=QueueName.PATCH, priority=priority)
        found = wait_until(
            lambda: len(messages(broker, "patch")) == 2 and messages(broker, "patch"), seconds=10, what="both"
        )
        assert {message["properties"]["priority"] for message in found} == {0}
        broker.delete("patch")
    served = {queue for queues in WORKERS.values() for queue in queues}
    assert served == {queue.value for queue in QUEUES}
    assert len({queue.name for queue in build_queues()}) == len(QueueName)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_20_pickle_is_refused_a_swollen_child_is_replaced_and_a_runaway_fails_alone(
    world: World, worker: Worker, tmp_path: Path
) -> None:
    bait = Bait(tmp_path, task="pointsman.answer", queue="answer")
    with world.broker() as broker:
        broker.lpush("answer", bait.raw)
        wait_until(lambda: broker.llen("answer") == 0, seconds=20, what="the worker has taken it")
    wait_until(lambda: "ContentDisallowed" in worker.said, seconds=20, what="the worker says why it refused")
    assert world.ended(world.ask("hog 250")).state == "answered"
    (swollen,) = worker.started("hog 250")
    assert not bait.trace.exists()
    wait_until(lambda: not psutil.pid_exists(swollen), seconds=20, what="the child is replaced")
    runaway = world.ended(world.ask("swell"), seconds=60)
    assert (runaway.state, runaway.reason) == ("failed", "internal_error")
    assert world.ended(world.ask("nap 0")).state == "answered"
    assert worker.process.poll() is None
    assert bait.springs(world.valkey.url), "the same message does harm where pickle is accepted"
