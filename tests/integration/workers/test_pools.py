"""The limits of a job hold in either pool, and a worker that dies or gets stuck loses none of its jobs."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from routing.queues import QueueName
from sites.content_store import open_content_store
from sites.ownership import adopt
from tests.factories import Shop
from tests.integration.workers.worker_world import Worker, World
from tests.object_server import ObjectServer, place_at
from tests.services import Valkey, wait_until

BOTH_POOLS = pytest.mark.parametrize("pool", ["prefork", "dense"])
MODEL_BOUND = (QueueName.ANSWER, QueueName.SPEC, QueueName.PATCH)
LIMITS = {"soft_seconds": 3, "hard_seconds": 9, "output_bytes": 1000}
LONG = {"soft_seconds": 200, "hard_seconds": 250}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def world(shop: Shop, valkey: Valkey, tmp_path: Path) -> Iterator[World]:
    valkey.flush()
    made = World(shop, valkey, tmp_path)
    made.policy_changes |= dict.fromkeys(MODEL_BOUND, LONG)
    yield made
    made.stop()


@pytest.fixture
def strict(world: World) -> Iterator[World]:
    """The same with a dispatcher, and limits of a few seconds."""
    world.policy_changes |= dict.fromkeys(MODEL_BOUND, LIMITS)
    with world.dispatching():
        yield world


@pytest.fixture
def patient(world: World) -> Iterator[World]:
    """The same with a dispatcher, and limits that no test reaches."""
    with world.dispatching():
        yield world


@BOTH_POOLS
def test_an_object_store_is_opened_by_each_process_after_its_fork(
    patient: World, object_server: ObjectServer, tmp_path: Path, pool: str
) -> None:
    config = place_at(object_server.endpoint, tmp_path / "host", prefix=pool, cache_bytes=0)
    secrets = {name: secret.get_secret_value() for name, secret in config.secrets.items()}
    settings = {"content_store__options": json.dumps(dict(config.options)), "content_store__cache_bytes": 0}
    adopt(patient.shop.ledger, open_content_store(config))  # as the dispatcher does at its start
    settings |= {"content_store__url": config.url, "content_store__secrets": json.dumps(secrets)}
    worker = patient.start("answer", pool=pool, concurrency=2, content_store__root=tmp_path / "host", **settings)
    for word in ("one", "two", "three", "four"):
        job = patient.ended(patient.ask(f"store {word}"))
        assert (job.state, job.result.get("answer")) == ("answered", word), worker.said


REFUSAL = json.dumps({"error": {"message": "spent", "details": {"error_code": "budget_exceeded"}}}).encode()


@pytest.fixture
def gateway_url() -> Iterator[str]:
    """A gateway that takes every call and never answers, but for one that asks beyond its budget."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        calls = []

        def answer() -> None:
            with suppress(OSError):
                while True:
                    call, _ = server.accept()
                    calls.append(call)
                    threading.Thread(target=refuse, args=(call,), daemon=True).start()

        def refuse(call: socket.socket) -> None:
            asked = b""
            with suppress(OSError):
                while b"dear" not in asked and (part := call.recv(65_536)):  # the body may come after the headers
                    asked += part
                if b"dear" in asked:
                    call.sendall(b"HTTP/1.1 429 No\r\nContent-Length: %d\r\n\r\n%s" % (len(REFUSAL), REFUSAL))

        threading.Thread(target=answer, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for call in calls:
            call.close()


def ask_each(world: World, prompt: str) -> dict[QueueName, UUID]:
    """Let a job wait on each queue that may be served in threads."""
    return {queue: world.ask(f"{prompt} {queue.value}", queue) for queue in MODEL_BOUND}


@BOTH_POOLS
def test_every_limit_ends_its_job_on_every_model_bound_queue_and_the_worker_goes_on(
    strict: World, pool: str, gateway_url: str
) -> None:
    world = strict
    worker = world.start(*MODEL_BOUND, pool=pool, concurrency=9, worker__gateway_url=gateway_url)
    soft, spinning = ask_each(world, "nap 60"), world.ask("compute spin 60", QueueName.SPEC)
    hard = world.ask("deaf 60", QueueName.PATCH)
    for job_id in (*soft.values(), spinning, hard):
        ended = world.ended(job_id)
        assert (ended.state, ended.reason) == ("timed_out", "time_limit")
        assert world.attempts(job_id) == [("lost" if job_id == hard else "timed_out", "time_limit")]
    assert len(worker.started("deaf 60")) == 1
    large, dear, silent = ask_each(world, "long 1001"), ask_each(world, "ask dear"), ask_each(world, "ask")
    for queue in MODEL_BOUND:
        assert world.ended(large[queue]).state == "output_exceeded"
        assert world.ended(dear[queue]).state == "budget_exceeded"
        # A call that waits is ended by the soft limit, not the hard one; the gateway that was silent gets the blame.
        call = silent[queue]
        wait_until(
            lambda call=call: any(how for how, _ in world.attempts(call)[:1]),
            seconds=20,
            what="the call's attempt has ended",
        )
        assert world.attempts(call)[0] == ("deferred", "gateway_unreachable")
        query = "SELECT data FROM event WHERE job_id = :id AND kind = 'attempt_ended' ORDER BY id LIMIT 1"
        assert world.shop.rows(query, id=call)[0][0]["seconds"] < LIMITS["hard_seconds"] - 2
    for job_id in ask_each(world, "nap 0").values():
        assert world.ended(job_id).state == "answered"


@BOTH_POOLS
def test_a_computation_s_steps_and_error_are_its_attempt_s(patient: World, pool: str) -> None:
    world = patient
    world.start(*MODEL_BOUND, pool=pool)
    for job_id in ask_each(world, "compute refuse").values():
        assert world.ended(job_id).detail == "internal error: TreeRefusedError"
        [[data]] = world.shop.rows("SELECT data FROM event WHERE job_id = :id AND data->>'step' = 'apply'", id=job_id)
        assert data["seconds"] < LONG["soft_seconds"]


@BOTH_POOLS
def test_a_computation_that_dies_ends_its_own_job_alone(patient: World, pool: str) -> None:
    world = patient
    worker = world.start(*MODEL_BOUND, pool=pool, concurrency=9, worker__most_memory_kib_per_child=600_000)
    others = ask_each(world, "nap 7")
    for queue in MODEL_BOUND:
        world.running(worker, f"nap 7 {queue.value}")
    swollen, dead = ask_each(world, "compute swell"), ask_each(world, "compute die")
    first_death = "SELECT min(ended_at) FROM attempt WHERE outcome = 'lost'"
    for queue in MODEL_BOUND:
        assert world.ended(swollen[queue]).reason == "internal_error"
        ended = world.ended(dead[queue], seconds=60)
        assert (ended.state, ended.reason) == ("failed", "worker_lost")
        assert world.attempts(dead[queue]) == [("lost", "worker_lost")] * 2
        assert world.ended(others[queue]).state == "answered"
        assert world.attempts(others[queue]) == [("answered", "done")]
        assert world.ended(others[queue]).ended_at > world.shop.rows(first_death)[0][0], "it was at work meanwhile"


@pytest.mark.req("S-028")
@BOTH_POOLS
def test_a_cancel_reaches_a_running_job_and_the_log_says_whose_attempt_ended(patient: World, pool: str) -> None:
    world = patient
    worker = world.start(*MODEL_BOUND, pool=pool, concurrency=3)
    for queue, job_id in ask_each(world, "heed 60").items():
        world.running(worker, f"heed 60 {queue.value}")
        with world.shop.ledger.begin() as session:
            request_cancel(session, lock_job(session, job_id), actor="test")
        assert world.ended(job_id).state == "cancelled"
        wait_until(lambda job_id=job_id: ended_in_log(worker, job_id), seconds=10, what="the log says so")  # type: ignore[misc]


def ended_in_log(worker: Worker, job_id: UUID) -> bool:
    lines = [json.loads(line) for line in worker.said.splitlines() if line.startswith("{") and line.endswith("}")]
    ended = [line for line in lines if (line["event"], line.get("job_id")) == ("attempt_ended", str(job_id))]
    return any({"ts", "level", "logger", "queue", "attempt"} <= line.keys() for line in ended)


@BOTH_POOLS
def test_the_jobs_of_a_killed_worker_run_once_more(patient: World, pool: str) -> None:
    world = patient
    killed = world.start(*MODEL_BOUND, pool=pool, concurrency=6)
    jobs, resting = ask_each(world, "nap 4"), ask_each(world, "compute rest 4")
    for queue in MODEL_BOUND:
        world.running(killed, f"nap 4 {queue.value}")
        world.running(killed, f"compute rest 4 {queue.value}")
    killed.send(signal.SIGKILL)
    world.start(*MODEL_BOUND, pool=pool, concurrency=6)
    for job_id in (*jobs.values(), *resting.values()):
        assert world.ended(job_id, seconds=60).state == "answered"
        assert world.attempts(job_id) == [("lost", "worker_lost"), ("answered", "done")]


def test_a_worker_that_abandoned_too_many_threads_hands_the_others_back_and_ends(world: World) -> None:
    world.policy_changes[QueueName.ANSWER] = {"soft_seconds": 7, "hard_seconds": 9}
    with world.dispatching():
        worker = world.start("answer", pool="dense", concurrency=3, worker__stop_seconds=200)
        deaf = [world.ask(f"deaf 200 {number}") for number in range(2)]
        for number in range(2):
            world.running(worker, f"deaf 200 {number}")
        time.sleep(5)
        other = world.ask("nap 100")
        world.running(worker, "nap 100")
        for job_id in deaf:
            assert world.ended(job_id).reason == "time_limit"
        worker.wait(60)
        assert "too_many_threads_abandoned" in worker.said
        wait_until(lambda: world.attempts(other)[0][0], seconds=20, what="the other is handed back")
        assert world.attempts(other)[0] == ("lost", "worker_stopped")
