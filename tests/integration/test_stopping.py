"""A worker that is told to stop: short work ends, long work is handed back, and no job pays for a deploy."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.factories import Shop
from tests.integration.worker_world import World
from tests.services import Valkey


@pytest.fixture
def world(shop: Shop, valkey: Valkey, tmp_path: Path) -> Iterator[World]:
    valkey.flush()
    made = World(shop, valkey, tmp_path)
    with made.dispatching():
        yield made
    made.stop()


def test_a_short_job_ends_and_what_waits_is_left_to_others(world: World) -> None:
    worker = world.start("answer")
    short, next_one = world.ask("nap 2"), None
    world.running(worker, "nap 2")
    next_one = world.ask("nap 0")
    worker.send(signal.SIGTERM)
    assert worker.wait(15) == 0
    assert world.shop.job(short).state == "answered"
    assert world.attempts(next_one) == []
    world.start("answer")
    assert world.ended(next_one).state == "answered"


def test_a_long_job_is_handed_back_when_the_grace_is_over_and_nothing_counts_against_it(world: World) -> None:
    worker = world.start("answer", worker__stop_seconds=1)
    job_id = world.ask("nap 40")
    world.running(worker, "nap 40")
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.wait(15) == 0
    assert time.monotonic() - began < 8
    assert "let go" in worker.said
    other = world.start("answer")
    world.running(other, "nap 40")
    job = world.shop.job(job_id)
    assert (job.state, job.lost_attempts) == ("running", 0)
    assert world.attempts(job_id) == [("lost", "worker_stopped"), (None, None)]


def test_a_second_signal_or_sigquit_ends_the_grace_at_once(world: World) -> None:
    for signals in ((signal.SIGQUIT,), (signal.SIGINT, signal.SIGINT)):
        worker = world.start("answer", worker__stop_seconds=60)
        job_id = world.ask("nap 50")
        world.running(worker, "nap 50")
        for signum in signals:
            worker.send(signum)
            time.sleep(0.5)
        worker.wait(10)
        assert world.attempts(job_id)[0] == ("lost", "worker_stopped")
        world.shop.execute("UPDATE job SET cancel_requested_at = now()")
        world.shop.clear()
        world.shop.tenant()


def test_a_job_that_does_not_listen_is_killed_with_its_children_and_handed_back(world: World) -> None:
    worker = world.start("answer", worker__stop_seconds=0)
    job_id = world.ask("stubborn 60")
    child = world.running(worker, "stubborn 60")
    grandchild = int(worker.said.partition("grandchild ")[2].split()[0])
    worker.send(signal.SIGTERM)
    worker.wait(25)
    assert not psutil.pid_exists(child)
    assert not psutil.pid_exists(grandchild)
    job = world.shop.job(job_id)
    assert (job.lost_attempts, world.attempts(job_id)[0]) == (0, ("lost", "worker_stopped"))
