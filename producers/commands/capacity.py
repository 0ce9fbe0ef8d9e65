"""`capacity`: a question as typed, answered from this installation's ledger, a file or the defaults."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from ledger.errors import CapacityError
from producers.commands.context import FAILED, USAGE, AsJson, fail, installed, out, print_json, print_table
from routing.queues import QUEUES, QueueName

if TYPE_CHECKING:
    from monitoring.capacity.plan import Component, Limits, Plan, Question, QueuePlan
    from monitoring.capacity.queueing import Waits
    from monitoring.capacity.workload import Measured, Workload
    from producers.bootstrap import Installation


app = typer.Typer()


def _repeatable(name: str, metavar: str, words: str) -> object:
    return typer.Option(name, metavar=metavar, help=f"{words}; repeatable.")


Texts = list[str] | None


@app.command()
def capacity(
    ctx: typer.Context,
    rates: Annotated[
        Texts, _repeatable("--rate", "RATE", "New jobs: 5/s, 3000000/day, or spec=2/s; default: as measured")
    ] = None,
    waits: Annotated[Texts, _repeatable("--wait", "SECONDS", "Longest wait of 95 % of attempts, or spec=10")] = None,
    ceiling_usd: Annotated[
        float | None,
        typer.Option("--ceiling", metavar="USD", min=0, help="Daily cost limit; default: the policy's budget."),
    ] = None,
    slots: Annotated[
        Texts, _repeatable("--slots", "QUEUE=N", "Fix the size of a pool; or `now`: all pools as they are")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help="ledger, defaults, or a file of --save; default: the ledger."),
    ] = None,
    hours: Annotated[int, typer.Option(metavar="N", min=1, max=8_760, help="How far back to read the ledger.")] = 24,
    peak: Annotated[
        float | None,
        typer.Option(
            metavar="FACTOR", min=1, max=100, help="Peak over the daily mean; default: 2.5 for daily rates, else 1."
        ),
    ] = None,
    burstiness: Annotated[
        float,
        typer.Option(
            metavar="RATIO", min=1, max=100, help="Variance of arrivals over their mean; random arrivals have 1."
        ),
    ] = 1.0,
    slot_usd_hour: Annotated[
        float, typer.Option("--slot-usd", metavar="USD", min=0, help="Hourly cost of a worker slot.")
    ] = 0.0,
    most_busy: Annotated[
        float,
        typer.Option("--busy", metavar="SHARE", min=0.05, max=0.99, help="Maximum utilisation of a planned slot."),
    ] = 0.9,
    apis: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="API processes.")] = 1,
    gateways: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Gateway processes.")] = 1,
    tenants: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tenants with work; default: as measured.")
    ] = None,
    limits_file: Annotated[
        Path | None,
        typer.Option(
            "--limits", metavar="FILE", help="Limits of the other components, as make bench ONLY=capacity writes."
        ),
    ] = None,
    limits: Annotated[Texts, _repeatable("--limit", "NAME=VALUE", "Override one limit")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Save the measurements for --from.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit 1 if a target, the cost limit or a component fails.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Size the worker pools with a queueing formula, and name the next bottleneck.

    Durations, escalations and costs come from the ledger's attempts; what was not measured has defaults, and the answer
    says so. docs/scaling.md explains the formula and its limits.
    """
    options = CapacityOptions(**{each.name: ctx.params[each.name] for each in fields(CapacityOptions)})
    with installed(ctx) as installation:
        try:
            result = answer(installation, options)
            if save is not None:
                save_workload(result.workload, save)
        except CapacityError as error:
            fail(str(error), code=USAGE)
    if as_json:
        print_json(_view(result))
    else:
        _show(result)
    if check and not result.plan.is_good:
        raise typer.Exit(FAILED)


