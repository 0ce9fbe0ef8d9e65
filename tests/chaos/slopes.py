"""Whether something grows: a robust slope of its samples, and a verdict by a stated tolerance. Pure.

Theil and Sen's slope is the median of the slopes of all pairs of samples: a pool child that is recycled, or one sample
taken in the middle of a burst, moves it little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

WARM_UP = 0.35
"""The part of a run that is left out: caches fill, connections open, pool children fork."""
_MOST = 240
"""Samples that a fit looks at; their pairs are its cost."""


@dataclass(frozen=True)
class Tolerance:
    """How much may be gained over the fitted part of a run before it counts as growth."""

    absolute: float
    relative: float = 0.0
    """Of the median of the samples."""


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
    why_grows: str = ""
    """Why it may grow by design; empty for what must not."""

    @property
    def is_flat(self) -> bool:
        """Whether it stays within the tolerance. What shrinks does."""
        return self.gained <= self.tolerated

    @property
    def verdict(self) -> str:
        """In words."""
        if self.is_flat:
            return "about zero"
        return f"grows: {self.why_grows}" if self.why_grows else "GROWS"


def theil_sen(points: Sequence[tuple[float, float]]) -> float:
    """Return the median slope of all pairs; 0 for fewer than two different abscissae."""
    step = max(1, len(points) // _MOST)
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(points[::step], 2) if x2 != x1]
    return median(slopes) if slopes else 0.0


def fit(
    name: str, points: Sequence[tuple[float, float]], *, unit: str, tolerance: Tolerance, why_grows: str = ""
) -> Fit:  # fmt: skip
    """Fit samples (jobs so far, value) after the warm-up."""
    kept = points[int(len(points) * WARM_UP) :]
    slope = theil_sen(kept)
    values = [value for _, value in kept]
    tenth = max(1, len(values) // 10)
    span = kept[-1][0] - kept[0][0]
    return Fit(
        name, unit, median(values[:tenth]), median(values[-tenth:]), slope * 1000, slope * span,
        max(tolerance.absolute, tolerance.relative * median(values)), why_grows,
    )  # fmt: skip
