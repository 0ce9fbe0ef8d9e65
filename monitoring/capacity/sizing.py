"""How large each pool has to be: by the formula first, then as the simulation shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from monitoring.capacity.arrivals import Arrival, Bursts, random_arrivals
from monitoring.capacity.limits import Instances
from monitoring.capacity.queueing import MOST_SLOTS, Load, Waits, slots_for, waits
from monitoring.capacity.simulation import Pool, Seen, simulate
from monitoring.capacity.workload import Rates, Workload
from monitoring.errors import CapacityError
from routing.queues import QueueName

MOST_BUSY = 0.9
"""Of a planned slot's time: above it, a little more load makes waits much longer."""
MOST_ATTEMPTS = 400_000
"""Of one simulation."""
LEAST_ATTEMPTS = 20_000
_LEAST_OF_A_QUEUE = 2_000
"""Attempts of the least busy queue that a simulation should see."""
_ROUNDS = 16
"""Simulations at most: pools that miss their target grow, then the size between too few and enough is halved."""
_GROWTH = 1.25
_CLOSE = 0.02
"""Share of a pool below which the search goes no further."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked."""

    arriving: Mapping[QueueName, float]
    """New jobs per second by queue, at the peak."""
    p95_targets: Mapping[QueueName, float]
    """Seconds that 95 % of a queue's attempts should not wait longer than."""
    peak: float = 1.0
    """The peak over the day's mean, for what counts by the day."""
    ceiling_usd: float
    """What a day may cost."""
    slot_usd_hour: float = 0.0
    """What a worker's slot costs."""
    bursts: Bursts = field(default_factory=Bursts)
    replay: Sequence[Arrival] | None = None
    """Arrivals as they came once, in order of time, instead of random ones."""
    fixed: Mapping[QueueName, int] = field(default_factory=dict)
    """Slots that are not to be chosen but judged."""
    most_busy: float = MOST_BUSY
    attempts: int | None = None
    """Of a simulation; None for as many as the queues or a replay need, up to `MOST_ATTEMPTS`."""
    seed: int = 1
    instances: Instances = field(default_factory=Instances)


@dataclass(frozen=True, kw_only=True)
class QueuePlan:
    """One queue's pool."""

    queue: QueueName
    rate: float
    """Attempts per second at the peak."""
    slots: int
    is_fixed: bool
    busy: float
    """Share of the slots' time that is taken, by the formula."""
    target_seconds: float
    formula: Waits
    simulated: Seen
    is_met: bool
    """Whether both methods keep the target; of random bursts and replayed arrivals the simulation alone decides."""


