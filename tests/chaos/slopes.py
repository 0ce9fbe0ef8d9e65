"""Whether something grows: a robust slope of its samples, and a verdict by a stated tolerance. Pure.

Theil and Sen's slope is the median of the slopes of all pairs of samples: a pool child that is recycled, or one sample
taken in the middle of a burst, moves it little.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from statistics import median
from typing import NamedTuple

WARM_UP = 0.35
"""The part of a run that is left out: caches fill, connections open, pool children fork."""
_CONFIDENCE = 1.96
_MOST = 240
"""Samples that a fit looks at; their pairs are its cost."""


@dataclass(frozen=True)
class Tolerance:
    """How much may be gained over the fitted part of a run before it counts as growth."""

    absolute: float
    relative: float = 0.0
    """Of the median of the samples."""


class Slope(NamedTuple):
    """Gained for one job."""

    likely: float
    at_least: float
    """The lower end of its interval of confidence (95 %)."""


@dataclass(frozen=True)
class Fit:
    """One thing that was watched."""

    name: str
    unit: str
    first: float
    """Median of the first tenth after the warm-up."""
    last: float
    slope: float
    """Gained for 1000 jobs."""
    gained: float
    """What that slope makes of the jobs in the fitted part."""
    tolerated: float
    is_told_from_noise: bool
    """Whether the samples say at all that it grows."""
    why_grows: str = ""
    """Why it may grow by design; empty for what must not."""

    @property
    def is_flat(self) -> bool:
        """Whether it stays within the tolerance. What shrinks does, and what only jumps about."""
        return self.gained <= self.tolerated or not self.is_told_from_noise

    @property
    def verdict(self) -> str:
        """In words."""
        if self.is_flat:
            return "about zero"
        return f"grows: {self.why_grows}" if self.why_grows else "GROWS"


def theil_sen(points: Sequence[tuple[float, float]]) -> Slope:
    """Return the median slope of all pairs, and Sen's lower bound of it; 0 for fewer than two different abscissae."""
    few = points[:: -(-len(points) // _MOST)]
    slopes = sorted((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(few, 2) if x2 != x1)
    if not slopes:
        return Slope(0.0, 0.0)
    count = len(few)
    spread = _CONFIDENCE * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return Slope(median(slopes), slopes[max(0, int((len(slopes) - spread) / 2))])


def at_one_pace(
    points: Sequence[tuple[float, float]], seconds: Sequence[float], *, kept_seconds: float
) -> list[tuple[float, float]]:
    """Return samples of what is kept for a time as they would be had jobs always ended at their median pace.

    What is kept is pace times retention, so it grows with the pace, and that is no leak.

    Args:
        points: jobs so far, and what is held.
        seconds: when each was sampled, in order.
        kept_seconds: retention.
    """
    before = [bisect_right(seconds, at - kept_seconds) - 1 for at in seconds]
    recent = [(index, points[index][0] - points[since][0]) for index, since in enumerate(before) if since >= 0]
    paced = [(index, ended) for index, ended in recent if ended > 0]
    usual = median(ended for _, ended in paced) if paced else 0.0
    return [(points[index][0], points[index][1] * usual / ended) for index, ended in paced]


def at_one_peak(points: Sequence[tuple[float, float]], rows: Sequence[float]) -> list[tuple[float, float]]:
    """Return a table's sizes as they would be had it always been made for the most rows that it held.

    A table does not shrink with its rows, so a size that grows with their peak is no leak.

    Args:
        points: jobs so far, and the size.
        rows: what the table held then, in the same order.
    """
    peaks = list(accumulate(rows, max))
    return [(jobs, size * peaks[-1] / peak) for (jobs, size), peak in zip(points, peaks, strict=True) if peak > 0]


def fit(
    name: str, points: Sequence[tuple[float, float]], *, unit: str, tolerance: Tolerance, why_grows: str = ""
) -> Fit:
    """Fit samples (jobs so far, value) after the warm-up."""
    kept = points[int(len(points) * WARM_UP) :]
    slope = theil_sen(kept)
    values = [value for _, value in kept]
    tenth = max(1, len(values) // 10)
    return Fit(
        name,
        unit,
        median(values[:tenth]),
        median(values[-tenth:]),
        slope.likely * 1000,
        slope.likely * (kept[-1][0] - kept[0][0]),
        max(tolerance.absolute, tolerance.relative * median(values)),
        slope.at_least > 0,
        why_grows,
    )
