"""Children that compute for a pool of threads."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from workers.compute import Child, Children

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


@pytest.mark.slow
def test_an_attempt_kills_its_own_child_and_no_other() -> None:
    script = f"import sys; from {__name__} import fork_side_by_side; sys.exit(fork_side_by_side())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
