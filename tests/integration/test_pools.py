"""The limits of a job hold in either pool, and a worker that dies or gets stuck loses none of its jobs."""

import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.job_control import request_cancel
from ledger.jobs import lock_job
from tests.factories import Shop
from tests.integration.worker_world import World
from tests.services import Valkey, wait_until

BOTH_POOLS = pytest.mark.parametrize("pool", ["prefork", "dense"])
LIMITS = {"soft_seconds": 3, "hard_seconds": 9, "output_bytes": 1000}
LONG = {"soft_seconds": 200, "hard_seconds": 250}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def world(shop: Shop, valkey: Valkey, tmp_path: Path) -> Iterator[World]:
    valkey.flush()
    made = World(shop, valkey, tmp_path)
    made.policy_changes["answer"] = dict(LONG)
    yield made
    made.stop()


@pytest.fixture
def strict(world: World) -> Iterator[World]:
    """The same with a dispatcher, and limits of a few seconds."""
    world.policy_changes["answer"] = dict(LIMITS)
    with world.dispatching():
        yield world


@pytest.fixture
def patient(world: World) -> Iterator[World]:
    """The same with a dispatcher, and limits that no test reaches."""
    with world.dispatching():
        yield world


@pytest.fixture
def silent_url() -> Iterator[str]:
    """A gateway that takes every call and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@BOTH_POOLS
def test_every_limit_ends_its_job_and_the_worker_goes_on(strict: World, pool: str, silent_url: str) -> None:
    world = strict
    worker = world.start("answer", pool=pool, concurrency=4, worker__gateway_url=silent_url)
    soft, soft_call, hard = world.ask("nap 60"), world.ask("ask"), world.ask("deaf 60")
    long = world.ask("long 1001")
    assert world.ended(long).state == "output_exceeded"
    for job_id in (soft, hard):
        ended = world.ended(job_id)
        assert (ended.state, ended.reason) == ("timed_out", "time_limit")
    assert world.attempts(soft) == [("timed_out", "time_limit")]
    assert world.attempts(hard) == [("lost", "time_limit")]
    # A call that waits is ended by the soft limit, not the hard one; the gateway that was silent gets the blame.
    wait_until(lambda: world.attempts(soft_call)[0][0], seconds=20, what="the call's attempt has ended")
    assert world.attempts(soft_call)[0] == ("deferred", "gateway_unreachable")
    query = "SELECT data FROM event WHERE job_id = :id AND kind = 'attempt_ended' ORDER BY id LIMIT 1"
    assert world.shop.rows(query, id=soft_call)[0][0]["seconds"] < LIMITS["hard_seconds"] - 2
    assert world.ended(world.ask("nap 0")).state == "answered"
    assert len(worker.started("deaf 60")) == 1


@BOTH_POOLS
def test_a_cancel_reaches_a_running_job(patient: World, pool: str) -> None:
    world = patient
    worker = world.start("answer", pool=pool)
    job_id = world.ask("heed 60")
    world.running(worker, "heed 60")
    with world.shop.ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id), actor="test")
    assert world.ended(job_id).state == "cancelled"


@BOTH_POOLS
def test_the_jobs_of_a_killed_worker_run_once_more(patient: World, pool: str) -> None:
    world = patient
    killed = world.start("answer", pool=pool, concurrency=3)
    prompts = [f"nap 4 {number}" for number in range(3)]
    jobs = [world.ask(prompt) for prompt in prompts]
    for prompt in prompts:
        world.running(killed, prompt)
    killed.send(signal.SIGKILL)
    world.start("answer", pool=pool, concurrency=3)
    for job_id in jobs:
        assert world.ended(job_id, seconds=60).state == "answered"
        assert world.attempts(job_id) == [("lost", "worker_lost"), ("answered", "done")]


def test_a_worker_that_abandoned_too_many_threads_hands_the_others_back_and_ends(world: World) -> None:
    world.policy_changes["answer"] = {"soft_seconds": 14, "hard_seconds": 16}
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
