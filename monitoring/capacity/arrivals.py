"""When jobs come: at random, in bursts, or as they came once. Seeded, so that a plan is the same every time.

Bursts are a Markov-modulated Poisson process: calm and busy spells of exponential length take turns.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

BUSY_SHARE = 0.1
"""Of the time that bursts take; so a peak can be at most ten times the mean."""


class Arrival(NamedTuple):
    """One new job."""

    at: float
    """Seconds since the start."""
    queue: str


@dataclass(frozen=True, kw_only=True)
class Bursts:
    """How arrivals come in bursts."""

    peak: float = 1.0
    """The rate in a burst over the mean rate; 1 = no bursts, which is Poisson."""
    seconds: float = 60.0
    """Mean length of a burst."""

    def __post_init__(self) -> None:
        if not 1 <= self.peak <= 1 / BUSY_SHARE:
            raise ValueError(f"peak: must be from 1 to {1 / BUSY_SHARE:g}")
        if not self.seconds > 0:
            raise ValueError("seconds: must be above 0")

    @property
    def calm_factor(self) -> float:
        """The rate between bursts over the mean rate."""
        return (1 - BUSY_SHARE * self.peak) / (1 - BUSY_SHARE)

    def variability(self, rate: float) -> float:
        """Return what a formula is told of such arrivals: their dispersion over a long time, 1 of Poisson.

        It is too much for a pool that forgets a burst before the next one; the simulation shows by how much.

        Args:
            rate: mean arrivals per second.
        """
        ending, beginning = 1 / self.seconds, BUSY_SHARE / (1 - BUSY_SHARE) / self.seconds
        busy, calm = rate * self.peak, rate * self.calm_factor
        whole = ending + beginning
        return 1 + 2 * ending * beginning * (busy - calm) ** 2 / (whole**2 * (busy * beginning + calm * ending))


def random_arrivals(rates: Mapping[str, float], *, bursts: Bursts, seed: int) -> Iterator[Arrival]:
    """Return endless arrivals: Poisson, or in bursts that all queues see together.

    Args:
        rates: new jobs per second by queue; at least one is above 0.
        bursts: peak 1 for Poisson.
        seed: of the random numbers.
    """
    draw = random.Random(seed)
    names = [name for name, rate in rates.items() if rate > 0]
    bounds = list(accumulate(rates[name] for name in names))
    total = bounds[-1]
    for at in _times(total, bursts, draw):
        place = bisect_right(bounds, draw.random() * total)
        yield Arrival(at, names[min(place, len(names) - 1)])


def _times(rate: float, bursts: Bursts, draw: random.Random) -> Iterator[float]:
    if bursts.peak == 1:
        at = 0.0
        while True:
            at += draw.expovariate(rate)
            yield at
    begins, is_busy = 0.0, draw.random() < BUSY_SHARE
    while True:
        length = bursts.seconds if is_busy else bursts.seconds * (1 - BUSY_SHARE) / BUSY_SHARE
        ends = begins + draw.expovariate(1 / length)
        current = rate * (bursts.peak if is_busy else bursts.calm_factor)
        at = begins
        while current > 0 and (at := at + draw.expovariate(current)) < ends:
            yield at
        begins, is_busy = ends, not is_busy


def replayed(seen: Sequence[Arrival], *, faster: float = 1.0) -> Iterator[Arrival]:
    """Return arrivals as they came once, from time 0 on, so many times as fast.

    Args:
        seen: in order of time.
        faster: 2 halves every gap.
    """
    for arrival in seen:
        yield Arrival((arrival.at - seen[0].at) / faster, arrival.queue)
