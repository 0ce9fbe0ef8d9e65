"""Plan pools that meet their targets, with their cost and the next bottleneck.

Workers can be added; the one PostgreSQL, the leading dispatcher, a provider's limits and a day's budget cannot. The
figures in `limits.json` come from `make bench ONLY=capacity` on the machine that they name; other machines differ, so
they can be given as a file or one by one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from ledger.errors import CapacityError
from monitoring.capacity.queueing import MOST_BUSY, MOST_SLOTS, Load, Waits, slots_for, waits
from monitoring.capacity.workload import QueueWork, Rates, Workload, first_error
from routing.config import Section
from routing.policy.platform import Policy
from routing.provider_circuit import CircuitName
from routing.queues import QueueName

_MOST_FILE_BYTES = 65_536
MEASURED, POLICY, SETTING, POOL = "measured", "policy", "setting", "pool"
"""Where a limit comes from: a measurement, the policy, a server's setting, or a pool of the plan."""
_UNITS = ("requests/min", "tokens/min")
_API_CONNECTIONS, _GATEWAY_CONNECTIONS, _OTHER_CONNECTIONS = 8, 6, 12
"""Ledger connections per API process, per gateway process, and of all other programs together."""
PerSecond = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Limits(Section):
    """The limits of the parts, each alone on its machine, and the share that a job takes."""

    machine: str = Field(max_length=200)
    at: str = Field(max_length=40)
    """When it was measured."""
    api_submits_per_second: PerSecond
    """Per process."""
    gateway_calls_per_second: PerSecond
    """Per process, with models that answer at once."""
    dispatcher_rounds_per_second: PerSecond
    """Of the leader, with something to push in each round."""
    dispatcher_pushes_per_second: PerSecond
    """From the ledger to the broker."""
    ledger_transactions_per_second: PerSecond
    """Writing ones, in the mix of jobs' lives and from several connections."""
    fold_events_per_second: PerSecond
    """Events turned into metrics."""
    submit_transactions: Amount
    """Written per submission."""
    attempt_transactions: Amount
    """Written per attempt, besides its calls and lease renewals."""
    call_transactions: Amount
    """Written per model call."""
    job_events: Amount
    attempt_events: Amount
    call_events: Amount
    ledger_connections: PerSecond = 100
    """PostgreSQL's `max_connections`, with its default."""
    slot_connections: Amount = 2
    """Per worker slot: one for its work, one for its lease."""
    requests_per_minute: dict[CircuitName, PerSecond] = Field(default_factory=dict, max_length=64)
    """Providers' limits, by `PROVIDER/MODEL`; by default those of the policy."""
    tokens_per_minute: dict[CircuitName, PerSecond] = Field(default_factory=dict, max_length=64)

    def override(self, given: Mapping[str, float]) -> Limits:
        """Return the limits with some replaced by an operator's.

        Raises:
            CapacityError: the operator's fault: an unknown limit, or one that is not above 0.
        """
        changed = self.model_dump()
        for name, value in given.items():
            kind, is_circuit, circuit = name.partition(":")
            if is_circuit and kind in _BY_CIRCUIT:
                changed[_BY_CIRCUIT[kind]][circuit] = value
            elif name in NAMES:
                changed[name] = value
            else:
                raise CapacityError(f"--limit: there is no {name}; there are {', '.join(NAMES)}, {_CIRCUIT_WORDS}")
        return _validated(changed, source="--limit")


_BY_CIRCUIT = {"requests": "requests_per_minute", "tokens": "tokens_per_minute"}
_CIRCUIT_WORDS = "requests:PROVIDER/MODEL and tokens:PROVIDER/MODEL by the minute"
NAMES = tuple(name for name in Limits.model_fields if name not in ("machine", "at", *_BY_CIRCUIT.values()))


def read_limits(path: Path | None) -> Limits:
    """Return the limits in a file, bare or within a benchmark's answer; by default the shipped ones.

    Raises:
        CapacityError: the operator's fault: it names the field and the rule.
    """
    if path is None:
        return Limits.model_validate_json((resources.files("monitoring.capacity") / "limits.json").read_text())
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MOST_FILE_BYTES))
    except OSError as error:
        raise CapacityError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise CapacityError(f"{path}: is no JSON of at most {_MOST_FILE_BYTES} bytes") from None
    is_answer = isinstance(document, dict) and isinstance(document.get("limits"), dict)
    return _validated(document["limits"] if is_answer else document, source=str(path))


def _validated(limits: Any, *, source: str) -> Limits:
    try:
        return Limits.model_validate(limits)
    except ValidationError as error:
        raise CapacityError(f"{source}: {first_error(error)}") from None


@dataclass(frozen=True)
class Component:
    """A part of the installation with its load and limit."""

    name: str
    load: float
    limit: float
    unit: str
    basis: str
    """`MEASURED`, `POLICY`, `SETTING` or `POOL`."""

    @property
    def headroom(self) -> float:
        """Limit over load: below 1 it is overloaded."""
        return self.limit / self.load if self.load > 0 else float("inf")

    @property
    def is_elastic(self) -> bool:
        """Whether more workers raise the limit."""
        return self.basis == POOL


