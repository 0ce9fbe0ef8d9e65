"""A discrete-event simulation of the queues: what the formulas leave out, at the price of chance.

Its events are arrivals: at a queue that is worked off first come, first served, an attempt begins when the slot that
is free soonest is free, so its begin and its end are known when it arrives. What follows from it, an escalation or a
publish, is an arrival at its end. Attempts take what attempts took, drawn from the samples.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, count, islice
from statistics import fmean, stdev

from monitoring.capacity.arrivals import Arrival
from monitoring.capacity.queueing import Waits
from monitoring.capacity.samples import Samples, percentile

WARM_UP = 0.1
"""Share of the attempts that are not counted: the queues are empty at the start."""
_BATCHES = 10
"""Parts of a run that tell, by how they differ, how far chance moves its p95."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A queue and who works on it."""

    slots: int
    service: Samples
    """What an attempt takes."""
    pickup_seconds: float = 0.0
    """From a job's arrival to its begin on a slot that is free."""
    turnaround_seconds: float = 0.0
    """From an attempt's end to the begin of the next on the same slot, while jobs wait."""
    follows: Mapping[str, float] = field(default_factory=dict)
    """Shares of the attempts that bring an attempt on another queue, or on this one again; at most 1 together."""
    busy_at_start: float = 0.0
    """How many slots are in the middle of an attempt when the run begins: a pool of hours would else begin empty."""


@dataclass(frozen=True)
class Seen:
    """What a run has shown of one queue."""

    attempts: int
    waits: Waits
    p95_error: float
    """By how much chance moves the p95, as a standard error in seconds."""
    busy: float
    """Share of the slots' time that was taken."""


@dataclass
class _Running:
    pool: Pool
    ready: list[float]
    """When each slot is free for the next attempt: a heap."""
    follows: tuple[tuple[float, ...], tuple[str, ...]]
    waits: deque[float]
    taken_seconds: float = 0.0


def simulate(pools: Mapping[str, Pool], arrivals: Iterable[Arrival], *, attempts: int, seed: int) -> dict[str, Seen]:
    """Run until so many attempts have begun, or the arrivals end; same seed, same result.

    Args:
        pools: by queue; every queue that arrives or follows is among them.
        arrivals: in order of time; may be endless.
        attempts: where to stop.
        seed: of the random numbers.
    """
    draw = random.Random(seed)
    running = {name: _start(pool, draw) for name, pool in pools.items()}
    following: list[tuple[float, int, str]] = []
    order, now = count(), 0.0
    for now, queue in islice(_in_time(iter(arrivals), following), attempts):
        end = _serve(running[queue], now, draw)
        next_queue = _follow(running[queue].follows, draw)
        if next_queue is not None:
            heapq.heappush(following, (end, next(order), next_queue))
    return {name: _summary(state, now) for name, state in running.items()}


def _in_time(arrivals: Iterator[Arrival], following: list[tuple[float, int, str]]) -> Iterator[tuple[float, str]]:
    """Merge new jobs with what follows from others, which is added to while this runs."""
    upcoming = next(arrivals, None)
    while upcoming is not None or following:
        if upcoming is None or (following and following[0][0] <= upcoming.at):
            at, _, queue = heapq.heappop(following)
            yield at, queue
        else:
            yield upcoming.at, upcoming.queue
            upcoming = next(arrivals, None)


def _start(pool: Pool, draw: random.Random) -> _Running:
    """Begin with as many busy slots as there will be: each met at a random moment, so in a long attempt rather."""
    names = tuple(name for name, share in pool.follows.items() if share > 0)
    bounds = tuple(accumulate(pool.follows[name] for name in names))
    lengths = [seconds + pool.turnaround_seconds for seconds in pool.service.seconds]
    busy = min(pool.slots, round(pool.busy_at_start)) if any(lengths) else 0
    met = draw.choices(lengths, weights=lengths, k=busy) if busy else []
    ready = [draw.random() * seconds for seconds in met] + [0.0] * (pool.slots - busy)
    heapq.heapify(ready)
    return _Running(pool, ready, (bounds, names), deque())


def _serve(state: _Running, now: float, draw: random.Random) -> float:
    """Begin an attempt on the slot that is free soonest; returns its end."""
    pool = state.pool
    seconds = pool.service.seconds
    begin = max(now + pool.pickup_seconds, state.ready[0])
    took = seconds[int(draw.random() * len(seconds))]
    heapq.heapreplace(state.ready, begin + took + pool.turnaround_seconds)
    state.waits.append(begin - now)
    state.taken_seconds += took + pool.turnaround_seconds
    return begin + took


def _follow(follows: tuple[tuple[float, ...], tuple[str, ...]], draw: random.Random) -> str | None:
    bounds, names = follows
    if not names:
        return None
    place = bisect_right(bounds, draw.random())
    return names[place] if place < len(names) else None


def _summary(state: _Running, ended_at: float) -> Seen:
    skipped = int(len(state.waits) * WARM_UP)
    seen = list(state.waits)[skipped:]
    ordered = sorted(seen)
    found = Waits(fmean(ordered) if ordered else 0.0, *(percentile(ordered, share) for share in (0.5, 0.95, 0.99)))
    busy = state.taken_seconds / (state.pool.slots * ended_at) if ended_at > 0 else 0.0
    return Seen(len(state.waits), found, _p95_error(seen), min(1.0, busy))


def _p95_error(seen: list[float]) -> float:
    size = len(seen) // _BATCHES
    if size < 1:
        return 0.0
    parts = [percentile(sorted(seen[start : start + size]), 0.95) for start in range(0, size * _BATCHES, size)]
    return float(stdev(parts) / _BATCHES**0.5)
