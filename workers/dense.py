"""A pool of threads, for jobs that mostly wait for a model: one that waits costs a stack and a socket.

Threads share locks (of logging, of the ledger's connections), so an exception that hits one anywhere could stop them
all. An attempt is therefore interrupted only where it waits: its model call is aborted, its pause ends, the child that
computes for it is killed, and its next check raises. A thread that still goes on past its hard limit is abandoned. Its
ledger rows say so, its fence and token are void, and a worker that has abandoned too many hands the others back and
ends, for its supervisor to start a fresh one.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery.concurrency.base import BasePool

from workers.compute import Child, Children, Step, collecting
from workers.errors import HandBack, SoftTimeLimit, TooFewFilesError

ResultT = TypeVar("ResultT")
Values = ParamSpec("Values")

logger = logging.getLogger(__name__)

STACK_BYTES = 524_288
"""Of each thread; only what it touches takes memory."""
ABANDONED_SHARE = 0.02
"""The part of the pool's threads, and one in any case, that may be abandoned before the worker ends."""
_SPARE_FILES = 128
"""Open files besides the sockets of model calls: connections of ledger and broker, logs."""
_POLL_SECONDS = 0.05


class Abortable(Protocol):
    """Work that can be told from another thread to stop waiting."""

    def abort(self, cause: BaseException) -> None:
        """Let its model calls, now and later, raise `cause`."""


class Work:
    """One task in its thread, with its deadlines on the monotonic clock."""

    def __init__(self, children: Children, *, soft_seconds: float | None, hard_seconds: float | None) -> None:
        self.children = children
        began = time.monotonic()
        self.soft_at = began + (soft_seconds or float("inf"))
        self.hard_at = began + (hard_seconds or float("inf"))
        self._attempt: Abortable | None = None
        self._child: Child | None = None
        """Computes for it."""
        self._cause: BaseException | None = None
        self._interrupted = threading.Event()

    @contextmanager
    def interruptible(self, attempt: Abortable) -> Iterator[None]:
        """Let an interruption end what this attempt waits for."""
        self._attempt = attempt
        try:
            yield
        finally:
            self._attempt = None

    def interrupt(self, cause: BaseException) -> None:
        """End whatever the attempt waits for, and let it raise `cause`; the first cause stays. Any thread may call."""
        self._cause = self._cause or cause
        self._interrupted.set()
        if (attempt := self._attempt) is not None:
            attempt.abort(self._cause)
        if (child := self._child) is not None:
            child.kill()

    @contextmanager
    def holding(self, child: Child) -> Iterator[None]:
        """Let an interruption kill the child that computes for this attempt."""
        self._child = child
        try:
            self.check()
            yield
        finally:
            self._child = None
            self.check()  # it may have been killed, or may be yet

    def check(self) -> None:
        """Raise the cause of an interruption."""
        if self._cause is not None:
            raise self._cause

    def pause(self, seconds: float) -> None:
        """Wait, unless interrupted."""
        self._interrupted.wait(seconds)
        self.check()


_work: ContextVar[Work | None] = ContextVar("work", default=None)
"""Also of the threads that an attempt starts in copies of its context."""


def current() -> Work | None:
    """Return the work of the calling context; None outside this pool."""
    return _work.get()


def check() -> None:
    """Raise what interrupts the calling context's attempt, if anything does."""
    if (work := current()) is not None:
        work.check()


def pause(seconds: float) -> None:
    """Sleep; in this pool an interruption ends it."""
    if (work := current()) is not None:
        work.pause(seconds)
    else:
        time.sleep(seconds)


def compute(steps: list[Step], do: Callable[Values, ResultT], *values: Values.args, **named: Values.kwargs) -> ResultT:
    """Compute in place, or in a child of this pool, and append what was timed to `steps`; see `Attempt.compute`."""
    if (work := current()) is None:
        with collecting(steps):
            return do(*values, **named)
    result: ResultT = work.children.run(steps, work, (do, values, named))
    return result


