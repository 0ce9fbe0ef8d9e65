"""Children that compute for a pool of threads."""

import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from workers import compute
from workers.compute import Child, Children, children_within
from workers.errors import ComputeChildLost, HandBack

ROUNDS = 40


class Watching:
    """An attempt that notes which process it would kill."""

    killable = 0

    def check(self) -> None:
        pass

    @contextmanager
    def holding(self, child: Child) -> Iterator[None]:
        info = Path(f"/proc/self/fdinfo/{child._pidfd}").read_text()
        self.killable = int(info.split("Pid:")[1].split()[0])
        yield


def fork_side_by_side() -> int:
    """Return for how many calls of two threads the process that computed was not the one to be killed."""
    children = Children(lambda: None, most_calls=1, most_kib=1 << 30)
    children.start()
    wrong: list[int] = []

    def call_often() -> None:
        for _ in range(ROUNDS):
            attempt = Watching()
            computed = children.run([], attempt, (os.getpid, (), {}))
            if computed != attempt.killable:
                wrong.append(computed)

    threads = [threading.Thread(target=call_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong)


def await_end(pid: int) -> None:
    """Wait until a process has ended, reaped or not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.01)


def outlive_an_idle_child() -> int:
    """Return 0 if the next call is computed all the same."""
    children = Children(lambda: None, most_calls=9, most_kib=1 << 30)
    children.start()
    died = children.run([], Watching(), (os.getpid, (), {}))
    os.kill(died, signal.SIGKILL)
    await_end(died)
    return int(children.run([], Watching(), (os.getpid, (), {})) == died)


def hand_back_after_the_keeper_died() -> int:
    """Return 0 if an attempt that has not begun to compute is handed back, and its worker told to stop."""
    children, keeper, stops = start_kept()
    computed = children.run([], Watching(), (os.getpid, (), {}))
    os.kill(keeper, signal.SIGKILL)
    os.kill(computed, signal.SIGKILL)  # as its own death signal does
    os.waitpid(keeper, 0)
    await_end(computed)
    try:
        children.run([], Watching(), (os.getpid, (), {}))
    except HandBack:
        return 0 if stops else 1
    return 2


def start_kept() -> tuple[Children, int, list[int]]:
    """Return children, the process that keeps them, and what will tell their worker to stop."""
    stops: list[int] = []
    signal.signal(signal.SIGQUIT, lambda signum, _: stops.append(signum))
    children = Children(lambda: None, most_calls=9, most_kib=1 << 30)
    children.start()
    [keeper] = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    return children, keeper, stops


def hand_back_when_the_keeper_dies_at_work() -> int:
    """Return 0 if an attempt whose child died with the keeper is handed back, as no fault of its own."""
    children, keeper, stops = start_kept()
    children.run([], Watching(), (os.getpid, (), {}))
    threading.Timer(0.3, os.kill, (keeper, signal.SIGKILL)).start()
    try:
        children.run([], Watching(), (compute_on, (), {}))
    except HandBack:
        return 0 if stops else 1
    return 2


def compute_on() -> None:
    """Compute until the keeper dies, as a pool child does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    time.sleep(30)


def hand_back_after_the_keeper_hung() -> int:
    """Return 0 if a keeper that answers nobody costs no more than the time it has."""
    compute.FORK_SECONDS = 0.3
    children, keeper, stops = start_kept()
    os.kill(keeper, signal.SIGSTOP)
    try:
        children.run([], Watching(), (os.getpid, (), {}))
    except HandBack:
        return 0 if stops else 1
    finally:
        os.kill(keeper, signal.SIGKILL)
    return 2


def order_a_keeper_with_the_first_call() -> int:
    """Return 0 if the process that forks for this one does so once, when there is something to compute."""
    ordered: list[int] = []

    def fork(orders: socket.socket) -> int:
        ordered.append(orders.fileno())
        return children._fork_keeper(orders)

    children = Children(lambda: None, most_calls=1, most_kib=1 << 30, order_keeper=fork)
    children.start()
    if ordered:
        return 1
    computed = {children.run([], Watching(), (os.getpid, (), {})) for _ in range(3)}
    return 0 if len(ordered) == 1 and len(computed) == 3 else 2


def hand_back_when_no_keeper_comes() -> int:
    """Return 0 if a process that forks nothing in time is a lost keeper."""
    stops: list[int] = []
    signal.signal(signal.SIGQUIT, lambda signum, _: stops.append(signum))

    def fail(orders: socket.socket) -> NoReturn:
        raise TimeoutError

    children = Children(lambda: None, most_calls=1, most_kib=1 << 30, order_keeper=fail)
    children.start()
    try:
        children.run([], Watching(), (os.getpid, (), {}))
    except HandBack:
        return 0 if stops else 1
    return 2


def outlive_a_fork_that_fails() -> int:
    """Return 0 if a fork that fails costs one call, and nothing else."""
    fork, tries = os.fork, iter((False, True, False))

    def fork_sometimes() -> int:
        if next(tries):
            raise BlockingIOError
        return fork()

    def prepare() -> None:
        os.fork = fork_sometimes

    children = Children(prepare, most_calls=1, most_kib=1 << 30)
    children.start()
    lost = 0
    for _ in range(3):
        try:
            children.run([], Watching(), (os.getpid, (), {}))
        except ComputeChildLost:
            lost += 1
    return abs(lost - 1)


def outlive_a_lack_of_files() -> int:
    """Return 0 if a child whose descriptor cannot be opened costs one call, and nothing else."""
    children = Children(lambda: None, most_calls=1, most_kib=1 << 30)
    children.start()
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, most))  # room for both ends of its connection
    try:
        children.run([], Watching(), (os.getpid, (), {}))
    except ComputeChildLost:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
        return int(children.run([], Watching(), (os.getpid, (), {})) == 0)
    return 2


