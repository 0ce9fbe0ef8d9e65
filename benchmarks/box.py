"""What a box costs: how long until its first command runs, and what a session spends outside the CLI, step by step.

It runs on an engine of its own and on the whole product (see tests/engine.py), so it needs what the tests of boxes
need: root, dockerd, iproute2. The model answers at once: what is measured here is ours.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.answer import Answer, Comparison
from benchmarks.question import Survey
from routing.jobs import ENDS
from sandbox.box import Box, Clocks
from sandbox.boxes import build_maker, build_pool
from sandbox.reaper import Reaper
from tests.box.fleet import Fleet, running_fleet
from tests.engine import TestEngine, missing

_TIMES_AS_FAST = 4
"""A warm start beside a cold one."""
_CLOCKS = Clocks(soft_seconds=30, hard_seconds=40)
_PATIENCE_SECONDS = 120
_CLI_STEP = "execute"
_PAGE = "<!doctype html>\n<title>Cafe</title>\n<main><h1>Welcome</h1></main>\n"


class Sessions(NamedTuple):
    """What some sessions took, in seconds: a figure for each of them."""

    steps: Mapping[str, Sequence[float]]
    """By step, in their order."""
    whole: Sequence[float]
    """From claim to settlement."""

    @property
    def outside(self) -> list[float]:
        """All but the CLI's own step, what lies between the steps included."""
        return [whole - cli for whole, cli in zip(self.whole, self.steps[_CLI_STEP], strict=True)]


def measure(repetitions: int) -> Answer:
    """Measure on an engine of our own."""
    if why := missing():
        sys.exit(f"bench: {why}")
    with TestEngine() as daemon:
        daemon.build_image()
        starts = acquire_times(daemon, repetitions)
        with running_fleet(daemon, speed="max") as fleet:
            sessions = session_steps(fleet, repetitions)
    return answer(starts, sessions, repetitions)


def answer(starts: Mapping[str, Sequence[float]], sessions: Sessions, repetitions: int) -> Answer:
    """Return what was measured as a table."""
    rows = [(f"acquire to first exec, {kind}", *_summary(times)) for kind, times in starts.items()]
    rows += [(f"step {name}", *_summary(times)) for name, times in sessions.steps.items()]
    rows += [("session outside the CLI", *_summary(sessions.outside)), ("session", *_summary(sessions.whole))]
    return Answer(
        question="What does a box cost? Seconds",
        heads=("", "p50", "least", "most"),
        rows=tuple(rows),
        comparisons=(
            Comparison(
                "a cold box, to its first command", tuple(starts["warm"]), tuple(starts["cold"]), _TIMES_AS_FAST
            ),
        ),
        notes=(f"{repetitions} of each, interleaved; approval, publish and unlock are of the jobs' second half.",),
    )


def acquire_times(daemon: TestEngine, repetitions: int) -> dict[str, list[float]]:
    """Return how long it took from asking for a box to the end of its first command."""
    config = daemon.config(install="bench")
    engine = daemon.open(install="bench")
    maker, pool = build_maker(config, engine), build_pool(config, engine)
    times: dict[str, list[float]] = {"cold": [], "warm": []}
    try:
        maker.create().close()  # the first box after the engine's start pays for its caches
        for _ in range(repetitions):
            times["cold"].append(_first_command(maker.create, lambda: None))
            pool.fill()
            assert pool.wait_until_filled(seconds=_PATIENCE_SECONDS)
            times["warm"].append(
                _first_command(pool.acquire, lambda: pool.wait_until_filled(seconds=_PATIENCE_SECONDS))
            )
    finally:
        pool.close()
        Reaper(engine).clear()
        engine.close()
    return times


def _first_command(acquire: Callable[[], Box], settle: Callable[[], object]) -> float:
    began = time.monotonic()
    box = acquire()
    assert box.run(["true"], clocks=_CLOCKS).is_success
    seconds = time.monotonic() - began
    settle()  # the next spare is being made: not while somebody else is timed
    box.close()
    return seconds


def session_steps(fleet: Fleet, repetitions: int) -> Sessions:
    """Run jobs of tier 3 one after the other to their publish, and read their steps from the ledger."""
    steps: dict[str, list[float]] = {}
    whole = []
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "index.html").write_text(_PAGE)
        fleet.run("site", "import", "bench", directory)
    for number in range(repetitions):
        job_id = fleet.submit(f"Add a line about day {number} to index.html", site="bench", tier="agent", pin=True)
        fleet.wait_for_state(job_id, "awaiting_approval", seconds=_PATIENCE_SECONDS)
        fleet.run("approve", str(job_id))
        assert fleet.wait_for_state(job_id, *ENDS, seconds=_PATIENCE_SECONDS) == "published"
        query = "SELECT data ->> 'step', (data ->> 'seconds')::float FROM event WHERE kind = 'step' AND job_id = :id"
        for name, seconds in fleet.rows(f"{query} ORDER BY id", id=job_id):
            steps.setdefault(name, []).append(seconds)
        took = "SELECT extract(epoch FROM ended_at - started_at)::float FROM attempt"
        whole += [seconds for (seconds,) in fleet.rows(f"{took} WHERE job_id = :id AND queue = 'agent'", id=job_id)]
    return Sessions(steps, whole)


def _summary(times: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(times), min(times), max(times)


QUESTION = Survey("box", measure)