def _show(answer: Answer) -> None:
    plan = answer.plan
    rate = sum(answer.question.arriving.values())
    out.print(f"{plan.jobs_per_day:,.0f} jobs a day, {rate:.4g}/s at the peak")
    out.print(f"work: {answer.workload.source}\n")
    heads = ("queue", "attempts/s", "mean", "slots", "now", "busy", "target", "wait p50/p95/p99", "work")
    print_table(heads, (_row(answer, queue) for queue in plan.queues))
    out.print()
    parts = (
        (
            part.name,
            f"{part.load:,.4g}",
            f"{part.limit:,.4g}",
            part.unit,
            f"{part.headroom:.2f}x",
            f"{part.headroom * plan.jobs_per_day:,.0f}",
            part.basis,
        )
        for part in plan.components
    )
    print_table(("component", "load", "limit", "unit", "headroom", "jobs/day", "source"), parts)
    out.print()
    for sentence in _sentences(answer):
        out.print(sentence)


def _row(answer: Answer, queue: QueuePlan) -> tuple[str, ...]:
    work = answer.workload.queues[queue.queue]
    return (
        queue.queue.value,
        f"{queue.load.rate:.3g}",
        f"{work.mean_seconds:.3g} s",
        str(queue.slots),
        str(answer.slots_now.get(queue.queue, 0)) if answer.slots_now else "-",
        f"{queue.busy:.0%}",
        f"{queue.target_seconds:g} s" + ("" if queue.is_met else " MISSED"),
        _waits(queue.waits),
        f"{work.attempts:,} measured" if work.source == "measured" else "default",
    )


def _waits(waits: Waits) -> str:
    return f"{waits.p50:.2f}/{waits.p95:.2f}/{waits.p99:.2f} s" if waits.is_bounded else "unbounded"


def _sentences(answer: Answer) -> Iterator[str]:
    """Yield what an operator can act on."""
    plan = answer.plan
    missed = [queue.queue.value for queue in plan.queues if not queue.is_met]
    yield f"targets of time: missed on {', '.join(missed)}" if missed else "targets of time: all met"
    verdict = "respected" if plan.is_affordable else f"exceeded: it pays for {plan.affordable_jobs:,.0f} jobs a day"
    split = f"models ${plan.model_usd_day:,.2f}, workers ${plan.worker_usd_day:,.2f}"
    yield f"cost: ${plan.usd_day:,.2f} a day ({split}); the limit of ${plan.ceiling_usd:,.2f} is {verdict}"
    yield f"next bottleneck: {_describe(plan, plan.bottleneck)}"
    if plan.bottleneck != plan.bottleneck_measured:
        yield f"beyond workers and the policy's own limits: {_describe(plan, plan.bottleneck_measured)}"
    yield f"components measured on: {answer.limits.machine} ({answer.limits.at})"
    yield from (f"note: {note}" for note in plan.notes)


def _describe(plan: Plan, part: Component) -> str:
    limit = f"handles {part.headroom * plan.jobs_per_day:,.0f} jobs a day ({part.headroom:.2f} times this load)"
    return f"{part.name}, which {limit}{'; more slots help' if part.is_elastic else ''}"


def _view(answer: Answer) -> dict[str, Any]:
    """Return an answer as JSON data."""
    plan = answer.plan
    return {
        "jobs_per_day": plan.jobs_per_day,
        "arriving_per_second": {queue.value: rate for queue, rate in answer.question.arriving.items()},
        "burstiness": answer.question.burstiness,
        "work": answer.workload.source,
        "queues": [_queue_view(answer, queue) for queue in plan.queues],
        "cost": {
            "usd_day": plan.usd_day,
            "model_usd_day": plan.model_usd_day,
            "worker_usd_day": plan.worker_usd_day,
            "ceiling_usd": plan.ceiling_usd,
            "is_kept": plan.is_affordable,
            "affordable_jobs_day": _or_none(plan.affordable_jobs),
        },
        "bottleneck": plan.bottleneck.name,
        "bottleneck_beyond_workers_and_policy": plan.bottleneck_measured.name,
        "parts": [
            asdict(part) | {"headroom": part.headroom, "jobs_per_day": part.headroom * plan.jobs_per_day}
            for part in plan.components
        ],
        "limits": answer.limits.model_dump(),
        "notes": list(plan.notes),
        "is_good": plan.is_good,
    }


