"""Waits before a pool by formula, and how many slots keep them short: M/M/c exactly, and G/G/c by Allen-Cunneen.

Exact for Poisson arrivals and exponential durations. Elsewhere it is an approximation, and weak in these places: few
slots at a low load, where it is off by up to some ten percent of a wait that is short anyway; durations with a long
tail (variability above about 4), so that p99 comes out too low; bursts that are over before a queue has forgotten them.
And it knows one queue at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_SLOTS = 1_000_000
"""Pools are not looked for beyond this."""
MOST_BUSY = 0.9
"""Of a planned slot's time: above it, a little more load makes waits much longer."""
MOST_WANTED = 10_000
"""No queue is said to want more."""


def wait_probability(slots: int, offered: float) -> float:
    """Return how likely a job finds every slot taken (Erlang C); 1.0 where the slots cannot bear the load.

    Args:
        slots: at least 1.
        offered: rate times mean duration: how many slots are busy on average (Erlang).
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
    """What one queue has to bear."""

    rate: float
    """Attempts per second."""
    mean_seconds: float
    """For which one attempt takes a slot."""
    variability: float = 1.0
    """Of those durations: variance over mean squared."""
    arrival_variability: float = 1.0
    """Of the arrivals: 1 for Poisson, above it for bursts."""

    @property
    def offered(self) -> float:
        """How many slots are busy on average (Erlang)."""
        return self.rate * self.mean_seconds


@dataclass(frozen=True)
class Waits:
    """How long attempts wait, in seconds; infinite where more comes than is worked off."""

    mean: float
    p50: float
    p95: float
    p99: float

    @property
    def is_bounded(self) -> bool:
        """Whether the queue comes to rest at all."""
        return math.isfinite(self.mean)


NEVER = Waits(math.inf, math.inf, math.inf, math.inf)


def waits(load: Load, slots: int, *, pickup_seconds: float = 0.0) -> Waits:
    """Return the waits before a pool of so many slots.

    The probability of waiting is Erlang's, the mean wait that of M/M/c times half the sum of both variabilities
    (Allen and Cunneen), and a wait that happens is taken as exponentially distributed.

    Args:
        load: what comes.
        slots: at least 1.
        pickup_seconds: that every attempt waits, even for a slot that is free: the way of its message.
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
    """Return the fewest slots whose p95 wait is within a target; None where `most` are not enough.

    Args:
        load: what comes.
        p95_seconds: the target.
        most_busy: share of its time that a slot may be busy at most.
        pickup_seconds: as of `waits`; a target below it cannot be met by any number.
        most: where to stop looking.
    """
    if pickup_seconds > p95_seconds:
        return None
    low = max(1, math.floor(load.offered) + 1, math.ceil(load.offered / most_busy - 1e-9))
    if low > most:
        return None
    high = low
    while not _is_enough(load, high, p95_seconds, pickup_seconds):
        if high >= most:
            return None
        low, high = high + 1, min(most, high + max(1, (high - low) * 2 + 1))
    while low < high:
        middle = (low + high) // 2
        if _is_enough(load, middle, p95_seconds, pickup_seconds):
            high = middle
        else:
            low = middle + 1
    return high if high <= most else None


def _is_enough(load: Load, slots: int, p95_seconds: float, pickup_seconds: float) -> bool:
    return waits(load, slots, pickup_seconds=pickup_seconds).p95 <= p95_seconds


@dataclass(frozen=True, kw_only=True)
class Demand:
    """How a queue stands."""

    waiting: int
    """Jobs that could begin now."""
    running: int
    """Attempts that have begun and not ended."""
    starts_per_second: float
    """Lately."""
    mean_seconds: float
    """That an attempt takes."""
    variability: float
    """Variance of that over the mean squared."""
    is_paused: bool = False
    """Whether nothing begins."""


def wanted_slots(demand: Demand, *, target_seconds: float) -> int:
    """Return how many slots a queue wants now, never fewer than work on it: the signal that an autoscaler follows.

    Never the queue's length alone: that is 0 while every slot works, and an autoscaler would end busy workers. It is
    what the load of the last minutes needs, and what works off the backlog within the queue's target on top of it:
    where slots are short less begins than comes, and the rest is backlog.

    Args:
        demand: how it stands.
        target_seconds: that 95 % of its attempts should not wait longer than.
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