@dataclass(frozen=True, kw_only=True)
class Instances:
    """Numbers of what can exist several times."""

    apis: int = 1
    gateways: int = 1
    tenants: int = 1


@dataclass(frozen=True, kw_only=True)
class FleetLoad:
    """The load on a fleet at the peak."""

    workload: Workload
    rates: Rates
    """Attempts per second by queue."""
    arriving: float
    """New jobs per second."""
    slots: int
    """Of all pools together."""
    peak: float
    """The peak over the day's mean, for daily figures."""

    def total(self, of_attempt: Callable[[QueueWork], float]) -> float:
        """Return the sum per second over all attempts."""
        return sum(rate * of_attempt(self.workload.queues[queue]) for queue, rate in self.rates.items())

    @property
    def usd_per_day(self) -> float:
        """Models' cost per day."""
        return 86_400 / self.peak * self.total(lambda work: work.usd)

    @property
    def models(self) -> list[str]:
        """The models called, as `PROVIDER/MODEL`."""
        called = {name for queue, rate in self.rates.items() if rate > 0 for name in self.workload.queues[queue].models}
        return sorted(called)


def components(load: FleetLoad, *, limits: Limits, policy: Policy, instances: Instances) -> Iterator[Component]:
    """Yield every part but the workers with its share of a load."""
    attempts = sum(load.rates.values())
    calls = load.total(lambda work: work.calls)
    running = load.total(lambda work: work.mean_seconds)
    writes = load.arriving * limits.submit_transactions + attempts * limits.attempt_transactions
    writes += calls * limits.call_transactions + running / policy.attempts.lease_renew_seconds
    events = load.arriving * limits.job_events + attempts * limits.attempt_events + calls * limits.call_events
    connections = load.slots * limits.slot_connections + _OTHER_CONNECTIONS
    connections += instances.apis * _API_CONNECTIONS + instances.gateways * _GATEWAY_CONNECTIONS
    yield Component("api", load.arriving, limits.api_submits_per_second * instances.apis, "submits/s", MEASURED)
    yield Component("gateway", calls, limits.gateway_calls_per_second * instances.gateways, "calls/s", MEASURED)
    yield Component("dispatcher", attempts, limits.dispatcher_pushes_per_second, "pushes/s", MEASURED)
    busiest = max(load.rates, key=lambda queue: load.rates[queue])  # a round fills its dispatch window at most once
    window = min(policy.dispatch_window.per_queue, policy.dispatch_window.per_tenant * instances.tenants)
    rounds = limits.dispatcher_rounds_per_second
    yield Component(f"dispatch window of {busiest.value}", load.rates[busiest], rounds * window, "jobs/s", MEASURED)
    yield Component("ledger", writes, limits.ledger_transactions_per_second, "writes/s", MEASURED)
    yield Component("ledger connections", connections, limits.ledger_connections, "clients", SETTING)
    yield Component("exporter", events, limits.fold_events_per_second, "events/s", MEASURED)
    if (admitted := policy.admission.running_per_tenant) is not None:
        yield Component("admission", running, admitted * instances.tenants, "attempts at once", POLICY)
    yield from _providers(load, limits, policy)
    usd, budgets = load.usd_per_day, policy.budgets
    yield Component("budget of the fleet", usd, budgets.fleet_day_usd, "USD/day", POLICY)
    yield Component("budget of the tenants", usd, budgets.tenant_day_usd * instances.tenants, "USD/day", POLICY)


def _providers(load: FleetLoad, limits: Limits, policy: Policy) -> Iterator[Component]:
    for name in load.models:
        used = {queue: work.models[name] for queue, work in load.workload.queues.items() if name in work.models}
        calls = 60 * sum(load.rates[queue] * use.calls for queue, use in used.items() if queue in load.rates)
        tokens = 60 * sum(load.rates[queue] * use.tokens for queue, use in used.items() if queue in load.rates)
        for asked, bound, unit in zip((calls, tokens), _bounds(name, limits, policy), _UNITS, strict=True):
            if bound is not None:
                yield Component(f"provider {name}", asked, bound, unit, POLICY)


def unbounded_models(load: FleetLoad, *, limits: Limits, policy: Policy) -> list[str]:
    """Return the models called for which no provider's limit is known."""
    return [name for name in load.models if _bounds(name, limits, policy) == (None, None)]


def _bounds(name: str, limits: Limits, policy: Policy) -> tuple[float | None, float | None]:
    """Return a provider's limits for a model in requests and tokens per minute."""
    provider, _, model = name.partition("/")
    rules = policy.circuits.of(provider, model)
    return (
        limits.requests_per_minute.get(name, rules.requests_per_minute),
        limits.tokens_per_minute.get(name, rules.tokens_per_minute),
    )


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
