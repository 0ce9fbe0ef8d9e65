"""What attempts compute: in place, or in processes that were forked for it while a pool was still one thread.

A pool of threads must not compute in them: a render or a scan would hold the lock that all of them share, and no thread
can be killed. Its calls go to a few children instead, one at a time each: a function of a module and values that
pickle. A child has a pool child's limits of memory and of tasks. It is killed when its attempt is interrupted, and
takes with it nothing but that attempt's call.

The children are forked by a keeper, itself forked before there was a second thread: a fork of many threads may copy a
lock that nobody will ever release. Where a fork server runs the worker, it forks the keeper as well, when it is needed.
"""

from __future__ import annotations

import gc
import logging
import os
import pickle
import queue
import resource
import select
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn, Protocol

from monitoring import traces
from workers.errors import ComputeChildLost, HandBack
from workers.machine import usable_cpus, usable_memory

logger = logging.getLogger(__name__)

MOST_CHILDREN = 4
"""Of one worker; they come with work."""
FORK_SECONDS = 10.0
"""In which a keeper forks a child, or counts as lost."""
_END_MILLISECONDS = 200
"""By which the end of a keeper may show later than that of its children, which it causes."""
_PATIENCE_SECONDS = 1.0
"""Between two looks at whether an attempt that waits for a child is interrupted."""
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
"""Whoever stops a worker may signal all its processes: these end with it, or by their connection's end."""


class Step(NamedTuple):
    """A visible step of a computation."""

    name: str
    began: float
    """Seconds since the epoch."""
    seconds: float


_steps: ContextVar[list[Step]] = ContextVar("steps")


@contextmanager
def timed(name: str) -> Iterator[None]:
    """Time and trace one visible step of a computation, for its attempt to report."""
    began, started = time.time(), time.monotonic()
    try:
        with traces.span(name):
            yield
    finally:
        _steps.get().append(Step(name, began, time.monotonic() - started))


@contextmanager
def collecting(steps: list[Step]) -> Iterator[None]:
    """Append to `steps` what is timed in this block."""
    before = _steps.set(steps)
    try:
        yield
    finally:
        _steps.reset(before)


def children_within(cpus: float, memory_bytes: int | None, *, most_kib: int) -> int:
    """Return how many children a worker may have: with itself, each may grow to `most_kib` between two calls."""
    fit = MOST_CHILDREN if memory_bytes is None else memory_bytes // (most_kib * 1024) - 1
    return max(1, min(MOST_CHILDREN, max(2, int(cpus)), fit))


