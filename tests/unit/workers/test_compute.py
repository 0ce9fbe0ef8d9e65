"""Children that compute for a pool of threads."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import pytest

from workers.compute import Child, Children
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
            computed = children.run([], attempt, (os.getpid, (), {}))  # type: ignore[arg-type]
            if computed != attempt.killable:
                wrong.append(computed)

    threads = [threading.Thread(target=call_often) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(wrong)


def run_alone(probe: str) -> int:
    """Return what a function of this module returns in a process of one thread."""
    script = f"import sys; from {__name__} import {probe}; sys.exit({probe}())"
    return subprocess.run([sys.executable, "-c", script], timeout=60, check=False).returncode


def await_end(pid: int) -> None:
    """Wait until a process has ended, reaped or not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            time.sleep(0.01)


def outlive_an_idle_child() -> int:
    """Return 0 if the next call is computed all the same."""
    children = Children(lambda: None, most_calls=9, most_kib=1 << 30)
    children.start()
    died = children.run([], Watching(), (os.getpid, (), {}))  # type: ignore[arg-type]
    os.kill(died, signal.SIGKILL)
    await_end(died)
    return int(children.run([], Watching(), (os.getpid, (), {})) == died)  # type: ignore[arg-type]


def hand_back_after_the_keeper_died() -> int:
    """Return 0 if an attempt that has not begun to compute is handed back, and its worker told to stop."""
    stops: list[int] = []
    signal.signal(signal.SIGQUIT, lambda signum, _: stops.append(signum))
    children = Children(lambda: None, most_calls=9, most_kib=1 << 30)
    children.start()
    [keeper] = map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    computed = children.run([], Watching(), (os.getpid, (), {}))  # type: ignore[arg-type]
    os.kill(keeper, signal.SIGKILL)
    os.kill(computed, signal.SIGKILL)  # as its own death signal does
    os.waitpid(keeper, 0)
    await_end(computed)
    try:
        children.run([], Watching(), (os.getpid, (), {}))  # type: ignore[arg-type]
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
            children.run([], Watching(), (os.getpid, (), {}))  # type: ignore[arg-type]
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
        children.run([], Watching(), (os.getpid, (), {}))  # type: ignore[arg-type]
    except ComputeChildLost:
        resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
        return int(children.run([], Watching(), (os.getpid, (), {})) == 0)  # type: ignore[arg-type]
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
            children.run([], Watching(), (fail, (error,), {}))  # type: ignore[arg-type]
        except RuntimeError as why:
            told.append(str(why))
    return 0 if told == ["UntoldError()", "UnreadError(3)"] else 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "probe",
    [
        outlive_an_idle_child,
        hand_back_after_the_keeper_died,
        outlive_a_fork_that_fails,
        outlive_a_lack_of_files,
        tell_what_does_not_pickle,
    ],
)
def test_a_call_fails_only_by_what_happens_to_itself(probe: Callable[[], int]) -> None:
    assert run_alone(probe.__name__) == 0


@pytest.mark.slow
def test_an_attempt_kills_its_own_child_and_no_other() -> None:
    assert run_alone(fork_side_by_side.__name__) == 0
