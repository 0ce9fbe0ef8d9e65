"""One side of a race in a process of its own: `python -m benchmarks.turns MODULE` runs MODULE's operation on demand.

It says when it is ready. Then a number that comes in on a line is how often to run it, and what goes out is the seconds
that took. A module whose turn is more than its operation again and again offers a `turn` instead. It imports nothing
but the standard library, so that it runs in a peer's environment, too. `--calls` counts instead of timing.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

_WARM = 10


def seconds(operation: Callable[[], object], times: int) -> float:
    """Return how long it takes to do something so often."""
    began = time.perf_counter()
    for _ in range(times):
        operation()
    return time.perf_counter() - began


def calls(operation: Callable[[], object]) -> int:
    """Return how many calls, of Python's functions and of C's, one run makes: the same on every machine.

    The runs before it open connections, prepare statements and fill caches.
    """
    for _ in range(_WARM):
        operation()
    profile = cProfile.Profile()
    profile.runcall(operation)
    return int(vars(pstats.Stats(profile))["total_calls"])


def main() -> None:
    """Serve until the input ends."""
    side = import_module(sys.argv[1])
    if "--calls" in sys.argv:
        print(calls(side.operation()))
        return
    turn = side.turn() if hasattr(side, "turn") else partial(seconds, side.operation())
    print("ready", flush=True)
    for line in sys.stdin:
        print(turn(int(line)), flush=True)


if __name__ == "__main__":
    main()
