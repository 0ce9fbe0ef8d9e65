"""What every other part of the fleet bears, and which of them gives out first when the load grows.

Workers can be added; one PostgreSQL, one dispatcher that leads, a provider's limits and a day's budget cannot. The
figures of `limits.json` are measured by `make bench ONLY=capacity` on the machine that they name: on another one they
are another, so they can be given as a file or one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from monitoring.capacity.workload import Rates, Workload
from monitoring.errors import CapacityError
from routing.lanes import LaneName
from routing.policy import Policy

_MOST_FILE_BYTES = 65_536
MEASURED, POLICY, SETTING, POOL = "measured", "policy", "setting", "pool"
"""Whence a limit is: a machine has it, the policy or a server's setting makes it, or it is the pool of a plan."""
_API_CONNECTIONS, _GATEWAY_CONNECTIONS, _OTHER_CONNECTIONS = 8, 6, 12
"""That each API and gateway process may keep open; and dispatchers, exporter and command line together."""
PerSecond = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class Limits(BaseModel):
    """What the parts beside the workers bear, each alone on its machine, and how much of it a job takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: str = Field(max_length=200)
    at: str = Field(max_length=40)
    """When it was measured."""
    api_submits_per_second: PerSecond
    """Of one process."""
    gateway_calls_per_second: PerSecond
    """Of one process, by models that answer at once."""
    dispatcher_rounds_per_second: PerSecond
    """Of the one that leads, with something to push in each round."""
    dispatcher_pushes_per_second: PerSecond
    """From the ledger to the broker."""
    ledger_transactions_per_second: PerSecond
    """That write, in the mix of jobs' lives and from several connections."""
    fold_events_per_second: PerSecond
    """That become metrics."""
    submit_transactions: Amount
    """That a submit writes."""
    attempt_transactions: Amount
    """That an attempt writes besides its calls and the renewals of its lease."""
    call_transactions: Amount
    """That a model call writes."""
    job_events: Amount
    attempt_events: Amount
    call_events: Amount
    ledger_connections: PerSecond = 100
    """Clients that the ledger's server admits: PostgreSQL's `max_connections`, whose own default this is."""
    slot_connections: Amount = 2
    """That a worker's slot keeps open: one for its work, one for its lease."""
    requests_per_minute: dict[LaneName, PerSecond] = Field(default_factory=dict, max_length=64)
    """What providers take, by `PROVIDER/MODEL`; where it is not said here, as the policy's lanes have it."""
    tokens_per_minute: dict[LaneName, PerSecond] = Field(default_factory=dict, max_length=64)

    def override(self, given: Mapping[str, float]) -> Limits:
        """Return the limits with some of them as an operator gives them.

        Raises:
            CapacityError: the operator's fault: there is no such limit, or it is not above 0.
        """
        changed = self.model_dump()
        for name, value in given.items():
            kind, is_lane, lane = name.partition(":")
            if is_lane and kind in _BY_LANE:
                changed[_BY_LANE[kind]][lane] = value
            elif name in NAMES:
                changed[name] = value
            else:
                raise CapacityError(f"--limit: there is no {name}; there are {', '.join(NAMES)}, {_LANE_WORDS}")
        return _validated(changed, source="--limit")


_BY_LANE = {"requests": "requests_per_minute", "tokens": "tokens_per_minute"}
_LANE_WORDS = "requests:PROVIDER/MODEL and tokens:PROVIDER/MODEL by the minute"
NAMES = tuple(name for name in Limits.model_fields if name not in ("machine", "at", *_BY_LANE.values()))


def read_limits(path: Path | None) -> Limits:
    """Return the limits of a file, alone or as a benchmark's answer holds them, or those that ship with the product.

    Raises:
        CapacityError: the operator's fault: it names the place and the rule.
    """
    if path is None:
        return Limits.model_validate_json((resources.files("monitoring.capacity") / "limits.json").read_text())
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_FILE_BYTES))
    except OSError as error:
        raise CapacityError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise CapacityError(f"{path}: is no JSON of at most {_MOST_FILE_BYTES} bytes") from None
    is_answer = isinstance(found, dict) and isinstance(found.get("limits"), dict)
    return _validated(found["limits"] if is_answer else found, source=str(path))


def _validated(found: Any, *, source: str) -> Limits:
    try:
        return Limits.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise CapacityError(f"{source}: {place}: {first['msg']}") from None


@dataclass(frozen=True)
class Component:
    """A part of the fleet, what it bears, and what this load asks of it."""

    name: str
    load: float
    limit: float
    unit: str
    whence: str
    """Who says so: `MEASURED`, `POLICY`, `SETTING` or `POOL`."""

    @property
    def headroom(self) -> float:
        """How many times this load it bears: below 1 it gives out already."""
        return self.limit / self.load if self.load > 0 else float("inf")

    @property
    def is_elastic(self) -> bool:
        """Whether more workers mend it."""
        return self.whence == POOL


@dataclass(frozen=True, kw_only=True)
class Instances:
    """How many there are of what can be there several times."""

    apis: int = 1
    gateways: int = 1
    tenants: int = 1


