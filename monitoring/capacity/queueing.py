"""Waits for a pool of slots by formula, and the slots that keep them short: M/M/c, and G/G/c by Allen-Cunneen.

Exact for Poisson arrivals and exponential durations, otherwise an approximation. It is weak for few slots at a low load
(off by some ten percent of a short wait), for durations with a long tail (variability above about 4, where p99 comes
out too low), and for bursts shorter than a queue's recovery. Each queue is treated alone.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass

MOST_SLOTS = 1_000_000
"""The largest pool considered."""
MOST_BUSY = 0.9
"""The planned utilisation: above it, a little more load makes waits much longer."""
MOST_WANTED = 10_000
"""The most slots that a queue can want."""


def wait_probability(slots: int, offered: float) -> float:
    """Return the probability that a job has to wait (Erlang C); 1.0 if the slots are overloaded.

    `offered` is rate times mean duration: the mean number of busy slots (Erlang).
    """
    if offered <= 0:
        return 0.0
    if offered >= slots:
        return 1.0
    blocking = 1.0
    for number in range(1, slots + 1):
        blocking = offered * blocking / (number + offered * blocking)
    return blocking / (1 - (offered / slots) * (1 - blocking))


@dataclass(frozen=True, kw_only=True)
class Load:
    """The load on one queue."""

    rate: float
    """Attempts per second."""
    mean_seconds: float
    """For which an attempt occupies a slot."""
    variability: float = 1.0
    """Variance of those durations over the mean squared."""
    arrival_variability: float = 1.0
    """1 for Poisson arrivals, more for bursts."""

    @property
    def offered(self) -> float:
        """The mean number of busy slots (Erlang)."""
        return self.rate * self.mean_seconds


@dataclass(frozen=True)
class Waits:
    """Waits of attempts in seconds; infinite for an overloaded queue."""

    mean: float
    p50: float
    p95: float
    p99: float

    @property
    def is_bounded(self) -> bool:
        """Whether the queue is stable."""
        return math.isfinite(self.mean)


NEVER = Waits(math.inf, math.inf, math.inf, math.inf)


def waits(load: Load, slots: int, *, pickup_seconds: float = 0.0) -> Waits:
    """Return the waits for a pool.

    The probability of waiting is Erlang's, the mean wait that of M/M/c times half the sum of both variabilities (Allen
    and Cunneen), and nonzero waits are taken as exponentially distributed.

    `pickup_seconds` is the transit time of a message, which every attempt waits even for a free slot.
    """
    if slots < 1 or load.offered >= slots:
        return NEVER
    probability = wait_probability(slots, load.offered)
    spread = (load.variability + load.arrival_variability) / 2
    mean_if_waiting = load.mean_seconds / (slots - load.offered) * spread

    def at(share: float) -> float:
        beyond = 1 - share
        return pickup_seconds + (mean_if_waiting * math.log(probability / beyond) if probability > beyond else 0.0)

    return Waits(pickup_seconds + probability * mean_if_waiting, at(0.5), at(0.95), at(0.99))


def slots_for(
    load: Load, *, p95_seconds: float, most_busy: float = 1.0, pickup_seconds: float = 0.0, most: int = MOST_SLOTS
) -> int | None:
    """Return the fewest slots whose p95 wait is within a target; None if `most` are not enough.

    No number of slots meets a target below `pickup_seconds`; `most_busy` is the highest utilisation allowed.
    """
    if pickup_seconds > p95_seconds:
        return None
    low = max(1, math.floor(load.offered) + 1, math.ceil(load.offered / most_busy - 1e-9))
    if low > most:
        return None

    def is_enough(slots: int) -> bool:
        return waits(load, slots, pickup_seconds=pickup_seconds).p95 <= p95_seconds

    high = low  # few at first: what the formula costs grows with the slots
    while not is_enough(high):
        if high >= most:
            return None
        low, high = high + 1, min(most, high + max(1, (high - low) * 2 + 1))
    return bisect_left(range(high), True, lo=low, key=is_enough)


@dataclass(frozen=True, kw_only=True)
class Demand:
    """The current state of a queue."""

    waiting: int
    """Jobs ready to start."""
    running: int
    """Running attempts."""
    starts_per_second: float
    """Recent rate of starts."""
    mean_seconds: float
    """Mean duration of an attempt."""
    variability: float
    """Variance of the durations over the mean squared."""
    is_paused: bool = False


def wanted_slots(demand: Demand, *, target_seconds: float) -> int:
    """Return how many slots a queue wants now, never fewer than are busy: the signal for autoscalers.

    The queue's length alone would be 0 while every slot works, and an autoscaler would stop busy workers. So this is
    what the load of the last minutes needs, plus what works off the backlog within the queue's target: where slots are
    short, fewer jobs start than arrive, and the rest is backlog.

    `target_seconds` is for the 95th percentile of the queue's waits.
    """
    if demand.is_paused:
        return min(demand.running, MOST_WANTED)
    backlog = min(demand.waiting, math.ceil(demand.waiting * demand.mean_seconds / target_seconds))
    return min(max(_for_the_load(demand, target_seconds) + backlog, demand.running), MOST_WANTED)


def _for_the_load(demand: Demand, target_seconds: float) -> int:
    if demand.starts_per_second * demand.mean_seconds <= 0:
        return 0
    load = Load(rate=demand.starts_per_second, mean_seconds=demand.mean_seconds, variability=demand.variability)
    slots = slots_for(load, p95_seconds=target_seconds, most_busy=MOST_BUSY, most=MOST_WANTED)
    return MOST_WANTED if slots is None else slots
