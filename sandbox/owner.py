"""Which process owns an object that outlives processes, and whether it still lives.

A label says the machine's boot, the process namespace, the process id and its start time. Who reads it from another
machine or namespace cannot tell, and must go by the deadline.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_START_FIELD = 19
"""Place of the start time in /proc/PID/stat, counted after the command's closing bracket."""
_STATE_FIELD = 0


def this_owner() -> str:
    """Return the label of this process."""
    pid = os.getpid()
    return f"{_place()}.{pid}.{_start_of(pid)}"


def is_alive(owner: str) -> bool | None:
    """Return whether a label's process lives; None when that cannot be told from here."""
    place, _, rest = owner.rpartition(".")[0].rpartition(".")
    started = owner.rpartition(".")[2]
    if place != _place() or not rest.isdigit():
        return None
    return _start_of(int(rest)) == started


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}-{namespace}"


def _start_of(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty when there is none, or only its zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[_STATE_FIELD] in "ZX" else fields[_START_FIELD]
    return ""