def components(
    workload: Workload, rates: Rates, *, arriving: float, slots: int, peak: float, limits: Limits, policy: Policy,
    instances: Instances,
) -> list[Component]:  # fmt: skip
    """Return what a load asks of every part but the workers.

    Args:
        workload: what attempts are like.
        rates: attempts per second by queue, at the peak.
        arriving: new jobs per second, at the peak.
        slots: of all pools together.
        peak: the peak over the day's mean, for what counts by the day.
        limits: what the parts bear.
        policy: whose limits on runways, tenants, lanes and budgets hold.
        instances: how many processes and tenants there are.
    """
    attempts = sum(rates.values())
    calls = sum(rate * workload.queues[queue].calls for queue, rate in rates.items())
    running = sum(rate * workload.queues[queue].service.mean for queue, rate in rates.items())
    writes = arriving * limits.submit_transactions + attempts * limits.attempt_transactions
    writes += calls * limits.call_transactions + running / policy.attempts.lease_renew_seconds
    events = arriving * limits.job_events + attempts * limits.attempt_events + calls * limits.call_events
    admitted = policy.admission.running_per_tenant
    return [
        Component("api", arriving, limits.api_submits_per_second * instances.apis, "submits/s", MEASURED),
        Component("gateway", calls, limits.gateway_calls_per_second * instances.gateways, "calls/s", MEASURED),
        Component("dispatcher", attempts, limits.dispatcher_pushes_per_second, "pushes/s", MEASURED),
        _runway(rates, limits, policy, instances),
        Component("ledger", writes, limits.ledger_transactions_per_second, "writes/s", MEASURED),
        Component(
            "ledger connections", _connections(slots, limits, instances), limits.ledger_connections, "clients", SETTING
        ),
        Component("exporter", events, limits.fold_events_per_second, "events/s", MEASURED),
        *([] if admitted is None else [
            Component("admission", running, admitted * instances.tenants, "attempts at once", POLICY)
        ]),
        *_lanes(workload, rates, limits, policy),
        *_budgets(workload, rates, peak, policy, instances),
    ]  # fmt: skip


def _connections(slots: int, limits: Limits, instances: Instances) -> float:
    others = instances.apis * _API_CONNECTIONS + instances.gateways * _GATEWAY_CONNECTIONS + _OTHER_CONNECTIONS
    return slots * limits.slot_connections + others


def _runway(rates: Rates, limits: Limits, policy: Policy, instances: Instances) -> Component:
    """The busiest queue: a round fills its runway at most once."""
    queue = max(rates, key=lambda name: rates[name])
    places = min(policy.runway.per_queue, policy.runway.per_tenant * instances.tenants)
    bound = limits.dispatcher_rounds_per_second * places
    return Component(f"runway of {queue.value}", rates[queue], bound, "jobs/s", MEASURED)


def _lanes(workload: Workload, rates: Rates, limits: Limits, policy: Policy) -> Iterable[Component]:
    for name in lanes_of(workload, rates):
        uses = [(rate, workload.queues[queue].models.get(name)) for queue, rate in rates.items()]
        calls = 60 * sum(rate * use.calls for rate, use in uses if use is not None)
        tokens = 60 * sum(rate * use.tokens for rate, use in uses if use is not None)
        rules = policy.lanes.of(*_parts_of(name))
        requests_bound = limits.requests_per_minute.get(name, rules.requests_per_minute)
        tokens_bound = limits.tokens_per_minute.get(name, rules.tokens_per_minute)
        if requests_bound is not None:
            yield Component(f"provider {name}", calls, requests_bound, "requests/min", POLICY)
        if tokens_bound is not None:
            yield Component(f"provider {name}", tokens, tokens_bound, "tokens/min", POLICY)


def lanes_of(workload: Workload, rates: Rates) -> list[str]:
    """Return which models of which providers a load calls, as `PROVIDER/MODEL`."""
    return sorted({name for queue, rate in rates.items() if rate > 0 for name in workload.queues[queue].models})


def unstated_lanes(workload: Workload, rates: Rates, *, limits: Limits, policy: Policy) -> list[str]:
    """Return the models that a load calls and of which nobody said how often a provider lets them be called."""
    stated = {*limits.requests_per_minute, *limits.tokens_per_minute}
    unsaid = (name for name in lanes_of(workload, rates) if name not in stated)
    return [name for name in unsaid if not _has_bounds(policy, name)]


def _has_bounds(policy: Policy, name: str) -> bool:
    rules = policy.lanes.of(*_parts_of(name))
    return rules.requests_per_minute is not None or rules.tokens_per_minute is not None


def _parts_of(name: str) -> tuple[str, str]:
    provider, _, model = name.partition("/")
    return provider, model


def _budgets(
    workload: Workload, rates: Rates, peak: float, policy: Policy, instances: Instances
) -> Iterable[Component]:  # fmt: skip
    usd = model_usd_per_day(workload, rates, peak=peak)
    yield Component("budget of the fleet", usd, policy.budgets.fleet_day_usd, "USD/day", POLICY)
    yield Component("budget of the tenants", usd, policy.budgets.tenant_day_usd * instances.tenants, "USD/day", POLICY)


def model_usd_per_day(workload: Workload, rates: Rates, *, peak: float) -> float:
    """Return what models cost in a day whose peak these rates are."""
    return 86_400 / peak * sum(rate * workload.queues[queue].usd for queue, rate in rates.items())


def by_headroom(found: Iterable[Component]) -> list[Component]:
    """Return parts in the order in which they give out when the load grows; those without any load are left out."""
    return sorted((part for part in found if part.load > 0), key=lambda part: (part.headroom, part.name))
