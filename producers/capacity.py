"""Answers a question about capacity, as it was written: from this installation's ledger, a file, or stated defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy.exc import OperationalError

from monitoring.capacity.arrivals import Arrival, Bursts, replayed
from monitoring.capacity.defaults import WAIT_TARGETS, default_workload
from monitoring.capacity.limits import Instances, Limits, read_limits
from monitoring.capacity.measure import Measured, measure
from monitoring.capacity.plan import Plan, make_plan
from monitoring.capacity.sizing import MOST_BUSY, Question
from monitoring.capacity.words import by_queue, read_amounts, read_rates
from monitoring.capacity.workload import Workload, read_workload
from monitoring.errors import CapacityError
from routing.queues import QueueName

if TYPE_CHECKING:
    from producers.bootstrap import Installation

DAY_PEAK = 2.5
"""The busiest hour over the mean of its day, where a rate is given by the day and nobody says otherwise."""
LEDGER, DEFAULTS, NOW = "ledger", "defaults", "now"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question as people write it; what is left out is taken from the ledger, the policy or the defaults."""

    rates: Sequence[str] = ()
    waits: Sequence[str] = ()
    slots: Sequence[str] = ()
    limits: Sequence[str] = ()
    limits_file: Path | None = None
    source: str | None = None
    hours: int = 24
    peak: float | None = None
    ceiling_usd: float | None = None
    slot_usd_hour: float = 0.0
    most_busy: float = MOST_BUSY
    bursts: Bursts = field(default_factory=Bursts)
    is_replay: bool = False
    apis: int = 1
    gateways: int = 1
    tenants: int | None = None
    seed: int = 1
    attempts: int | None = None


class Answer(NamedTuple):
    """A plan, and what it is based on."""

    plan: Plan
    question: Question
    workload: Workload
    limits: Limits
    slots_now: Mapping[QueueName, int]
    """As the workers of the ledger's fleet say."""


def answer(installation: Installation, asked: Asked) -> Answer:
    """Plan.

    Raises:
        CapacityError: the caller's fault: it names the place and the rule.
    """
    found = find_workload(installation, asked.source, hours=asked.hours)
    borne = read_limits(asked.limits_file).override(read_amounts("--limit", asked.limits)[1])
    question = _question(found, asked, fleet_day_usd=installation.policy.budgets.fleet_day_usd)
    plan = make_plan(found.workload, question, limits=borne, policy=installation.policy)
    return Answer(plan, question, found.workload, borne, found.slots)


def find_workload(installation: Installation, source: str | None, *, hours: int) -> Measured:
    """Return what attempts are like.

    Args:
        installation: whose ledger and policy.
        source: `ledger`, `defaults` or a file; None for the ledger, or the defaults where it cannot be reached.
        hours: how far back the ledger is read.

    Raises:
        CapacityError: the caller's fault: the file cannot be read.
    """
    if source == DEFAULTS:
        return Measured(default_workload(installation.policy))
    if source not in (None, LEDGER):
        return Measured(read_workload(Path(source)))
    if source == LEDGER:
        return measure(installation.ledger, installation.policy, hours=hours)
    with suppress(OperationalError):
        return measure(installation.ledger, installation.policy, hours=hours)
    taken = default_workload(installation.policy)
    return Measured(taken.model_copy(update={"source": f"{taken.source}, as the ledger cannot be reached"}))


def save_workload(workload: Workload, path: Path) -> None:
    """Write what was measured, for a plan elsewhere.

    Raises:
        CapacityError: the caller's fault: the file cannot be written.
    """
    try:
        path.write_text(json.dumps(workload.model_dump(mode="json")) + "\n")
    except OSError as error:
        raise CapacityError(f"--save: {path}: {error.strerror}") from None


def _question(found: Measured, asked: Asked, *, fleet_day_usd: float) -> Question:
    arriving, is_by_day = _arriving(found, asked)
    peak = asked.peak if asked.peak is not None else DAY_PEAK if is_by_day else 1.0
    if is_by_day:
        arriving = {queue: rate * peak for queue, rate in arriving.items()}
    for_all, named = read_amounts("--wait", asked.waits)
    base = dict.fromkeys(WAIT_TARGETS, for_all) if for_all is not None else WAIT_TARGETS
    return Question(
        arriving=arriving,
        p95_targets={**base, **by_queue("--wait", named)},
        peak=peak,
        ceiling_usd=fleet_day_usd if asked.ceiling_usd is None else asked.ceiling_usd,
        slot_usd_hour=asked.slot_usd_hour,
        bursts=asked.bursts,
        replay=_replay(found.arrivals, asked, rate=sum(arriving.values())) if asked.is_replay else None,
        fixed=_fixed(found, asked.slots),
        most_busy=asked.most_busy,
        attempts=asked.attempts,
        seed=asked.seed,
        instances=Instances(
            apis=asked.apis, gateways=asked.gateways, tenants=asked.tenants or found.workload.tenants
        ),
    )  # fmt: skip


def _fixed(found: Measured, words: Sequence[str]) -> dict[QueueName, int]:
    """Return the pools that are given: those that are there `now`, and those that are named."""
    if NOW in words and not found.slots:
        raise CapacityError("--slots now: no worker of this ledger says that it is there")
    for_all, named = read_amounts("--slots", [word for word in words if word != NOW])
    if for_all is not None:
        raise CapacityError("--slots: must name a queue: QUEUE=N; or be `now`")
    given = {queue: max(1, round(slots)) for queue, slots in by_queue("--slots", named).items()}
    return {**(found.slots if NOW in words else {}), **given}


def _arriving(found: Measured, asked: Asked) -> tuple[dict[QueueName, float], bool]:
    """Return new jobs per second by queue, and whether they are a day's mean."""
    given = read_rates(asked.rates)
    if unknown := sorted(set(given.by_queue) - set(found.workload.queues)):
        raise CapacityError(f"--rate: nothing is known of queue {unknown[0].value}")
    if given.by_queue:
        return dict(given.by_queue), given.is_by_day
    total = given.total or found.workload.rate_per_second
    if total is None:
        raise CapacityError("--rate: must be given, such as 5/s or 100000/day: no arrivals were measured")
    return found.workload.arriving(total), given.is_by_day


def _replay(seen: Sequence[Arrival], asked: Asked, *, rate: float) -> list[Arrival]:
    """Let jobs come as they came, sped up or slowed down to a rate."""
    if len(seen) < 2 or seen[-1].at <= seen[0].at:
        raise CapacityError("--replay: needs the ledger of a fleet that has had work")
    if read_rates(asked.rates).by_queue:
        raise CapacityError("--replay: jobs come to the queues where they came: give one --rate for all of them")
    faster = rate / ((len(seen) - 1) / (seen[-1].at - seen[0].at))
    return list(replayed(seen, faster=faster))
