"""How a plan is shown: as tables with the sentences that matter, or as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from monitoring.capacity.sizing import QueuePlan

from monitoring.capacity.limits import Component
from monitoring.capacity.plan import Plan
from monitoring.capacity.queueing import Waits
from producers.capacity import Answer
from producers.commands.context import out, print_json, print_table
from routing.prices import format_usd, nanousd_of


def show(answer: Answer, *, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print_json(view(answer))
        return
    plan = answer.plan
    out.print(f"{plan.jobs_per_day:,.0f} jobs a day, {sum(answer.question.arriving.values()):.4g}/s at the peak, "
              f"{_arrivals(answer)}", markup=False)  # fmt: skip
    out.print(f"work: {answer.workload.source}\n", markup=False)
    heads = ("queue", "attempts/s", "mean", "slots", "now", "busy", "target", "p50/p95/p99 by formula", "by simulation",
             "work")  # fmt: skip
    print_table(heads, (_row(answer, queue) for queue in plan.queues))
    out.print()
    print_table(("part", "load", "bears", "unit", "headroom", "jobs/day", "says"), _parts(plan))
    out.print()
    for sentence in sentences(answer):
        out.print(sentence, markup=False)


def sentences(answer: Answer) -> Iterator[str]:
    """Say what an operator acts on."""
    plan = answer.plan
    missed = [queue.queue.value for queue in plan.queues if not queue.is_met]
    yield f"targets: missed on {', '.join(missed)}" if missed else "targets: all are met"
    kept = "kept" if plan.is_affordable else f"passed: it affords {plan.affordable_jobs:,.0f} jobs a day"
    split = f"models {_usd(plan.model_usd_day)}, workers {_usd(plan.worker_usd_day)}"
    yield f"cost: {_usd(plan.usd_day)} a day ({split}); the ceiling of {_usd(plan.ceiling_usd)} is {kept}"
    yield f"next bottleneck: {_named(plan, plan.bottleneck)}"
    if plan.bottleneck != plan.bottleneck_measured:
        yield f"beyond workers and the policy's own limits: {_named(plan, plan.bottleneck_measured)}"
    yield f"the parts were measured on: {answer.limits.machine} ({answer.limits.at})"
    yield from (f"note: {note}" for note in plan.notes)


def view(answer: Answer) -> dict[str, Any]:
    """Return an answer for programs."""
    plan = answer.plan
    return {
        "jobs_per_day": plan.jobs_per_day,
        "arriving_per_second": {queue.value: rate for queue, rate in answer.question.arriving.items()},
        "arrivals": _arrivals(answer),
        "work": answer.workload.source,
        "queues": [_queue_view(answer, queue) for queue in plan.queues],
        "cost": {
            "usd_day": plan.usd_day, "model_usd_day": plan.model_usd_day, "worker_usd_day": plan.worker_usd_day,
            "ceiling_usd": plan.ceiling_usd, "is_kept": plan.is_affordable,
            "affordable_jobs_day": _or_none(plan.affordable_jobs),
        },
        "bottleneck": plan.bottleneck.name,
        "bottleneck_beyond_workers_and_policy": plan.bottleneck_measured.name,
        "parts": [_part_view(plan, part) for part in plan.components],
        "limits": answer.limits.model_dump(),
        "notes": list(plan.notes),
        "is_good": plan.is_good,
    }  # fmt: skip


def _arrivals(answer: Answer) -> str:
    bursts = answer.question.bursts
    if answer.question.replay is not None:
        return "as they came"
    return "Poisson" if bursts.peak == 1 else f"in bursts of {bursts.peak:g} times the rate for {bursts.seconds:g} s"


def _row(answer: Answer, queue: QueuePlan) -> tuple[str, ...]:
    work = answer.workload.queues[queue.queue]
    return (
        queue.queue.value, f"{queue.rate:.3g}", f"{work.service.mean:.3g} s", str(queue.slots), _now(answer, queue),
        f"{queue.busy:.0%}",
        f"{queue.target_seconds:g} s" + ("" if queue.is_met else " MISSED"), _waits(queue.formula),
        f"{_waits(queue.simulated.waits)} ±{queue.simulated.p95_error:.2g}",
        f"{work.attempts:,} measured" if work.source == "measured" else "default",
    )  # fmt: skip


def _now(answer: Answer, queue: QueuePlan) -> str:
    return str(answer.slots_now.get(queue.queue, 0)) if answer.slots_now else "-"


def _waits(waits: Waits) -> str:
    return f"{waits.p50:.2f}/{waits.p95:.2f}/{waits.p99:.2f} s" if waits.is_bounded else "without end"


def _parts(plan: Plan) -> Iterator[tuple[str, ...]]:
    for part in plan.components:
        yield (part.name, f"{part.load:,.4g}", f"{part.limit:,.4g}", part.unit, f"{part.headroom:.2f}x",
               f"{part.headroom * plan.jobs_per_day:,.0f}", part.whence)  # fmt: skip


def _named(plan: Plan, part: Component) -> str:
    bears = f"bears {part.headroom * plan.jobs_per_day:,.0f} jobs a day ({part.headroom:.2f} times this load)"
    more = "; more slots mend it" if part.is_elastic else ""
    return f"{part.name}, which {bears}{more}"


def _queue_view(answer: Answer, queue: QueuePlan) -> dict[str, Any]:
    work = answer.workload.queues[queue.queue]
    return {
        "queue": queue.queue.value, "attempts_per_second": queue.rate, "slots": queue.slots,
        "slots_now": answer.slots_now.get(queue.queue), "is_fixed": queue.is_fixed, "busy": queue.busy,
        "target_p95_seconds": _or_none(queue.target_seconds),
        "is_met": queue.is_met, "mean_seconds": work.service.mean, "variability": work.service.variability,
        "pickup_seconds": work.pickup_seconds, "turnaround_seconds": work.turnaround_seconds,
        "work": work.source, "measured_attempts": work.attempts,
        "formula_wait_seconds": _waits_view(queue.formula),
        "simulated_wait_seconds": _waits_view(queue.simulated.waits) | {"p95_error": queue.simulated.p95_error},
        "simulated_busy": queue.simulated.busy, "simulated_attempts": queue.simulated.attempts,
    }  # fmt: skip


def _waits_view(waits: Waits) -> dict[str, float | None]:
    return {name: _or_none(value) for name, value in asdict(waits).items()}


def _part_view(plan: Plan, part: Component) -> dict[str, Any]:
    return asdict(part) | {"headroom": part.headroom, "jobs_per_day": part.headroom * plan.jobs_per_day}


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _usd(amount: float) -> str:
    return format_usd(nanousd_of(amount), digits=2)
