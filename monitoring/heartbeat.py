"""Heartbeat files, for whatever supervises processes.

`python -m monitoring.heartbeat FILE [SECONDS]` exits with 0 if the process is well. It runs every few seconds, so this
module imports only the standard library.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SILENT_SECONDS = 30.0
"""The age at which a heartbeat counts as lost."""


def beat(path: Path) -> None:
    """Record that this process is well now, by the machine's monotonic clock."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(f"{time.monotonic()}\n")
    fresh.replace(path)


def is_well(path: Path, *, silent_seconds: float = SILENT_SECONDS) -> bool:
    """Whether the process that writes to `path` was well within the last seconds."""
    try:
        since = time.monotonic() - float(path.read_text())
    except (OSError, ValueError):
        return False
    return 0 <= since <= silent_seconds


def main(argv: Sequence[str]) -> int:
    """Return the exit code for a heartbeat file."""
    match argv:
        case [path]:
            return 0 if is_well(Path(path)) else 1
        case [path, seconds]:
            return 0 if is_well(Path(path), silent_seconds=float(seconds)) else 1
    sys.stderr.write("usage: python -m monitoring.heartbeat FILE [SECONDS]\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
