"""The plan: pools that meet their targets by both methods, what they cost, and what gives out next."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from monitoring.capacity.limits import (
    MEASURED,
    POOL,
    Component,
    Limits,
    by_headroom,
    components,
    model_usd_per_day,
    unstated_lanes,
)
from monitoring.capacity.sizing import Question, QueuePlan, Sizer
from monitoring.capacity.workload import Workload
from monitoring.errors import CapacityError
from routing.policy import Policy


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer."""

    queues: tuple[QueuePlan, ...]
    jobs_per_day: float
    model_usd_day: float
    worker_usd_day: float
    ceiling_usd: float
    components: tuple[Component, ...]
    """All parts, workers' pools among them, in the order in which they give out."""
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
        CapacityError: the caller's fault: nothing arrives, or it brings work without an end.
    """
    total = sum(question.arriving.values())
    if not total > 0:
        raise CapacityError("rate: must be above 0: nothing arrives")
    rates = {queue: rate for queue, rate in workload.rates(question.arriving).items() if rate > 0}
    sizer = Sizer(workload, rates, question)
    queues = sizer.plan()
    beside = components(
        workload, rates, arriving=total, slots=sum(plan.slots for plan in queues), peak=question.peak, limits=limits,
        policy=policy, instances=question.instances,
    )  # fmt: skip
    pools = [Component(f"workers of {plan.queue.value}", sizer.loads[plan.queue].offered, plan.slots, "slots", POOL)
             for plan in queues]  # fmt: skip
    return Plan(
        queues=queues,
        jobs_per_day=total * 86_400 / question.peak,
        model_usd_day=model_usd_per_day(workload, rates, peak=question.peak),
        worker_usd_day=sum(plan.slots for plan in queues) * question.slot_usd_hour * 24,
        ceiling_usd=question.ceiling_usd,
        components=tuple(by_headroom([*beside, *pools])),
        notes=(*sizer.notes(), *_unstated(unstated_lanes(workload, rates, limits=limits, policy=policy))),
    )


def _unstated(lanes: list[str]) -> Iterable[str]:
    if lanes:
        yield f"no provider's limit is known for {', '.join(lanes)}: say it by --limit requests:PROVIDER/MODEL=N"
