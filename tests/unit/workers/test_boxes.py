"""A worker's boxes, without an engine."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from sandbox.box import SandboxUnavailableError
from workers.boxes import PoolOnDemand


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
