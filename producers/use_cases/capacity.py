"""Answer a capacity question as typed, from this installation's ledger, a file or the defaults."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from sqlalchemy.exc import OperationalError

from ledger.errors import CapacityError
from monitoring.capacity.limits import Instances, Limits, read_limits
from monitoring.capacity.plan import Plan, Question, make_plan
from monitoring.capacity.queueing import MOST_BUSY
from monitoring.capacity.workload import (
    Measured,
    Workload,
    default_wait_target,
    default_workload,
    measure,
    read_workload,
)
from routing.queues import QueueName

if TYPE_CHECKING:
    from producers.bootstrap import Installation


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
    most_busy: float = MOST_BUSY
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
    policy = installation.policy
    measured = _read(installation, options.source, hours=options.hours)
    limits = read_limits(options.limits_file).override(parse_amounts("--limit", options.limits).named)
    arriving, peak = _arriving(measured.workload, options)
    waits = parse_amounts("--wait", options.waits)
    targets = {queue: waits.for_all or default_wait_target(queue) for queue in policy.queues}
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
