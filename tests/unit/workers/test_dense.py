"""A pool of threads, without a worker."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError

from workers.compute import Children
from workers.dense import DensePool


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[DensePool]:
    monkeypatch.setattr(Children, "start", lambda _: None)
    usual = threading.stack_size()
    made = DensePool(limit=2, maxtasksperchild=1, max_memory_per_child=1)
    made.on_start()
    yield made
    made.on_terminate()
    threading.stack_size(usual)


def test_a_task_whose_thread_cannot_start_is_lost_alone(pool: DensePool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    ended: list[Any] = []

    def fail(info: ExceptionInfo) -> None:
        ended.append(info.exception)

    pool.on_apply(
        print,
        callback=ended.append,
        error_callback=fail,
        accept_callback=lambda *_: None,
        timeout_callback=lambda *_: None,
    )
    pool.on_stop()
    [error] = ended
    assert isinstance(getattr(error, "exc", error), WorkerLostError)
