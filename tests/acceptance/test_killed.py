"""`pointsman up` leaves nothing behind, even when it is killed, and starts again where it was."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.services import wait_until


@pytest.fixture
def home() -> Iterator[Path]:
    # Not below pytest's own directory: as root the database runs as another user, who has no way in there.
    with tempfile.TemporaryDirectory(prefix="pointsman-killed-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch) / "home"


def up(home: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "producers.cli", "up", "--home", str(home), "--port", "0", "--speed", "max"]
    environment = os.environ | {"HOME": str(home.parent), "XDG_DATA_HOME": str(home.parent)}
    with (home.parent / "up.log").open("wb") as log:
        return subprocess.Popen(argv, env=environment, stdout=log, stderr=log)


def says(home: Path, words: str) -> bool:
    return words in " ".join((home.parent / "up.log").read_text().split())


def processes(home: Path, owner: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Everything that the installation runs; the database is nobody's child."""
    database = psutil.Process(int((home / "postgres" / "postmaster.pid").read_text().split()[0]))
    return [database, *psutil.Process(owner.pid).children(recursive=True)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.timeout(240)
def test_an_installation_that_is_killed_leaves_no_process_and_starts_again(home: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGINT):
        owner = up(home)
        try:
            wait_until(lambda: says(home, "Ctrl-C stops everything"), seconds=60, what="it is up")
            found = processes(home, owner)
            if number is signal.SIGKILL:
                second = up(home)
                assert second.wait(60) == 1
                assert says(home, "is used by another installation that runs")
        finally:
            owner.send_signal(number)
            owner.wait(30)
        wait_until(
            lambda left=found: not [process for process in left if is_alive(process)],  # type: ignore[misc]
            seconds=30, what=f"nothing is left after {number.name}",
        )  # fmt: skip
