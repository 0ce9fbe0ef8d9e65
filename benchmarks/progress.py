"""What a run is at, on the standard error: the answers go to the standard output."""

from __future__ import annotations

import sys
import time

_BEGAN = time.monotonic()


def say(what: str) -> None:
    """Say it, and how many seconds the run has taken so far."""
    print(f"bench: {time.monotonic() - _BEGAN:4.0f} s: {what}", file=sys.stderr, flush=True)
