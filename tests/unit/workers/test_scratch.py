"""Temporary files of workers, looked at from outside: each is a process that can be killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import wait_until
from workers.scratch import sweep_scratch

_WORKER = """
import multiprocessing.util, os, sys
from workers.scratch import create_scratch
create_scratch()
multiprocessing.util.get_temp_dir()
if "child" in sys.argv and os.fork():
    print("ready", flush=True)
    os.kill(os.getpid(), 9)
if "child" not in sys.argv:
    print("ready", flush=True)
sys.stdin.read()
"""


def start(base: Path, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, *words],
        env=os.environ | {"TMPDIR": str(base)},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> str:
    """Return what it complained of."""
    return process.communicate(timeout=20)[1]


def directories(base: Path) -> list[Path]:
    return sorted(base.glob("pointsman-worker-*"))


def test_a_worker_that_ends_leaves_nothing_and_complains_of_nothing(tmp_path: Path) -> None:
    worker = start(tmp_path)
    [own] = directories(tmp_path)
    assert list(own.glob("pymp-*")), "what libraries put aside is in it"
    assert end(worker) == ""
    assert directories(tmp_path) == []


def test_what_a_killed_worker_left_goes_with_the_next_start_and_a_live_one_keeps_its_own(tmp_path: Path) -> None:
    killed, living = start(tmp_path), start(tmp_path)
    killed.send_signal(signal.SIGKILL)
    end(killed)
    assert len(directories(tmp_path)) == 2
    third = start(tmp_path)
    assert len(directories(tmp_path)) == 2
    end(living)
    end(third)
    assert directories(tmp_path) == []


def test_children_that_outlive_their_worker_keep_its_directory(tmp_path: Path) -> None:
    worker = start(tmp_path, "child")
    wait_until(lambda: worker.poll() is not None, seconds=10, what="the worker is dead")
    assert sweep_scratch(tmp_path) == []
    end(worker)  # its child reads the end of the same pipe
    wait_until(lambda: sweep_scratch(tmp_path), seconds=10, what="nobody holds it any more")


def test_a_directory_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "pointsman-worker-link").symlink_to(elsewhere)
    assert sweep_scratch(tmp_path) == []
    assert elsewhere.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's directory")
def test_another_user_s_directory_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "pointsman-worker-other"
    other.mkdir()
    os.chown(other, 12345, 12345)
    assert sweep_scratch(tmp_path) == []
