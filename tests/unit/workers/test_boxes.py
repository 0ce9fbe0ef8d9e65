"""A worker's boxes, without an engine."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from sandbox.errors import SandboxUnavailableError
from tests.played_cli import LocalBoxMaker
from workers import dense
from workers.boxes import PoolOnDemand
from workers.errors import SoftTimeLimit


def test_who_waits_while_an_engine_is_asked_in_vain_does_not_ask_it_again() -> None:
    asked: list[float] = []

    def ask_in_vain() -> NoReturn:
        asked.append(time.monotonic())
        time.sleep(0.5)
        raise SandboxUnavailableError("engine_unreachable", "silent")

    boxes = PoolOnDemand(ask_in_vain)
    with ThreadPoolExecutor(8) as threads:
        tries = [threads.submit(boxes.acquire) for _ in range(8)]
    assert [type(each.exception()) for each in tries] == [SandboxUnavailableError] * 8
    assert len(asked) == 1
    with pytest.raises(SandboxUnavailableError):
        boxes.acquire()
    assert len(asked) == 2, "who comes later asks anew"


class Counting:
    """A pool that counts its boxes in use; every second one cannot be had."""

    def __init__(self) -> None:
        self.in_use, self.most, self.asked = 0, 0, 0
        self.on_closed: Any = None

    def acquire(self, asked: Any = (), *, image: Any = None, watch: Any = None) -> Any:
        self.asked += 1
        if self.asked % 2 == 0:
            raise SandboxUnavailableError("engine_unreachable", "silent")
        self.in_use += 1
        self.most = max(self.most, self.in_use)
        return self

    def close(self) -> None:
        self.in_use -= 1
        self.on_closed()


def test_no_more_boxes_are_in_use_than_a_worker_may_have_however_many_jobs_want_one() -> None:
    pool = Counting()
    boxes = PoolOnDemand(lambda: pool, most=2)

    def use() -> None:
        box = boxes.acquire()
        time.sleep(0.01)
        box.close()

    with ThreadPoolExecutor(12) as threads:
        uses = [threads.submit(use) for _ in range(24)]
    assert (pool.asked, pool.in_use, pool.most) == (24, 0, 2)
    assert sum(each.exception() is None for each in uses) == 12


def test_a_box_gives_up_its_place_once_even_where_it_cannot_be_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> NoReturn:
        raise SoftTimeLimit

    boxes = PoolOnDemand(lambda: SimpleNamespace(acquire=LocalBoxMaker().create), most=1)
    first = boxes.acquire()
    first.close()
    first.close()
    second = boxes.acquire(watch=interrupt)
    with pytest.raises(SoftTimeLimit):
        boxes.acquire(watch=interrupt)
    with monkeypatch.context() as patch:
        patch.setattr(second, "_destroy", interrupt)
        with suppress(SoftTimeLimit):
            second.close()
    boxes.acquire(watch=interrupt).close()


def test_who_waits_for_a_box_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> NoReturn:
        raise SoftTimeLimit

    boxes = PoolOnDemand(Counting, most=1)
    boxes.acquire()
    monkeypatch.setattr(dense, "check", interrupt)
    with pytest.raises(SoftTimeLimit):
        boxes.acquire()