class Sizer:
    """Finds the pools of one question."""

    def __init__(self, workload: Workload, rates: Rates, question: Question) -> None:
        self._workload = workload
        self._rates = rates
        self._question = question
        self._is_random = question.replay is None and question.bursts.peak == 1
        self.loads = {queue: self._load(queue) for queue in rates}
        self._attempts, self._is_cut = self._length()

    def plan(self) -> tuple[QueuePlan, ...]:
        """Enlarge what misses its target in the simulation until nothing does, or nothing more is tried."""
        enough = {queue: self._first_guess(queue) for queue in self._rates}
        too_few: dict[QueueName, int] = {}
        tried, seen = dict(enough), {}
        for _ in range(_ROUNDS):
            seen = self._simulate(tried)
            late = {queue for queue in tried if self._is_late(queue, seen[queue])}
            too_few |= {queue: tried[queue] for queue in late}
            enough |= {queue: tried[queue] for queue in tried if queue not in late}
            following = {queue: self._next_size(queue, too_few, enough) for queue in tried}
            if following == tried:
                break
            tried = following
        else:
            seen = self._simulate(tried := {queue: max(size, tried[queue]) for queue, size in enough.items()})
        return tuple(self._row(queue, tried[queue], seen[queue]) for queue in self._rates)

    @staticmethod
    def _next_size(queue: QueueName, too_few: Mapping[QueueName, int], enough: Mapping[QueueName, int]) -> int:
        low, high = too_few.get(queue), enough[queue]
        if low is None:
            return high
        if high <= low:
            return max(low + 1, math.ceil(low * _GROWTH))
        return high if high - low <= max(1, high * _CLOSE) else (low + high) // 2

    def notes(self) -> tuple[str, ...]:
        """Say where the answer is weaker than it looks."""
        found = []
        guessed = [queue.value for queue in self._rates if self._workload.queues[queue].source == "default"]
        if guessed:
            found.append(f"defaults, nothing was measured: {', '.join(guessed)}")
        heavy = [queue.value for queue, load in self.loads.items() if load.variability > 4]
        if heavy:
            found.append(f"durations with a long tail: trust the simulation, not the formula, for {', '.join(heavy)}")
        if not self._is_random:
            found.append("arrivals are not Poisson: the simulation sizes the pools; the formula does not see a burst")
        if self._is_cut and self._question.replay is not None:
            found.append(f"replayed from its start on and cut at {self._attempts:,} attempts: it is longer")
        elif self._is_cut:
            found.append(f"simulated {self._attempts:,} attempts, fewer than the slowest queue asks for: see its error")
        return tuple(found)

    def _load(self, queue: QueueName) -> Load:
        occupancy, rate = self._workload.queues[queue].occupancy, self._rates[queue]
        return Load(
            rate=rate, mean_seconds=occupancy.mean, variability=occupancy.variability,
            arrival_variability=self._question.bursts.variability(rate),
        )  # fmt: skip

    def _length(self) -> tuple[int, bool]:
        """Return how many attempts a simulation runs, and whether that is too few for the rarest queue or a replay."""
        asked, total = self._question.attempts, sum(self._rates.values())
        if self._question.replay is not None:
            needed = math.ceil(len(self._question.replay) * total / sum(self._question.arriving.values()))
            length = min(MOST_ATTEMPTS, asked or needed)
            return length, length < needed
        if asked is not None:
            return min(asked, MOST_ATTEMPTS), False
        needed = math.ceil(_LEAST_OF_A_QUEUE * total / min(self._rates.values()))
        return min(MOST_ATTEMPTS, max(LEAST_ATTEMPTS, needed)), needed > MOST_ATTEMPTS

    def _first_guess(self, queue: QueueName) -> int:
        if (fixed := self._question.fixed.get(queue)) is not None:
            return fixed
        load, work = self.loads[queue], self._workload.queues[queue]
        if not self._is_random:
            load = Load(rate=load.rate, mean_seconds=load.mean_seconds, variability=load.variability)
        found = slots_for(
            load, p95_seconds=max(self._target(queue), work.pickup_seconds), most_busy=self._question.most_busy,
            pickup_seconds=work.pickup_seconds,
        )  # fmt: skip
        if found is None:
            raise CapacityError(f"{queue.value}: {MOST_SLOTS:,} slots are not enough for {load.rate:g} attempts/s")
        return found

    def _target(self, queue: QueueName) -> float:
        return self._question.p95_targets.get(queue, math.inf)

    def _is_late(self, queue: QueueName, seen: Seen) -> bool:
        is_free = queue not in self._question.fixed
        return is_free and seen.waits.p95 > max(self._target(queue), self._workload.queues[queue].pickup_seconds)

    def _simulate(self, slots: Mapping[QueueName, int]) -> dict[QueueName, Seen]:
        pools = {queue.value: self._pool(queue, slots[queue]) for queue in self._rates}
        arrivals: Iterable[Arrival]
        if self._question.replay is not None:
            arrivals = self._question.replay
        else:
            rates = {queue.value: rate for queue, rate in self._question.arriving.items()}
            arrivals = random_arrivals(rates, bursts=self._question.bursts, seed=self._question.seed)
        seen = simulate(pools, arrivals, attempts=self._attempts, seed=self._question.seed + 1)
        return {queue: seen[queue.value] for queue in self._rates}

    def _pool(self, queue: QueueName, slots: int) -> Pool:
        work = self._workload.queues[queue]
        return Pool(
            slots=slots, service=work.service, pickup_seconds=work.pickup_seconds,
            turnaround_seconds=work.turnaround_seconds,
            follows={target.value: share for target, share in work.follows.items()},
            busy_at_start=self.loads[queue].offered,
        )  # fmt: skip

    def _row(self, queue: QueueName, slots: int, seen: Seen) -> QueuePlan:
        load, target = self.loads[queue], self._target(queue)
        formula = waits(load, slots, pickup_seconds=self._workload.queues[queue].pickup_seconds)
        found = [seen.waits.p95, formula.p95] if self._is_random else [seen.waits.p95]
        return QueuePlan(
            queue=queue, rate=load.rate, slots=slots, is_fixed=queue in self._question.fixed,
            busy=load.offered / slots, target_seconds=target, formula=formula, simulated=seen,
            is_met=max(found) <= target and load.offered < slots,
        )  # fmt: skip
