"""What a box costs: how long until its first command runs, and what a session spends outside the CLI, step by step.

It runs on an engine of its own and on the whole product (see tests/engine.py), so it needs what the tests of boxes
need: root, dockerd, iproute2. The model answers at once: what is measured here is ours.
"""

from __future__ import annotations

import io
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.answer import Answer, Comparison
from benchmarks.engine import box_engine
from benchmarks.question import Survey, say
from routing.jobs import ENDS
from sandbox.box import Box
from sandbox.box_spec import WORKSPACE, BoxSpec
from sandbox.docker.engine import Engine
from sandbox.docker.recipe import Slot, box_container, workspace_volume
from sandbox.execution import Clocks
from sandbox.pool import Reaper, build_maker, build_pool, build_spec
from tests.box.fleet import Fleet, running_fleet
from tests.engine import TestEngine

_CLOCKS = Clocks(soft_seconds=30, hard_seconds=40)
_PATIENCE_SECONDS = 120
_CLI_STEP = "execute"
_TURN = ("provision", _CLI_STEP)
_HANDLING = ("provision", "inject", "extract", "teardown")
"""What a session does with its box beside the CLI's own time."""
_FILES = 100
_PAGE = "<!doctype html>\n<title>Cafe</title>\n<main><h1>Welcome</h1></main>\n"
_WORDS = "Bread rises slowly where it is cool. "


class Sessions(NamedTuple):
    """What some sessions took, in seconds: a figure for each of them."""

    steps: dict[str, list[float]]
    """By step, in their order."""
    whole: list[float]
    """From claim to settlement."""

    @property
    def outside(self) -> list[float]:
        """All but the CLI's own step, what lies between the steps included."""
        return [whole - cli for whole, cli in zip(self.whole, self.steps[_CLI_STEP], strict=True)]

    def together(self, names: Sequence[str]) -> tuple[float, ...]:
        """Return what some of the steps took together."""
        return tuple(map(sum, zip(*(self.steps[name] for name in names), strict=True)))


def measure(repetitions: int) -> Answer:
    """Measure on an engine of our own."""
    with box_engine() as daemon:
        say("box: acquire to first command")
        starts = acquire_times(daemon, repetitions)
        say("box: sessions, and the bare SDK calls between them")
        with (
            running_fleet(daemon, speed="max") as pooled,
            running_fleet(daemon, speed="max", warm=0) as cold,
            bare_session(daemon) as bare,
        ):
            sessions, calls = session_steps([pooled, cold], repetitions, between=bare)
    return answer(starts, *sessions, bare=calls)


def answer(starts: Mapping[str, Sequence[float]], pooled: Sessions, cold: Sessions, *, bare: Sequence[float]) -> Answer:
    """Return what was measured as a table.

    Args:
        starts: seconds to the first command, by kind of start.
        pooled: sessions in boxes that had been ready.
        cold: sessions in boxes that were not.
        bare: what the SDK's own calls for such a session take.
    """
    rows = [(f"acquire to first exec, {kind}", *_summary(times)) for kind, times in starts.items()]
    rows += [(f"step {name}", *_summary(times)) for name, times in pooled.steps.items()]
    rows += [("session outside the CLI", *_summary(pooled.outside)), ("session", *_summary(pooled.whole))]
    return Answer(
        question="What a box costs",
        heads=("seconds", "p50", "least", "most"),
        rows=tuple(rows),
        comparisons=(
            Comparison(
                "a cold box, to its first command",
                tuple(starts["warm"]),
                tuple(starts["cold"]),
                target=4,
                ours_is="a warm box, to its first command",
            ),
            Comparison(
                "the same in a cold box",
                pooled.together(_TURN),
                cold.together(_TURN),
                target=2,
                ours_is="a turn of the CLI that writes one file, in a pooled box",
            ),
            Comparison(
                "the bare SDK calls for it",
                pooled.together(_HANDLING),
                tuple(bare),
                target=1 / 1.3,
                ours_is=f"a session's box, {_FILES} files and 1 MB in and out",
            ),
        ),
        notes=(f"{len(bare)} of each, interleaved; approval, publish and unlock are of the jobs' second half.",),
    )