class UntoldError(Exception):
    """An error that does not pickle."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class UnreadError(Exception):
    """An error that pickles, and cannot be read again."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one + other)


def fail(error: str) -> NoReturn:
    raise UntoldError if error == "untold" else UnreadError(1, 2)


def tell_what_does_not_pickle() -> int:
    """Return 0 if a call's error is told, and not taken for its child's death or for another one."""
    children = Children(lambda: None, most_calls=9, most_kib=1 << 30)
    children.start()
    told = []
    for error in ("untold", "unread"):
        try:
            children.run([], Watching(), (fail, (error,), {}))
        except RuntimeError as why:
            told.append(str(why))
    return 0 if told == ["UntoldError()", "UnreadError(3)"] else 1


PROBES = (
    fork_side_by_side,
    outlive_an_idle_child,
    hand_back_after_the_keeper_died,
    hand_back_when_the_keeper_dies_at_work,
    hand_back_after_the_keeper_hung,
    hand_back_when_no_keeper_comes,
    order_a_keeper_with_the_first_call,
    outlive_a_fork_that_fails,
    outlive_a_lack_of_files,
    tell_what_does_not_pickle,
)
ALONE = f"""
import sys
from multiprocessing import get_context
from {__name__} import PROBES
for probe in PROBES:
    child = get_context("fork").Process(target=lambda: sys.exit(probe()))
    child.start()
    child.join()
    print(child.exitcode)
"""


@pytest.fixture(scope="module")
def ended() -> list[str]:
    """What each probe returns in a process of its own, of one thread; all are forked from one that has imported it."""
    return subprocess.check_output([sys.executable, "-c", ALONE], timeout=60, text=True).split()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PROBES)), ids=[probe.__name__ for probe in PROBES])
def test_a_call_fails_only_by_what_happens_to_itself_and_is_ended_alone(number: int, ended: list[str]) -> None:
    assert ended[number] == "0"


@pytest.mark.parametrize(
    ("cpus", "mebibytes", "children"),
    [(64, None, 4), (3, None, 3), (0.5, None, 2), (64, 1536, 2), (64, 2560, 4), (64, 1024, 1), (64, 300, 1)],
)
def test_a_worker_and_its_children_fit_into_what_their_container_may_use(
    cpus: float, mebibytes: int | None, children: int
) -> None:
    memory = None if mebibytes is None else mebibytes << 20
    assert children_within(cpus, memory, most_kib=512 << 10) == children
