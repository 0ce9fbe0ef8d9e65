"""A sign of life that a process leaves in a file, for whoever starts processes: it says when that was last well.

`python -m monitoring.heartbeat FILE [SECONDS]` tells by its exit code whether the process still is. Such a check runs
every few seconds beside everything else, so this module loads nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

SILENT_SECONDS = 30.0
"""A process that has been silent for so long is not well."""


def beat(path: Path) -> None:
    """Say that this process is well now. The clock is the machine's since its start, which nobody sets."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(f"{time.monotonic()}\n")
    fresh.replace(path)


def is_well(path: Path, *, silent_seconds: float = SILENT_SECONDS) -> bool:
    """Tell whether the process that writes to `path` was well within the last seconds."""
    try:
        since = time.monotonic() - float(path.read_text())
    except (OSError, ValueError):
        return False
    return 0 <= since <= silent_seconds


def main(argv: Sequence[str]) -> int:
    """Return the exit code that says whether the process which writes to a file is well."""
    match argv:
        case [path]:
            return 0 if is_well(Path(path)) else 1
        case [path, seconds]:
            return 0 if is_well(Path(path), silent_seconds=float(seconds)) else 1
    sys.stderr.write("usage: python -m monitoring.heartbeat FILE [SECONDS]\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