def _queue_view(answer: Answer, queue: QueuePlan) -> dict[str, Any]:
    work = answer.workload.queues[queue.queue]
    return {
        "queue": queue.queue.value,
        "attempts_per_second": queue.load.rate,
        "slots": queue.slots,
        "slots_now": answer.slots_now.get(queue.queue),
        "is_fixed": queue.is_fixed,
        "busy": queue.busy,
        "target_p95_seconds": _or_none(queue.target_seconds),
        "is_met": queue.is_met,
        "mean_seconds": work.mean_seconds,
        "variability": work.variability,
        "pickup_seconds": work.pickup_seconds,
        "turnaround_seconds": work.turnaround_seconds,
        "work": work.source,
        "measured_attempts": work.attempts,
        "wait_seconds": {name: _or_none(value) for name, value in asdict(queue.waits).items()},
    }


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


DAY_PEAK = 2.5
"""The busiest hour over the day's mean, where a rate is given by the day without a peak."""
LEDGER, DEFAULTS, NOW = "ledger", "defaults", "now"
_DAY = "day"
_SECONDS = {"s": 1, "min": 60, "h": 3_600, _DAY: 86_400}
_MOST_PER_SECOND = 1e6
_MOST_WORD = 100


@dataclass(frozen=True, kw_only=True)
class CapacityOptions:
    """A question as typed; what is omitted comes from the ledger, the policy or the defaults."""

    rates: Sequence[str] = ()
    waits: Sequence[str] = ()
    slots: Sequence[str] = ()
    limits: Sequence[str] = ()
    limits_file: Path | None = None
    source: str | None = None
    hours: int = 24
    peak: float | None = None
    burstiness: float = 1.0
    ceiling_usd: float | None = None
    slot_usd_hour: float = 0.0
    most_busy: float = 0.9
    apis: int = 1
    gateways: int = 1
    tenants: int | None = None


class Answer(NamedTuple):
    """A plan and its basis."""

    plan: Plan
    question: Question
    workload: Workload
    limits: Limits
    slots_now: Mapping[QueueName, int]
    """As reported by the fleet's workers."""


def answer(installation: Installation, options: CapacityOptions) -> Answer:
    """Return the plan for a question.

    Raises:
        CapacityError: the caller's fault: it names the field and the rule.
    """
    from monitoring.capacity.plan import Instances, Question, make_plan, read_limits

    policy = installation.policy
    measured = _read(installation, options.source, hours=options.hours)
    limits = read_limits(options.limits_file).override(parse_amounts("--limit", options.limits).named)
    arriving, peak = _arriving(measured.workload, options)
    waits = parse_amounts("--wait", options.waits)
    targets = {queue: waits.for_all or QUEUES[queue].target_seconds for queue in policy.queues}
    question = Question(
        arriving=arriving,
        p95_targets=targets | _by_queue("--wait", waits.named),
        peak=peak,
        burstiness=options.burstiness,
        ceiling_usd=policy.budgets.fleet_day_usd if options.ceiling_usd is None else options.ceiling_usd,
        slot_usd_hour=options.slot_usd_hour,
        fixed=_fixed(measured, options.slots),
        most_busy=options.most_busy,
        instances=Instances(
            apis=options.apis, gateways=options.gateways, tenants=options.tenants or measured.workload.tenants
        ),
    )
    plan = make_plan(measured.workload, question, limits=limits, policy=policy)
    return Answer(plan, question, measured.workload, limits, measured.slots)


def save_workload(workload: Workload, path: Path) -> None:
    """Write a measured workload to a file, for a plan elsewhere.

    Raises:
        CapacityError: the caller's fault: the file cannot be written.
    """
    try:
        path.write_text(workload.model_dump_json(indent=2) + "\n")
    except OSError as error:
        raise CapacityError(f"--save: {path}: {error.strerror}") from None


class Amounts(NamedTuple):
    """The values of a repeatable option."""

    for_all: float | None
    named: Mapping[str, float]
    is_by_day: bool = False
    """Whether rates are daily means, with the peak above them."""


