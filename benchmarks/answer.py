"""What a benchmark answers: a table for people, the same figures for programs, and what they are held to."""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter


class Spread(NamedTuple):
    """The middle half of some figures."""

    low: float
    median: float
    high: float


def spread_of(figures: Sequence[float]) -> Spread:
    """Return the quartiles of some figures."""
    if len(figures) == 1:
        return Spread(*figures, *figures, *figures)
    return Spread(*statistics.quantiles(figures, n=4, method="inclusive"))


OURS = "Pointsman"


class Unit(StrEnum):
    """What something costs is counted in."""

    SECONDS = "s"
    BYTES = "B"

    @property
    def better(self) -> str:
        """How a side that costs less is called."""
        return "fast" if self is Unit.SECONDS else "small"

    @property
    def size(self) -> float:
        """What is one on the axis of a picture: a second, or a MiB."""
        return 1.0 if self is Unit.SECONDS else 2.0**20

    def shown(self, amount: float) -> str:
        """Return an amount with three digits."""
        return shown_seconds(amount) if self is Unit.SECONDS else f"{amount / self.size:.3g} MiB"


@dataclass(frozen=True)
class Comparison:
    """What one operation cost us and a peer, in time or memory: a figure of each for every pair of turns."""

    peer: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    target: float | None = None
    """How many times as fast, or as small, as the peer we have to be; None for a peer that is shown for scale."""
    unit: Unit = Unit.SECONDS
    ours_is: str = OURS
    """What our side is called, where an answer compares different things of ours."""

    @property
    def ratio(self) -> Spread:
        """How many times as fast, or as small, as the peer we are."""
        return spread_of([theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)])

    @property
    def is_met(self) -> bool:
        return self.target is None or self.ratio.median >= self.target


class Skipped(NamedTuple):
    """A peer that could not be had on this machine."""

    peer: str
    why: str


@dataclass(frozen=True)
class Curve:
    """How the cost of something grows with the number of jobs: times what it costs with the fewest."""

    name: str
    points: tuple[tuple[int, Spread], ...]
    most: float
    """So high it may rise."""


@dataclass(frozen=True)
class Answer:
    """One question's answer."""

    question: str
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str | float, ...], ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    curves: tuple[Curve, ...] = ()
    """Drawn in place of the comparisons, where there are some."""
    skipped: tuple[Skipped, ...] = ()
    calls: int | None = None
    """How many calls of functions one operation of ours makes: what no other load on the machine changes."""
    notes: tuple[str, ...] = ()
    limits: Mapping[str, object] | None = None
    """What `pointsman capacity --limits` reads of it."""
    machine: str = field(default_factory=lambda: f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.release()}")
    python: str = field(default_factory=platform.python_version)
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def unit(self) -> Unit:
        """Of its comparisons: they are drawn on one axis."""
        return self.comparisons[0].unit

    @property
    def is_good(self) -> bool:
        return all(compared.is_met for compared in self.comparisons)

    def table(self) -> str:
        """Return the answer as text."""
        lines = [self.question, f"{self.machine}, Python {self.python}", ""]
        lines += [*_aligned(self.heads, self.rows), ""] if self.rows else []
        lines += [*self.notes, ""] if self.notes else []
        lines += [_told(compared) for compared in self.comparisons]
        lines += [f"skipped: {peer}: {why}" for peer, why in self.skipped]
        return "\n".join(lines)

    def write(self, directory: Path, name: str) -> Path:
        """Write the answer as JSON, without what was skipped."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{name}.json"
        told = [asdict(compared) | {"ratio": compared.ratio} for compared in self.comparisons]
        document = asdict(self) | {"comparisons": told, "is_good": self.is_good}
        del document["skipped"]
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        return path

    def write_limits(self, path: Path) -> None:
        """Write its limits alone, with three digits each, as they ship with the product."""
        limits = {name: _short(value) for name, value in (self.limits or {}).items()}
        path.write_text(json.dumps(limits, indent=2) + "\n")


def _short(value: object) -> object:
    return float(f"{value:.3g}") if isinstance(value, float) else value


def read(path: Path) -> Answer:
    """Return an answer as it was written."""
    return TypeAdapter(Answer).validate_json(path.read_bytes())


def shown_seconds(seconds: float) -> str:
    """Return a time in the unit that suits it, with three digits."""
    unit, size = next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("µs", 1e-6))
    return f"{seconds / size:.3g} {unit}"


def shown_target(target: float | None) -> str:
    """Return how many times as fast we have to be."""
    if target is None:
        return ""
    is_decimal = target >= 1 or math.isclose(target, round(target, 2))
    return f"≥ {target:g}" if is_decimal else f"≥ 1/{1 / target:g}"


def shown_ratio(ratio: Spread) -> str:
    """Return how many times as fast we are, with the quartiles."""
    return f"{ratio.median:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"


def _told(compared: Comparison) -> str:
    ours, theirs = (compared.unit.shown(statistics.median(side)) for side in (compared.ours, compared.theirs))
    verdict = "for scale" if compared.target is None else "met" if compared.is_met else "MISSED"
    wanted = f", wanted {shown_target(compared.target)}" if compared.target else ""
    told = f"{shown_ratio(compared.ratio)} times as {compared.unit.better} as {compared.peer}"
    return f"{verdict}: {told}{wanted}: {ours}, {theirs}"


def _aligned(heads: Sequence[str], rows: Sequence[Sequence[str | float]]) -> list[str]:
    cells = [tuple(heads), *(tuple(map(_shown, row)) for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(heads))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells]


def _shown(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:.3f}"
