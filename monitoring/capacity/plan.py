"""Plan pools that meet their targets, with their cost and the next bottleneck."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ledger.errors import CapacityError
from monitoring.capacity.limits import (
    MEASURED,
    POOL,
    Component,
    FleetLoad,
    Instances,
    Limits,
    components,
    unbounded_models,
)
from monitoring.capacity.queueing import MOST_BUSY, MOST_SLOTS, Load, Waits, slots_for, waits
from monitoring.capacity.workload import Workload
from routing.policy.platform import Policy
from routing.queues import QueueName

_LONG_TAIL = 4
"""Variability above which the formula underestimates the tail."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """The input of a plan."""

    arriving: Mapping[QueueName, float]
    """New jobs per second by queue, at the peak."""
    p95_targets: Mapping[QueueName, float]
    """Targets for the 95th percentile of a queue's waits, in seconds."""
    peak: float = 1.0
    """The peak over the day's mean, for daily figures."""
    burstiness: float = 1.0
    """Variance of the number of arrivals over its mean: 1 for Poisson, more for bursts."""
    ceiling_usd: float
    """The most that a day may cost."""
    slot_usd_hour: float = 0.0
    """The cost of a worker slot."""
    fixed: Mapping[QueueName, int] = field(default_factory=dict)
    """Given numbers of slots, which are evaluated, not chosen."""
    most_busy: float = MOST_BUSY
    instances: Instances = field(default_factory=Instances)


@dataclass(frozen=True, kw_only=True)
class QueuePlan:
    """One queue's pool."""

    queue: QueueName
    load: Load
    """At the peak."""
    slots: int
    is_fixed: bool
    target_seconds: float
    waits: Waits

    @property
    def busy(self) -> float:
        """Share of the slots' time in use."""
        return self.load.offered / self.slots

    @property
    def is_met(self) -> bool:
        """Whether the target is met."""
        return self.waits.is_bounded and self.waits.p95 <= self.target_seconds


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The sized pools, their cost and the load on every part."""

    queues: tuple[QueuePlan, ...]
    jobs_per_day: float
    model_usd_day: float
    worker_usd_day: float
    ceiling_usd: float
    components: tuple[Component, ...]
    """All parts with a load, including the pools, by growing headroom."""
    notes: tuple[str, ...]

    @property
    def usd_day(self) -> float:
        """The cost of a day."""
        return self.model_usd_day + self.worker_usd_day

    @property
    def is_affordable(self) -> bool:
        """Whether the cost of a day is within its ceiling."""
        return self.usd_day <= self.ceiling_usd

    @property
    def affordable_jobs(self) -> float:
        """Jobs per day that the ceiling pays for, at the same cost each."""
        return self.jobs_per_day * self.ceiling_usd / self.usd_day if self.usd_day > 0 else math.inf

    @property
    def bottleneck(self) -> Component:
        """The part with the least headroom."""
        return self.components[0]

    @property
    def bottleneck_measured(self) -> Component:
        """The next bottleneck once workers are added and the policy's limits raised as needed."""
        return next(part for part in self.components if part.basis == MEASURED)

    @property
    def is_good(self) -> bool:
        """Whether every target is met within the ceiling and no part is overloaded."""
        return self.is_affordable and all(plan.is_met for plan in self.queues) and self.bottleneck.headroom >= 1


def make_plan(workload: Workload, question: Question, *, limits: Limits, policy: Policy) -> Plan:
    """Size every pool.

    Raises:
        CapacityError: the caller's fault: nothing arrives, work follows without end, or no pool is large enough.
    """
    total = sum(question.arriving.values())
    if not total > 0:
        raise CapacityError("rate: must be above 0: nothing arrives")
    rates = {queue: rate for queue, rate in workload.rates(question.arriving).items() if rate > 0}
    queues = tuple(_size(queue, rate, workload, question) for queue, rate in rates.items())
    slots = sum(plan.slots for plan in queues)
    load = FleetLoad(workload=workload, rates=rates, arriving=total, slots=slots, peak=question.peak)
    parts = [
        *components(load, limits=limits, policy=policy, instances=question.instances),
        *(Component(f"workers of {plan.queue.value}", plan.load.offered, plan.slots, "slots", POOL) for plan in queues),
    ]
    return Plan(
        queues=queues,
        jobs_per_day=total * 86_400 / question.peak,
        model_usd_day=load.usd_per_day,
        worker_usd_day=slots * question.slot_usd_hour * 24,
        ceiling_usd=question.ceiling_usd,
        components=tuple(
            sorted((part for part in parts if part.load > 0), key=lambda part: (part.headroom, part.name))
        ),
        notes=tuple(_notes(load, question, unbounded_models(load, limits=limits, policy=policy))),
    )


def _size(queue: QueueName, rate: float, workload: Workload, question: Question) -> QueuePlan:
    work, target = workload.queues[queue], question.p95_targets.get(queue, math.inf)
    load = Load(
        rate=rate,
        mean_seconds=work.occupied_seconds,
        variability=work.occupied_variability,
        arrival_variability=question.burstiness,
    )
    # No number of slots meets a target below a message's transit time: the plan says so, and is sized for that time.
    within = max(target, work.pickup_seconds)
    slots = question.fixed.get(queue) or slots_for(
        load, p95_seconds=within, most_busy=question.most_busy, pickup_seconds=work.pickup_seconds
    )
    if slots is None:
        raise CapacityError(f"{queue.value}: {MOST_SLOTS:,} slots are not enough for {rate:g} attempts/s")
    return QueuePlan(
        queue=queue,
        load=load,
        slots=slots,
        is_fixed=queue in question.fixed,
        target_seconds=target,
        waits=waits(load, slots, pickup_seconds=work.pickup_seconds),
    )


def _notes(load: FleetLoad, question: Question, unbounded: list[str]) -> Iterator[str]:
    """Yield the plan's caveats."""
    works = {queue: load.workload.queues[queue] for queue in load.rates}
    if guessed := [queue.value for queue, work in works.items() if work.source == "default"]:
        yield f"defaults, nothing was measured: {', '.join(guessed)}"
    if heavy := [queue.value for queue, work in works.items() if work.occupied_variability > _LONG_TAIL]:
        yield f"durations with a long tail, p95 and p99 come out low: {', '.join(heavy)}"
    if question.burstiness > 1:
        yield "bursts: waits are those of a queue that does not forget one before the next, so rather too long"
    if unbounded:
        yield f"no provider's limit is known for {', '.join(unbounded)}: say it by --limit requests:PROVIDER/MODEL=N"