class Child:
    """A process that computes."""

    def __init__(self, connection: Connection, pidfd: int) -> None:
        self._connection = connection
        self._pidfd: int | None = pidfd
        self._closing = threading.Lock()

    def ask(self, call: bytes) -> tuple[bytes, bool]:
        """Return the reply to a call, and whether the child takes further ones.

        Raises:
            EOFError, OSError: it died.
        """
        self._connection.send_bytes(call)
        reply = self._connection.recv_bytes()
        return reply[1:], reply[:1] == _GOES_ON

    def is_over(self) -> bool:
        """Whether it ended while it was idle."""
        return self._pidfd is None or _has_ended(self._pidfd)

    def kill(self) -> None:
        """Kill it, from any thread."""
        with self._closing, suppress(ProcessLookupError):
            if self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and let go of it."""
        self.kill()
        with self._closing:
            if self._pidfd is not None:
                os.close(self._pidfd)
            self._pidfd = None
        self._connection.close()


class Caller(Protocol):
    """Whose call it is: an attempt that may be interrupted."""

    def check(self) -> None:
        """Raise what interrupts it, if anything does."""

    def holding(self, child: Child) -> AbstractContextManager[None]:
        """Let an interruption kill the child in this block."""


class Children:
    """The children of one pool.

    Args:
        prepare: called in each process right after its fork.
        most_calls: after which a child is replaced.
        most_kib: of resident memory, above which it is replaced.
        order_keeper: has another process fork the keeper, which calls `keep` with the given socket, and returns a
            descriptor of it; by default this process forks it.
    """

    def __init__(
        self,
        prepare: Callable[[], None],
        *,
        most_calls: int,
        most_kib: int,
        order_keeper: Callable[[socket.socket], int] | None = None,
    ) -> None:
        self._prepare = prepare
        self._order_keeper = order_keeper
        self._keeper: int | None = None
        self._most_calls = most_calls
        self._most_kib = most_kib
        self._forking = threading.Lock()
        """An order and its answer belong together: another's descriptor would kill another's child."""
        self._places: queue.LifoQueue[Child | None] = queue.LifoQueue()
        for _ in range(children_within(usable_cpus(), usable_memory(), most_kib=most_kib)):
            self._places.put(None)

    def start(self) -> None:
        """Fork the keeper, unless another process does, once there is something to compute.

        The process must be of one thread; the less it has done yet, the more pages they share.
        """
        if self._order_keeper is None:
            gc.freeze()
            self._start_keeper(self._fork_keeper)

    def _start_keeper(self, fork: Callable[[socket.socket], int]) -> None:
        self._orders, theirs = socket.socketpair()
        self._orders.settimeout(FORK_SECONDS)
        with theirs:
            self._keeper = fork(theirs)

    def _fork_keeper(self, orders: socket.socket) -> int:
        def keep() -> None:
            self._orders.close()
            self.keep(orders)

        return os.pidfd_open(self._fork(keep))

    def run(self, steps: list[Step], caller: Caller, call: tuple[Callable[..., Any], Any, Any]) -> Any:
        """Return what a call computes in a child, and append what it timed to `steps`.

        Raises:
            ComputeChildLost: the child died.
            HandBack: all children are lost, and the worker stops.
            BaseException: what the call raised, or what interrupted the attempt.
        """
        reply, at = pickle.loads(self._ask(pickle.dumps(call, pickle.HIGHEST_PROTOCOL), caller)), traces.current()
        for step in reply.steps:
            traces.past(step.name, at, began=step.began, ended=step.began + step.seconds)
        steps += reply.steps
        if reply.error is not None:
            raise reply.error
        return reply.value

    def _ask(self, call: bytes, caller: Caller) -> bytes:
        child, goes_on = self._take(caller), False
        try:
            child = child or self._fork_child()
            with caller.holding(child):
                reply, is_young = child.ask(call)
            goes_on = is_young
        except (EOFError, OSError) as error:
            caller.check()
            if self._keeper is not None and _has_ended(self._keeper, milliseconds=_END_MILLISECONDS):
                self._lose_keeper()
            raise ComputeChildLost from error
        finally:
            if child is not None and not goes_on:
                child.close()
            self._places.put(child if goes_on else None)
        return reply

    def _take(self, caller: Caller) -> Child | None:
        """Wait for a place: an idle child, or None for one that is yet to be forked."""
        while True:
            caller.check()
            with suppress(queue.Empty):
                child = self._places.get(timeout=_PATIENCE_SECONDS)
                if child is None or not child.is_over():
                    return child
                child.close()
                return None

    def _fork_child(self) -> Child:
        ours, theirs = socket.socketpair()
        with theirs, self._forking:
            try:
                if self._keeper is None and self._order_keeper is not None:
                    self._start_keeper(self._order_keeper)
                socket.send_fds(self._orders, [b"."], [theirs.fileno()])
                answer, pidfds, _, _ = socket.recv_fds(self._orders, 1, 1)
                if answer and not pidfds:
                    ours.close()
                    raise ComputeChildLost("it could not be forked, or its descriptor not be opened here")
                (pidfd,) = pidfds
            except (OSError, ValueError):  # or it takes too long
                ours.close()
                self._orders.close()  # those behind this one need not wait as long
                self._lose_keeper()
        return Child(Connection(ours.detach()), pidfd)

    def _lose_keeper(self) -> NoReturn:
        logger.error("keeper_of_compute_children_lost")
        os.kill(os.getpid(), signal.SIGQUIT)  # stops without grace, for its supervisor to start a fresh one
        raise HandBack

    def keep(self, orders: socket.socket) -> None:
        """Fork a child for each connection that comes, and hand back a descriptor of its process."""
        while True:
            _, descriptors, _, _ = socket.recv_fds(orders, 1, 1)
            if not descriptors:
                return
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            try:
                pid = self._fork(partial(self._serve, orders, descriptors[0]))
            except OSError:  # no more tasks or memory: the other children go on
                logger.exception("compute_child_not_forked")
                orders.send(b".")
                continue
            finally:
                os.close(descriptors[0])
            pidfd = os.pidfd_open(pid)
            socket.send_fds(orders, [b"."], [pidfd])
            os.close(pidfd)

    def _serve(self, orders: socket.socket, descriptor: int) -> None:
        orders.close()
        connection, calls = Connection(descriptor), 0
        with suppress(EOFError, ConnectionError):
            while True:
                reply = _reply(connection.recv_bytes())
                calls += 1
                is_old = calls >= self._most_calls or _resident_kib() > self._most_kib
                connection.send_bytes((_IS_LAST if is_old else _GOES_ON) + reply)

    def _fork(self, run: Callable[[], None]) -> int:
        if pid := os.fork():
            return pid
        try:
            ignore_stops()
            gc.enable()
            self._prepare()
            run()
        except BaseException:
            logger.exception("compute_process_broke_off")
        finally:
            os._exit(0)


def ignore_stops() -> None:
    """Let no signal stop this process: it ends with the worker that it works for."""
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)


def _has_ended(pidfd: int, *, milliseconds: int = 0) -> bool:
    ends = select.poll()
    ends.register(pidfd, select.POLLIN)
    return bool(ends.poll(milliseconds))


_GOES_ON, _IS_LAST = b"+", b"-"


class _Reply(NamedTuple):
    steps: list[Step]
    value: Any
    error: Exception | None


def _reply(call: bytes) -> bytes:
    steps: list[Step] = []
    try:
        work, values, named = pickle.loads(call)
        with collecting(steps):
            value = work(*values, **named)
        return pickle.dumps(_Reply(steps, value, None), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001  # it is raised in the worker
        error.add_note(traceback.format_exc())
        return _failure(steps, error)


def _failure(steps: list[Step], error: Exception) -> bytes:
    try:
        reply = pickle.dumps(_Reply(steps, None, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(reply)
    except Exception:  # noqa: BLE001  # an error that does not travel is still no death
        return pickle.dumps(_Reply(steps, None, RuntimeError(f"{error!r}")), pickle.HIGHEST_PROTOCOL)
    return reply


def _resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
