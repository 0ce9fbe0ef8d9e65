"""How long work takes, as it was seen: a distribution by its samples, without assuming a shape.

What language models do has no textbook distribution: most calls are short, a few take until the limit. So the samples
themselves are drawn from, and a formula is only told their mean and their spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean, pvariance

MOST_SAMPLES = 2_000
"""Samples that are kept of a distribution: by quantiles, so that its ends stay."""
_NORMAL = NormalDist()


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of ordered samples lies, between two samples on a straight line.

    Args:
        ordered: samples, the smallest first; 0.0 is returned of none.
        share: from 0 to 1.
    """
    if not ordered:
        return 0.0
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True)
class Samples:
    """Durations in seconds, in order, at least one."""

    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ValueError("seconds: must hold at least one duration")
        if self.seconds[0] < 0 or not math.isfinite(self.seconds[-1]):
            raise ValueError("seconds: must be finite and not below 0")
        if any(first > second for first, second in pairwise(self.seconds)):
            raise ValueError("seconds: must be in order")

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Samples:
        """Put durations in order, and keep at most `MOST_SAMPLES` of them, by their quantiles.

        Raises:
            ValueError: the caller's fault: there is none, or one is no duration.
        """
        ordered = sorted(seconds)
        if len(ordered) > MOST_SAMPLES:
            last = MOST_SAMPLES - 1
            ordered = [percentile(ordered, place / last) for place in range(MOST_SAMPLES)]
        return cls(tuple(ordered))

    @property
    def mean(self) -> float:
        """Mean in seconds."""
        return fmean(self.seconds)

    def shifted(self, seconds: float) -> Samples:
        """Return the distribution with every duration longer by so much."""
        return Samples(tuple(duration + seconds for duration in self.seconds))

    @property
    def variability(self) -> float:
        """Variance over the mean squared: 0 where all durations are the same, 1 of an exponential distribution."""
        mean = self.mean
        return float(pvariance(seconds / mean for seconds in self.seconds)) if mean > 0 else 0.0

    def percentile(self, share: float) -> float:
        """Return the duration that a share of the work does not exceed, in seconds."""
        return percentile(self.seconds, share)


def lognormal(median: float, *, p95: float, most: float, count: int = 200) -> Samples:
    """Return what a lognormal distribution looks like that is cut off at a limit.

    Args:
        median: seconds that half of the work does not exceed.
        p95: seconds that 95 % do not exceed.
        most: seconds at which work is ended.
        count: samples.

    Raises:
        ValueError: the caller's fault: not 0 < median <= p95.
    """
    if not 0 < median <= p95:
        raise ValueError("median: must be above 0 and not above p95")
    sigma = math.log(p95 / median) / _NORMAL.inv_cdf(0.95)
    places = ((number + 0.5) / count for number in range(count))
    return Samples.of(min(most, median * math.exp(sigma * _NORMAL.inv_cdf(place))) for place in places)
