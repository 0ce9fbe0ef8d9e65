"""Loaded by a process with a wrong clock as it starts: under libfaketime `time.sleep` of Python 3.11 raises EINVAL.

The library refuses `clock_nanosleep` until a moment of a clock that it was told to leave alone (and told to skew that
one too, it lets waits for a lock hang). So sleeping is done by `select`, which it does not touch.
"""

import select
import time


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
