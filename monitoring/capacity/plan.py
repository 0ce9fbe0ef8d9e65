"""The plan: pools that keep their targets, what they cost, and what gives out next."""

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
"""Variability above which the formula does not follow the tail."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked."""

    arriving: Mapping[QueueName, float]
    """New jobs per second by queue, at the peak."""
    p95_targets: Mapping[QueueName, float]
    """Seconds that 95 % of a queue's attempts should not wait longer than."""
    peak: float = 1.0
    """The peak over the day's mean, for what counts by the day."""
    burstiness: float = 1.0
    """Variance of the number of arrivals over its mean: 1 of Poisson, above it for bursts."""
    ceiling_usd: float
    """What a day may cost."""
    slot_usd_hour: float = 0.0
    """What a worker's slot costs."""
    fixed: Mapping[QueueName, int] = field(default_factory=dict)
    """Slots that are not to be chosen but judged."""
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
        """Share of the slots' time that is taken."""
        return self.load.offered / self.slots

    @property
    def is_met(self) -> bool:
        """Whether the target is kept."""
        return self.waits.is_bounded and self.waits.p95 <= self.target_seconds


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer."""

    queues: tuple[QueuePlan, ...]
    jobs_per_day: float
    model_usd_day: float
    worker_usd_day: float
    ceiling_usd: float
    components: tuple[Component, ...]
    """All parts with a load, workers' pools among them, in the order in which they give out."""
    notes: tuple[str, ...]

    @property
    def usd_day(self) -> float:
        """What a day costs."""
        return self.model_usd_day + self.worker_usd_day

    @property
    def is_affordable(self) -> bool:
        """Whether a day's cost is within its ceiling."""
        return self.usd_day <= self.ceiling_usd

    @property
    def affordable_jobs(self) -> float:
        """How many jobs a day the ceiling affords, at the same cost each."""
        return self.jobs_per_day * self.ceiling_usd / self.usd_day if self.usd_day > 0 else math.inf

    @property
    def bottleneck(self) -> Component:
        """What gives out next."""
        return self.components[0]

    @property
    def bottleneck_measured(self) -> Component:
        """What gives out next when workers are added and the policy's limits are raised as they are needed."""
        return next(part for part in self.components if part.whence == MEASURED)

    @property
    def is_good(self) -> bool:
        """Whether every target is met, the ceiling is kept, and no part is asked for more than it bears."""
        return self.is_affordable and all(plan.is_met for plan in self.queues) and self.bottleneck.headroom >= 1


def make_plan(workload: Workload, question: Question, *, limits: Limits, policy: Policy) -> Plan:
    """Size every pool, and say what that costs and what gives out next.

    Args:
        workload: what attempts are like.
        question: what is asked.
        limits: what the other parts bear.
        policy: whose limits hold.

    Raises:
        CapacityError: the caller's fault: nothing arrives, it brings work without an end, or no pool is large enough.
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
    # A target below the way of a message is met by no number of slots: the plan says so, and sizes for that way.
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
    """Say where the answer is weaker than it looks."""
    works = {queue: load.workload.queues[queue] for queue in load.rates}
    if guessed := [queue.value for queue, work in works.items() if work.source == "default"]:
        yield f"defaults, nothing was measured: {', '.join(guessed)}"
    if heavy := [queue.value for queue, work in works.items() if work.occupied_variability > _LONG_TAIL]:
        yield f"durations with a long tail, p95 and p99 come out low: {', '.join(heavy)}"
    if question.burstiness > 1:
        yield "bursts: waits are those of a queue that does not forget one before the next, so rather too long"
    if unbounded:
        yield f"no provider's limit is known for {', '.join(unbounded)}: say it by --limit requests:PROVIDER/MODEL=N"
