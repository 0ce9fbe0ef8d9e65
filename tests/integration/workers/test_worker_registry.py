"""Who takes in work, as the ledger knows it: said by each worker, never what a job depends on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.operations.workers import (
    LOST_SECONDS,
    SWEPT_SECONDS,
    FleetSlots,
    QueueSlots,
    WorkerStatus,
    WorkerView,
    fleet_slots,
    list_workers,
    record_heartbeat,
    remove_worker,
    slots_by_queue,
    sweep_workers,
)
from ledger.store import Ledger, create_ledger_engine
from tests.factories import Shop
from tests.integration.workers.worker_world import World
from tests.services import Valkey, wait_until
from workers import heartbeat as presence_module
from workers.heartbeat import WorkerHeartbeat


def sign(name: str, *queues: str, slots: int = 2) -> WorkerStatus:
    return WorkerStatus(id=name, host="host-1", pid=7, queues=queues, slots=slots)


def say(shop: Shop, *signs: WorkerStatus, is_draining: bool = False) -> None:
    with shop.ledger.begin() as session:
        for each in signs:
            record_heartbeat(session, each, is_draining=is_draining)


def silent(shop: Shop, name: str, seconds: float) -> None:
    shop.execute("UPDATE worker SET seen_at = now() - make_interval(secs => :s) WHERE id = :id", s=seconds, id=name)


def known(shop: Shop) -> dict[str, WorkerView]:
    with shop.ledger.begin() as session:
        return {view.id: view for view in list_workers(session)}


def served(shop: Shop) -> dict[str, QueueSlots]:
    with shop.ledger.begin() as session:
        return {each.queue: each for each in slots_by_queue(session)}


def fleet(shop: Shop) -> FleetSlots:
    with shop.ledger.begin() as session:
        return fleet_slots(session)


def test_a_queue_is_full_when_all_slots_that_serve_it_are_taken_by_whatever_queue(shop: Shop) -> None:
    say(shop, sign("w1", "answer", "tools"), sign("w2", "answer", slots=3))
    for _ in range(2):
        shop.claim(shop.accept(tier=None), worker="w1")
    assert served(shop) == {
        "answer": QueueSlots(queue="answer", workers=2, slots=5, busy=2),
        "tools": QueueSlots(queue="tools", workers=1, slots=2, busy=2),
    }
    assert fleet(shop) == FleetSlots(serving=2, draining=0, lost=0, slots=5, busy=2)
    assert {name: (view.slots, view.busy) for name, view in known(shop).items()} == {"w1": (2, 2), "w2": (3, 0)}


def test_what_a_dead_worker_s_lease_has_left_is_not_busy(shop: Shop) -> None:
    say(shop, sign("w1", "spec"))
    shop.claim(shop.accept(), worker="w1")
    shop.execute("UPDATE attempt SET lease_until = now() - interval '1 s'")
    assert fleet(shop).busy == 0


def test_a_worker_that_drains_or_is_silent_offers_no_slots(shop: Shop) -> None:
    say(shop, sign("ok", "spec"), sign("lost", "spec"))
    say(shop, sign("drains", "spec"), is_draining=True)
    silent(shop, "lost", LOST_SECONDS + 1)
    assert {name: view.standing for name, view in known(shop).items()} == {
        "ok": "serving",
        "lost": "lost",
        "drains": "draining",
    }
    assert served(shop)["spec"].slots == 2
    assert fleet(shop) == FleetSlots(serving=1, draining=1, lost=1, slots=2, busy=0)
    assert known(shop)["lost"].silent_seconds == pytest.approx(LOST_SECONDS + 1, abs=5)


def test_a_worker_is_forgotten_when_it_signs_off_or_was_silent_for_long(shop: Shop) -> None:
    say(shop, sign("ended", "spec"), sign("lost", "spec"), sign("gone", "spec"))
    silent(shop, "lost", SWEPT_SECONDS - 30)
    silent(shop, "gone", SWEPT_SECONDS + 1)
    with shop.ledger.begin() as session:
        remove_worker(session, "ended")
        assert sweep_workers(session) == 1
    assert set(known(shop)) == {"lost"}


def test_a_worker_that_gets_the_name_of_a_dead_one_is_another_worker(shop: Shop) -> None:
    say(shop, sign("w1", "spec"))
    shop.execute("UPDATE worker SET started_at = now() - interval '1 day'")
    say(shop, sign("w1", "spec"))
    before = known(shop)["w1"].started_at
    with shop.ledger.begin() as session:
        record_heartbeat(session, sign("w1", "patch"), is_first=True)
    assert known(shop)["w1"].started_at > before
    assert set(served(shop)) == {"patch"}


def opener(url: str) -> Ledger:
    return Ledger(create_ledger_engine(url, pool_size=0))


def test_a_worker_says_that_it_is_there_that_it_drains_and_that_it_is_gone(shop: Shop) -> None:
    heartbeat = WorkerHeartbeat(lambda: opener(shop.url), sign("w1", "spec"), every_seconds=0.05)
    heartbeat.on_ready()
    try:
        wait_until(lambda: known(shop), seconds=10, what="it is known")
        silent(shop, "w1", 100)
        wait_until(lambda: known(shop)["w1"].standing == "serving", seconds=10, what="it said so again")
        heartbeat.on_shutting_down()
        wait_until(lambda: known(shop)["w1"].standing == "draining", seconds=10, what="it drains")
    finally:
        heartbeat.leave()
    assert known(shop) == {}


def test_a_worker_whose_consumer_takes_in_nothing_falls_silent_until_it_does_again(shop: Shop) -> None:
    heartbeat = WorkerHeartbeat(lambda: opener(shop.url), sign("w1", "spec"), every_seconds=0.02)
    heartbeat.on_ready()
    try:
        wait_until(lambda: known(shop), seconds=10, what="it is known")
        heartbeat._pulsed_at -= 31
        wait_until(lambda: known(shop)["w1"].silent_seconds > 0.5, seconds=10, what="it is silent")
        heartbeat.pulse()
        wait_until(lambda: known(shop)["w1"].silent_seconds < 0.3, seconds=10, what="it is heard again")
    finally:
        heartbeat.leave()


def test_a_ledger_that_is_away_costs_a_worker_nothing_but_its_row(tmp_path: Path, shop: Shop) -> None:
    urls = [f"postgresql://postgres@/nothing?host={tmp_path}"] * 3
    heartbeat = WorkerHeartbeat(
        lambda: opener(urls.pop() if urls else shop.url), sign("w1", "spec"), every_seconds=0.02
    )
    heartbeat.on_ready()
    wait_until(lambda: known(shop), seconds=10, what="it is known once the ledger is back")
    urls += [f"postgresql://postgres@/nothing?host={tmp_path}"] * 1000
    heartbeat.leave()
    assert set(known(shop)) == {"w1"}


def test_a_sign_that_the_ledger_took_late_is_not_a_worker_s_last_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence_module, "_LEAVE_SECONDS", 0.05)
    is_slow, is_over = threading.Event(), threading.Event()

    def slow_opener() -> Ledger:
        if known(shop) and threading.current_thread().name == "heartbeat":
            is_slow.set()
            is_over.wait(10)
        return opener(shop.url)

    heartbeat = WorkerHeartbeat(slow_opener, sign("w1", "spec"), every_seconds=0.02)
    heartbeat.on_ready()
    assert is_slow.wait(10)
    heartbeat.leave()
    is_over.set()
    assert heartbeat._thread is not None
    heartbeat._thread.join(10)
    assert known(shop) == {}


@pytest.fixture
def world(shop: Shop, valkey: Valkey, tmp_path: Path) -> Iterator[World]:
    valkey.flush()
    made = World(shop, valkey, tmp_path)
    with made.dispatching():
        yield made
    made.stop()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_real_worker_is_known_from_its_start_to_its_end_and_a_killed_one_is_lost(world: World) -> None:
    worker = world.start("answer", concurrency=3, worker__stop_seconds=60)
    wait_until(lambda: served(world.shop), seconds=10, what="it is known")
    assert served(world.shop)["answer"].slots == 3
    (view,) = known(world.shop).values()
    assert (view.pid, view.queues) == (worker.process.pid, ("answer",))
    job_id = world.ask("nap 6")
    world.running(worker, "nap 6")
    assert served(world.shop)["answer"].busy == 1
    worker.send(signal.SIGTERM)
    wait_until(lambda: fleet(world.shop).draining, seconds=5, what="it drains")
    assert worker.wait(60) == 0
    assert world.shop.job(job_id).state == "answered"
    assert known(world.shop) == {}

    killed = world.start("answer")
    wait_until(lambda: known(world.shop), seconds=10, what="it is known")
    killed.send(signal.SIGKILL)
    killed.wait(20)
    wait_until(lambda: fleet(world.shop).lost, seconds=LOST_SECONDS + 20, what="it is lost")
    assert served(world.shop) == {}