def parse_amounts(option: str, words: Iterable[str], *, is_rate: bool = False) -> Amounts:
    """Parse amounts: `5` for all, `NAME=5` for one; as rates `5/s` or `NAME=3000000/day`.

    Raises:
        CapacityError: the caller's fault: it names the value and the rule.
    """
    for_all, named, units = None, {}, set()
    for word in words:
        name, given, amount = word.rpartition("=")
        amount, _, unit = amount.partition("/") if is_rate else (amount, "", "s")
        if unit not in _SECONDS:
            _refuse(option, word, f"must end in /{', /'.join(_SECONDS)}")
        value = _number(option, amount, word) / _SECONDS[unit]
        if not value > 0:
            _refuse(option, word, "must be above 0")
        if is_rate and value > _MOST_PER_SECOND:
            _refuse(option, word, "must be at most a million a second")
        if not given and for_all is not None:
            _refuse(option, word, "is the second one for all together")
        if given:
            named[name] = value
        else:
            for_all = value
        units.add(unit == _DAY)
    if len(units) > 1:
        raise CapacityError(f"{option}: give every rate by the day, or none")
    return Amounts(for_all, named, is_by_day=True in units)


def _number(option: str, amount: str, word: str) -> float:
    try:
        value = float(amount.replace(",", ""))
    except ValueError:
        value = math.nan
    return value if math.isfinite(value) else _refuse(option, word, "holds no number")


def _refuse(option: str, word: str, rule: str) -> NoReturn:
    raise CapacityError(f"{option}: {word[:_MOST_WORD]!r} {rule}")


def _by_queue(option: str, named: Mapping[str, float]) -> dict[QueueName, float]:
    queues = sorted(set(QueueName) - {QueueName.UNROUTED})
    for name in named:
        if name not in queues:
            _refuse(option, name, f"names no queue; there are {', '.join(queues)}")
    return {QueueName(name): value for name, value in named.items()}


def _read(installation: Installation, source: str | None, *, hours: int) -> Measured:
    """Return the workload from a source; without one from the ledger, or the defaults if it cannot be reached."""
    from sqlalchemy.exc import OperationalError

    from monitoring.capacity.workload import Measured, default_workload, measure, read_workload

    if source == DEFAULTS:
        return Measured(default_workload(installation.policy))
    if source not in (None, LEDGER):
        return Measured(read_workload(Path(source)))
    if source == LEDGER:
        return measure(installation.ledger, installation.policy, hours=hours)
    with suppress(OperationalError):
        return measure(installation.ledger, installation.policy, hours=hours)
    workload = default_workload(installation.policy)
    return Measured(workload.model_copy(update={"source": f"{workload.source}, as the ledger cannot be reached"}))


def _arriving(workload: Workload, options: CapacityOptions) -> tuple[dict[QueueName, float], float]:
    """Return new jobs per second by queue at the peak, and the peak over the mean."""
    rates = parse_amounts("--rate", options.rates, is_rate=True)
    if rates.for_all is not None and rates.named:
        raise CapacityError("--rate: give one rate for all queues, or one for each; not both")
    arriving = _by_queue("--rate", rates.named)
    if unknown := sorted(set(arriving) - set(workload.queues)):
        raise CapacityError(f"--rate: nothing is known of queue {unknown[0].value}")
    if not arriving:
        total = rates.for_all or workload.rate_per_second
        if total is None:
            raise CapacityError("--rate: must be given, such as 5/s or 100000/day: no arrivals were measured")
        arriving = workload.arriving(total)
    by_day = DAY_PEAK if rates.is_by_day else 1.0
    peak = by_day if options.peak is None else options.peak
    return ({queue: rate * peak for queue, rate in arriving.items()} if rates.is_by_day else arriving), peak


def _fixed(measured: Measured, words: Sequence[str]) -> dict[QueueName, int]:
    """Return the fixed pools: those that exist `now`, and those given by name."""
    if NOW in words and not measured.slots:
        raise CapacityError("--slots now: no worker of this ledger says that it is there")
    slots = parse_amounts("--slots", [word for word in words if word != NOW])
    if slots.for_all is not None:
        raise CapacityError("--slots: must name a queue: QUEUE=N; or be `now`")
    named = {queue: max(1, round(count)) for queue, count in _by_queue("--slots", slots.named).items()}
    return {**(measured.slots if NOW in words else {}), **named}
