"""The owner label of what a process makes on the engine, by which others tell whether that process still lives.

It holds the machine's boot, the process namespace, the process id and its start time. From another machine or namespace
nobody can tell whether the owner lives; there only the deadline counts.
"""

import os
from contextlib import suppress
from pathlib import Path

_START_FIELD = 19
"""Index of the start time in /proc/PID/stat, after the command's closing bracket."""
_STATE_FIELD = 0


def current_owner() -> str:
    """Return the owner label of this process."""
    pid = os.getpid()
    return f"{_namespace()}.{pid}.{_start_of(pid)}"


def is_alive(owner: str) -> bool | None:
    """Return whether a label's process is alive; None if that cannot be told from here."""
    rest, _, started = owner.rpartition(".")
    namespace, _, pid = rest.rpartition(".")
    if namespace != _namespace() or not pid.isdigit():
        return None
    return _start_of(int(pid)) == started


def _namespace() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}-{namespace}"


def _start_of(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty if it is gone or a zombie."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[_STATE_FIELD] in "ZX" else fields[_START_FIELD]
    return ""
