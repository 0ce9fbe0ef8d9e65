"""Whether the process that made something on the engine still lives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.owner import current_owner, is_alive


@pytest.mark.threat("A13")
def test_a_process_is_known_to_live_or_to_be_dead_its_zombie_too() -> None:
    own = current_owner()
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