class DensePool(BasePool):  # type: ignore[misc]
    """Runs each task in a thread of its own. Celery's callbacks run in the consumer's thread."""

    limit: int
    signal_safe = False
    body_can_be_buffer = True
    children: Children

    def on_start(self) -> None:
        """Start the watchdog."""
        threading.stack_size(STACK_BYTES)
        self._works: dict[Work, Callable[[], None]] = {}
        """Each with what reports its hard limit."""
        self._abandoned = 0
        self._lock = threading.Lock()
        self._reports: deque[Callable[[], None]] = deque()
        self._over = threading.Event()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        threading.Thread(target=self._watch, name="deadlines", daemon=True).start()

    def register_with_event_loop(self, loop: Any) -> None:
        """Let the consumer's loop report what has ended."""
        loop.add_reader(self._wake, self._on_wake)

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        callback: Callable[[Any], None],
        error_callback: Callable[[ExceptionInfo], None],
        accept_callback: Callable[[int, float], None],
        timeout_callback: Callable[[bool, float], None],
        soft_timeout: float | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Work:
        """Start a task. The consumer takes no more messages than there are threads."""
        work = Work(self.children, soft_seconds=soft_timeout, hard_seconds=timeout)
        accept_callback(os.getpid(), time.monotonic())
        with self._lock:
            self._works[work] = lambda: timeout_callback(False, timeout or 0.0)

        def run() -> None:
            _work.set(work)
            report = _outcome(lambda: target(*args, **(kwargs or {})), callback, error_callback)
            with self._lock:
                is_abandoned = self._works.pop(work, None) is None
                self._abandoned -= is_abandoned
            if not is_abandoned:
                self._report(report)

        try:
            threading.Thread(target=run, name="attempt", daemon=True).start()
        except RuntimeError as error:  # no more tasks or memory: the others go on
            with self._lock:
                del self._works[work]
            self._report(_broken_off(error, error_callback))
        return work

    def hand_back(self, seconds: float) -> None:
        """Let every attempt give its job back, and the pool end, after so many seconds at the latest."""
        deadline = time.monotonic() + seconds
        for work in list(self._works):
            work.interrupt(HandBack())
        while self._works and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self._over.set()

    def on_stop(self) -> None:
        """Wait for the tasks. A stopping worker's grace bounds it: `hand_back` follows."""
        while self._works and not self._over.wait(_POLL_SECONDS):
            self._drain()
        self._over.set()
        self._drain()

    def on_terminate(self) -> None:
        """End at once: leases lapse by themselves."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            at = time.monotonic()
            for work in list(self._works):
                if at >= work.hard_at:
                    self._abandon(work)
                elif at >= work.soft_at:
                    work.soft_at = float("inf")
                    work.interrupt(SoftTimeLimit())

    def _abandon(self, work: Work) -> None:
        with self._lock:
            if (report := self._works.pop(work, None)) is None:
                return
            self._abandoned += 1
            is_too_many = self._abandoned > max(1, self.limit * ABANDONED_SHARE)
        work.interrupt(SoftTimeLimit())
        self._report(report)
        if is_too_many:
            logger.error("too_many_threads_abandoned", extra={"threads": self._abandoned})
            os.kill(os.getpid(), signal.SIGQUIT)  # stops without grace

    def _report(self, report: Callable[[], None]) -> None:
        self._reports.append(report)
        os.eventfd_write(self._wake, 1)

    def _on_wake(self) -> None:
        os.eventfd_read(self._wake)
        self._drain()

    def _drain(self) -> None:
        while self._reports:
            self._reports.popleft()()


def pool_with(children: Children) -> type[DensePool]:
    """Return the pool whose tasks compute in these children: Celery makes its pool itself, of a class."""
    return type("DensePool", (DensePool,), {"children": children})


def _outcome(
    run: Callable[[], Any], callback: Callable[[Any], None], error_callback: Callable[[ExceptionInfo], None]
) -> Callable[[], None]:
    """Run a task, and return what tells Celery how it ended."""
    try:
        value = run()
    except BaseException as error:  # noqa: BLE001  # it is logged there
        return _broken_off(error, error_callback)
    return lambda: callback(value)


def _broken_off(error: BaseException, error_callback: Callable[[ExceptionInfo], None]) -> Callable[[], None]:
    logger.error("task_broke_off", exc_info=error)
    try:
        raise WorkerLostError(repr(error))
    except WorkerLostError:
        info = ExceptionInfo()
    return lambda: error_callback(info)


def allow_files(concurrency: int, *, sockets: int) -> None:
    """Raise this process's limit of open files as far as it may, and check that the pool's sockets fit.

    `sockets` are those that one job may have open at once.

    Raises:
        TooFewFilesError: the operator's fault: they do not.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < (needed := concurrency * sockets + _SPARE_FILES):
        raise TooFewFilesError(f"{concurrency} jobs at once need {needed} open files, the limit is {most}")
