"""Paired, interleaved runs: ours and a peer take turns, and each pair of turns gives one ratio.

What a machine does meanwhile slows both halves of a pair, so the ratios hold where single times do not. Who goes first
changes with every pair. Both are warmed up before, and a turn is as many operations as fill its share of time.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from benchmarks.answer import Answer, Comparison, Skipped
from benchmarks.environments import ROOT
from benchmarks.question import UnavailableError, say

TURN_SECONDS = 0.2
_FULL = 0.8
"""A warm-up ends when a turn of it has taken so much of a turn's time."""

Turn = Callable[[int], float]
"""Does something so many times and returns the seconds that took."""
Start = Callable[[], AbstractContextManager[Turn]]


class EndedError(Exception):
    """A side's process does not serve."""


@dataclass(frozen=True)
class Peer:
    """Somebody to race with."""

    name: str
    start: Start
    target: float | None = None
    """How many times as fast as the peer we have to be; None for a floor that does less, and is shown for scale."""


@dataclass(frozen=True)
class Race:
    """A question that is answered by doing one thing ourselves and letting peers do it."""

    name: str
    asks: str
    ours: Start
    peers: tuple[Peer, ...]
    pairs: int = 15
    turn_seconds: float = TURN_SECONDS
    count_calls: Callable[[], int] | None = None
    """How many calls one operation of ours makes; None where that differs from run to run."""
    beside: Callable[[], AbstractContextManager[None]] = nullcontext
    """What both sides share, started before them and stopped after them."""

    def ask(self, repetitions: int | None = None) -> Answer:
        """Race with one peer after the other; one that cannot be had is skipped.

        Raises:
            EndedError: our own side did not start.
        """
        with self.beside(), self.ours() as ours:
            raced = [self._compare(ours, peer, repetitions or self.pairs) for peer in self.peers]
            count = self.count_calls() if self.count_calls else None
        return Answer(
            question=self.asks,
            comparisons=tuple(result for result in raced if isinstance(result, Comparison)),
            skipped=tuple(result for result in raced if isinstance(result, Skipped)),
            calls=count,
        )

    def _compare(self, ours: Turn, peer: Peer, pairs: int) -> Comparison | Skipped:
        say(f"{self.name}: {pairs} pairs beside {peer.name}")
        with ExitStack() as stack:
            try:
                theirs = stack.enter_context(peer.start())
            except (UnavailableError, EndedError) as why:
                return Skipped(peer.name, str(why))
            taken = interleave(ours, theirs, pairs=pairs, turn_seconds=self.turn_seconds)
        ours_took, theirs_took = zip(*taken, strict=True)
        return Comparison(peer.name, ours_took, theirs_took, peer.target)


def interleave(ours: Turn, theirs: Turn, *, pairs: int, turn_seconds: float) -> list[tuple[float, float]]:
    """Return the seconds that one operation took, ours and theirs, pair by pair."""
    sides = [(turn, warm_up(turn, turn_seconds)) for turn in (ours, theirs)]
    taken = []
    for number in range(pairs):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        costs = {place: _cost(*sides[place]) for place in order}
        taken.append((costs[0], costs[1]))
    return taken


def warm_up(turn: Turn, turn_seconds: float) -> int:
    """Run ever more operations until they fill a turn; return how many that are."""
    times = 1
    while (took := turn(times)) < turn_seconds * _FULL:
        times = math.ceil(times * min(10.0, turn_seconds / max(took, 1e-9)))
    return times


def _cost(turn: Turn, times: int) -> float:
    return float(f"{turn(times) / times:.4g}")  # no clock here is better than that


def module(name: str, python: Callable[[], Path] = lambda: Path(sys.executable)) -> Start:
    """Return a side that is a module with an `operation`, run by the interpreter that has what it imports."""
    return lambda: command([str(python()), "-m", "benchmarks.turns", name])


def calls_of(name: str) -> Callable[[], int]:
    """Return what counts the calls of a module's operation."""
    argv = [sys.executable, "-m", "benchmarks.turns", name, "--calls"]
    return lambda: int(subprocess.run(argv, cwd=ROOT, env=_environment(), check=True, stdout=subprocess.PIPE).stdout)


@contextmanager
def command(argv: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})) -> Iterator[Turn]:
    """Run a side in a process of its own, which speaks as `benchmarks.turns` does.

    Raises:
        EndedError: it ended before it was ready, or in a turn.
        UnavailableError: there is no such program.
    """
    if shutil.which(argv[0]) is None:
        raise UnavailableError(f"there is no {argv[0]}")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        argv, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=_environment() | environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        into, out = process.stdin, process.stdout

        def said() -> str:
            if not (line := out.readline()):
                raise EndedError(f"{' '.join(argv)[:120]} ended with status {process.wait()}")
            return line

        def turn(times: int) -> float:
            into.write(f"{times}\n")
            into.flush()
            return float(said())

        said()  # that it is ready
        yield turn


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONHASHSEED": "0"}
