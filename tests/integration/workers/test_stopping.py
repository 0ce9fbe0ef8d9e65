"""A worker that is told to stop: short work ends, long work is handed back, and no job pays for a deploy.

One hand-back is in CI; what it is made of runs in `make chaos ONLY=long`.
"""

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psutil
import pytest

from tests.factories import Shop
from tests.integration.workers.worker_world import World
from tests.services import Valkey, wait_until

BOTH_POOLS = pytest.mark.parametrize("pool", ["prefork", "dense"])
LET_GO_SECONDS = 30
EXIT_SECONDS = 60
"""How long the interpreter itself may take to end on a busy machine; no job here ends by itself within that."""


@pytest.fixture
def world(shop: Shop, valkey: Valkey, tmp_path: Path) -> Iterator[World]:
    valkey.flush()
    made = World(shop, valkey, tmp_path)
    with made.dispatching():
        yield made
    made.stop()


def handed_back(world: World, job_id: UUID, *, times: int = 1) -> None:
    """Wait, for far less than the job would take, until that many attempts at it were handed back, and no other."""
    lost = [("lost", "worker_stopped")] * times
    wait_until(lambda: world.attempts(job_id)[:times] == lost, seconds=LET_GO_SECONDS, what="it is handed back")
    assert world.shop.job(job_id).lost_attempts == 0


@BOTH_POOLS
@pytest.mark.long
@pytest.mark.timeout(300)
def test_short_work_ends_and_long_work_is_handed_from_worker_to_worker_at_no_cost(world: World, pool: str) -> None:
    first = world.start("answer", pool=pool, worker__stop_seconds=30)
    short = world.ask("nap 2")
    world.running(first, "nap 2")
    next_one = world.ask("nap 0")
    first.send(signal.SIGTERM)
    assert first.wait(EXIT_SECONDS) == 0
    assert world.shop.job(short).state == "answered"
    assert world.attempts(next_one) == []

    second = world.start("answer", pool=pool, worker__stop_seconds=1)
    assert world.ended(next_one).state == "answered"
    long = world.ask("nap 250")
    world.running(second, "nap 250")
    second.send(signal.SIGTERM)
    handed_back(world, long)
    assert second.wait(EXIT_SECONDS) == 0
    assert "grace_is_over" in second.said
    assert "let go" in second.said
    assert "pool_child_killed" not in second.said

    third = world.start("answer", pool=pool, worker__stop_seconds=250)
    world.running(third, "nap 250")
    assert world.shop.job(long).state == "running"
    third.send(signal.SIGQUIT)  # which is without any grace
    handed_back(world, long, times=2)
    third.wait(EXIT_SECONDS)


@BOTH_POOLS
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_second_signal_ends_the_grace_at_once(world: World, pool: str) -> None:
    worker = world.start("answer", pool=pool, worker__stop_seconds=250)
    job_id = world.ask("nap 250")
    world.running(worker, "nap 250")
    worker.send(signal.SIGINT)
    wait_until(lambda: "Warm shutdown" in worker.said, seconds=20, what="it has heard the first one")
    assert world.attempts(job_id) == [(None, None)]
    worker.send(signal.SIGINT)
    handed_back(world, job_id)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_job_that_does_not_listen_is_killed_with_its_children_and_handed_back(world: World) -> None:
    worker = world.start("answer", worker__stop_seconds=0)
    job_id = world.ask("stubborn 250")
    child = world.running(worker, "stubborn 250")
    grandchild = int(worker.said.partition("grandchild ")[2].split()[0])
    worker.send(signal.SIGTERM)
    handed_back(world, job_id)
    worker.wait(EXIT_SECONDS)
    for pid in (child, grandchild):
        wait_until(lambda pid=pid: not psutil.pid_exists(pid), seconds=LET_GO_SECONDS, what=f"{pid} is gone")
