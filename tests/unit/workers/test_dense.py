"""A pool of threads, without a worker."""

import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError

from workers import dense
from workers.compute import Children
from workers.dense import DensePool, allow_files, pool_with
from workers.errors import SoftTimeLimit, TooFewFilesError


@pytest.fixture
def pool() -> Iterator[DensePool]:
    usual = threading.stack_size()
    made = pool_with(Children(lambda: None, most_calls=1, most_kib=1))(limit=2)
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


def test_threads_that_an_attempt_starts_hear_its_soft_limit(pool: DensePool) -> None:
    ended: list[object] = []

    def translate() -> None:
        with ThreadPoolExecutor(1) as threads:
            waits = threads.submit(copy_context().run, dense.pause, 60.0)
            ended.append(type(waits.exception(timeout=30)))

    pool.on_apply(
        translate,
        callback=ended.append,
        error_callback=ended.append,
        accept_callback=lambda *_: None,
        timeout_callback=lambda *_: None,
        soft_timeout=0.1,
    )
    pool.on_stop()
    assert ended == [SoftTimeLimit, None]


def test_each_call_that_a_job_makes_side_by_side_needs_an_open_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    allow_files(200, sockets=4)
    allow_files(800, sockets=1)
    with pytest.raises(TooFewFilesError, match="250 jobs at once need 1128 open files, the limit is 1024"):
        allow_files(250, sockets=4)
