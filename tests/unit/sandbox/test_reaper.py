import os
import subprocess
import sys
import threading
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from sandbox.docker.engine import Engine, Leftover
from sandbox.owner import is_alive, this_owner
from sandbox.reaper import Reaper, is_due, keep_swept

LABELS = {"pointsman.install": "test", "pointsman.slot": "1", "pointsman.owner": "me", "pointsman.deadline": "1000"}


def due(*, now: float = 999, owner_lives: bool | None = True, **labels: str | None) -> bool:
    kept = {name: value for name, value in (LABELS | {f"pointsman.{k}": v for k, v in labels.items()}).items() if value}
    return is_due(Leftover("container", "x", kept), now=now, judge=lambda owner: owner_lives)


@pytest.mark.threat("A13")
def test_what_a_living_worker_uses_stays_until_its_deadline_and_what_a_dead_one_left_goes() -> None:
    assert not due()
    assert due(owner_lives=False)
    assert due(now=1000)


@pytest.mark.threat("A13")
def test_what_its_owner_could_not_remove_goes_though_the_owner_lives() -> None:
    given_up = Leftover("volume", "x", LABELS)
    assert is_due(given_up, now=999, judge=lambda owner: True, given_up={"1"})
    assert not is_due(given_up, now=999, judge=lambda owner: True, given_up={"2"})


def test_an_owner_whom_nobody_here_can_judge_is_left_to_the_deadline() -> None:
    assert not due(owner_lives=None)
    assert due(owner_lives=None, now=1000)


@pytest.mark.parametrize("deadline", [None, "soon", "-5", ""])
def test_a_label_that_says_nothing_protects_nothing(deadline: str | None) -> None:
    assert due(deadline=deadline)


def test_the_outer_network_is_the_installations_and_stays() -> None:
    assert not due(kind="outer", owner=None, deadline=None, now=10**12)


@pytest.mark.threat("A13")
def test_a_process_is_known_to_live_or_to_be_dead_its_zombie_too() -> None:
    own = this_owner()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    place, start = own.rpartition(".")[0].rpartition(".")[0], own.rpartition(".")[2]
    childs = f"{place}.{child.pid}.{Path(f'/proc/{child.pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    try:
        assert is_alive(own) is True
        assert is_alive(childs) is True
        assert is_alive(f"{place}.{os.getpid()}.{int(start) + 1}") is False
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_alive(childs) is False
    finally:
        child.communicate()
    assert is_alive(childs) is False


@pytest.mark.parametrize("owner", ["", "x", "elsewhere-1.5.6", "a.b.c.d", "..", "1.2"])
def test_a_process_elsewhere_cannot_be_judged(owner: str) -> None:
    assert is_alive(owner) is None


def test_a_sweep_that_finds_no_engine_is_tried_again_until_told_to_stop(caplog: pytest.LogCaptureFixture) -> None:
    class Stopping(threading.Event):
        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            return self.waits == 3

    nowhere = Engine("unix:///nonexistent/docker.sock", install="test", subnets=IPv4Network("10.213.0.0/16"))
    keep_swept(Reaper(nowhere), Stopping())

    assert [record.message for record in caplog.records] == ["sweep_failed"] * 3
    assert {record.__dict__["reason"] for record in caplog.records} == {"engine_missing"}