@contextmanager
def bare_session(daemon: TestEngine) -> Iterator[Callable[[], float]]:
    """Yield what times the SDK's own calls that a session cannot do without: make, fill, read and remove a box."""
    config = daemon.config(install="bare")
    engine = daemon.open(install="bare")
    spec, packed = build_spec(config, engine), _packed(pages())
    try:
        _bare_calls(engine, spec, packed)  # the first pays for the engine's caches
        yield lambda: _bare_calls(engine, spec, packed)
    finally:
        engine.close()


def _bare_calls(engine: Engine, spec: BoxSpec, packed: bytes) -> float:
    slot, client = Slot.new("bare", "bench", lifetime_seconds=600), engine.client
    wanted = box_container(slot, spec, forwarder="127.0.0.1", lifetime_seconds=600) | {"network_mode": "none"}
    wanted = {name: value for name, value in wanted.items() if name not in ("network", "extra_hosts", "auto_remove")}
    began = time.monotonic()
    volume = client.volumes.create(**workspace_volume(slot, spec))
    container = client.containers.create(**wanted)
    container.start()
    container.put_archive(WORKSPACE, packed)
    assert sum(map(len, container.get_archive(WORKSPACE)[0])) > len(packed) / 2
    container.remove(force=True)
    volume.remove()
    return time.monotonic() - began


def pages() -> dict[str, bytes]:
    """Return the files of a site of 1 MB, of which the job edits the first."""
    filler = f"<!doctype html>\n<title>Notes</title>\n<p>{_WORDS * 280}</p>\n"
    return {"index.html": _PAGE.encode()} | {f"notes-{number}.html": filler.encode() for number in range(_FILES - 1)}


def _packed(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


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


def session_steps(
    fleets: Sequence[Fleet], repetitions: int, *, between: Callable[[], float]
) -> tuple[list[Sessions], list[float]]:
    """Run jobs of tier 3 to their publish, one fleet and one job after the other; read their steps from the ledgers.

    Returns:
        The sessions of each fleet, and the seconds of what was done between them.
    """
    with tempfile.TemporaryDirectory() as directory:
        for name, content in pages().items():
            (Path(directory) / name).write_bytes(content)
        for fleet in fleets:
            fleet.run("site", "import", "bench", directory, "--publish")
    sessions = [Sessions({}, []) for _ in fleets]
    took: list[float] = []
    for number in range(repetitions):
        for fleet, seen in zip(fleets, sessions, strict=True):
            _run_session(fleet, number, steps=seen.steps, whole=seen.whole)
        took.append(between())
    return sessions, took


def _run_session(fleet: Fleet, number: int, *, steps: dict[str, list[float]], whole: list[float]) -> None:
    job_id = fleet.submit(f"Add a line about day {number} to index.html", site="bench", tier="agent", pin=True)
    fleet.wait_for_state(job_id, "awaiting_approval", seconds=_PATIENCE_SECONDS)
    fleet.run("approve", str(job_id))
    assert fleet.wait_for_state(job_id, *ENDS, seconds=_PATIENCE_SECONDS) == "published"
    query = "SELECT data ->> 'step', (data ->> 'seconds')::float FROM event WHERE kind = 'step' AND job_id = :id"
    for name, seconds in fleet.rows(f"{query} ORDER BY id", id=job_id):
        steps.setdefault(name, []).append(seconds)
    took = "SELECT extract(epoch FROM ended_at - started_at)::float FROM attempt"
    whole += [seconds for (seconds,) in fleet.rows(f"{took} WHERE job_id = :id AND queue = 'agent'", id=job_id)]


def _summary(times: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(times), min(times), max(times)


QUESTION = Survey("box", measure)
