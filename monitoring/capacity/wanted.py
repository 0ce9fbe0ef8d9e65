"""How many slots a queue wants now: the signal that an autoscaler follows.

Never the queue's length alone: that is 0 while every slot works, and an autoscaler would end busy workers. It is what
the load of the last minutes needs by the formula that also plans pools, and what works off the backlog within the
queue's target on top of it: where slots are short less begins than comes, and the rest is backlog. What is held back
for its site, a time or a provider wants nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from monitoring.capacity.queueing import Load, slots_for
from monitoring.capacity.sizing import MOST_BUSY

MOST_WANTED = 10_000
"""No queue is said to want more."""


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
    """Return how many slots a queue wants, never fewer than work on it.

    Args:
        demand: how it stands.
        target_seconds: that 95 % of its attempts should not wait longer than.
    """
    if demand.is_paused:
        return min(demand.running, MOST_WANTED)
    wanted = _for_the_load(demand, target_seconds) + _for_the_backlog(demand, target_seconds)
    return min(max(wanted, demand.running), MOST_WANTED)


def _for_the_load(demand: Demand, target_seconds: float) -> int:
    if demand.starts_per_second * demand.mean_seconds <= 0:
        return 0
    load = Load(rate=demand.starts_per_second, mean_seconds=demand.mean_seconds, variability=demand.variability)
    found = slots_for(load, p95_seconds=target_seconds, most_busy=MOST_BUSY, most=MOST_WANTED)
    return MOST_WANTED if found is None else found


def _for_the_backlog(demand: Demand, target_seconds: float) -> int:
    return min(demand.waiting, math.ceil(demand.waiting * demand.mean_seconds / target_seconds))
