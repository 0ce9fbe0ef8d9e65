"""What a fleet does: how long attempts take on each queue, what follows from them, and what they cost.

One ledger's measurements can be written to a file and planned with elsewhere: `Workload` is that file's format. What
was not measured is taken from the policy's prices, speeds and limits, and said to be so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ledger.errors import CapacityError
from routing.policy.platform import ModelCall, Policy
from routing.policy.prices import NANOUSD_PER_USD, Usage, cost_nanousd
from routing.queues import QUEUES, QueueName

_MOST_FILE_BYTES = 1_048_576
_MOST_PASSES = 10_000
_STILL = 1e-9

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Rates = Mapping[QueueName, float]
"""Per second."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelUse(_Section):
    """What an attempt asks of one model, on average."""

    calls: Amount
    tokens: Amount
    """Read and written."""


class QueueWork(_Section):
    """What attempts on one queue are like."""

    source: Literal["measured", "default"]
    attempts: int = Field(default=0, ge=0)
    """How many were measured."""
    mean_seconds: Seconds
    """What an attempt takes, from claim to settlement."""
    variability: Amount
    """Variance of that over the mean squared."""
    pickup_seconds: Seconds = 0.0
    """From when a job begins to wait to its claim by a slot that was free: the median."""
    turnaround_seconds: Seconds = 0.0
    """From an attempt's end to the next claim on its slot while jobs wait: the median."""
    follows: dict[QueueName, Share] = Field(default_factory=dict)
    """Shares of attempts after which the job waits on another queue, or on this one once more."""
    usd: Amount = 0.0
    """Model cost of an attempt."""
    models: dict[str, ModelUse] = Field(default_factory=dict, max_length=64)
    """By `PROVIDER/MODEL`."""

    @model_validator(mode="after")
    def _check_follows(self) -> Self:
        if sum(self.follows.values()) > 1 + _STILL:
            raise ValueError("follows: its shares must not be above 1 together")
        return self

    @property
    def occupied_seconds(self) -> float:
        """For how long an attempt keeps its slot from others: with the turnaround."""
        return self.mean_seconds + self.turnaround_seconds

    @property
    def occupied_variability(self) -> float:
        """Variance of that over its mean squared."""
        return self.variability * (self.mean_seconds / self.occupied_seconds) ** 2 if self.occupied_seconds else 0.0

    @property
    def calls(self) -> float:
        """Model calls of an attempt."""
        return sum(use.calls for use in self.models.values())


class Workload(_Section):
    """What was measured of a fleet, or is taken where nothing was."""

    v: Literal[2] = 2
    source: str = Field(max_length=400)
    """Where it comes from, in words."""
    queues: dict[QueueName, QueueWork]
    mix: dict[QueueName, Share]
    """At which queue new jobs arrive: shares that make 1 together."""
    rate_per_second: Amount | None = None
    """New jobs per second in the busiest hour that was measured."""
    tenants: int = Field(default=1, ge=1)
    """Tenants with work."""

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        if abs(sum(self.mix.values()) - 1) > 1e-6:
            raise ValueError("mix: its shares must make 1 together")
        named = set(self.mix).union(*(work.follows for work in self.queues.values()))
        if missing := sorted(queue.value for queue in named - set(self.queues)):
            raise ValueError(f"queues: must describe {', '.join(missing)}, where jobs arrive")
        return self

    def rates(self, arriving: Rates) -> dict[QueueName, float]:
        """Return the attempts per second of every queue: what arrives, and what follows from it.

        Raises:
            CapacityError: the caller's fault: more and more follows from the work, without an end.
        """
        rates = dict.fromkeys(self.queues, 0.0) | dict(arriving)
        for _ in range(_MOST_PASSES):
            following = dict.fromkeys(self.queues, 0.0) | dict(arriving)
            for queue, rate in rates.items():
                for target, share in self.queues[queue].follows.items():
                    following[target] += rate * share
            if all(abs(following[queue] - rates[queue]) <= _STILL * (1 + rates[queue]) for queue in rates):
                return following
            rates = following
        raise CapacityError("follows: every attempt brings another: no number of workers ends that")

    def arriving(self, total: float) -> dict[QueueName, float]:
        """Return a rate of new jobs as rates by queue, in the shares of `mix`."""
        return {queue: total * share for queue, share in self.mix.items() if share > 0}


def read_workload(path: Path) -> Workload:
    """Read a file that `pointsman capacity --save` wrote, or a person.

    Raises:
        CapacityError: the caller's fault: it names the place and the rule.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise CapacityError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > _MOST_FILE_BYTES:
        raise CapacityError(f"{path}: is longer than {_MOST_FILE_BYTES} bytes")
    try:
        return Workload.model_validate_json(data)
    except ValidationError as error:
        raise CapacityError(f"{path}: {first_error(error)}") from None


def first_error(error: ValidationError) -> str:
    """Return the place and the rule of a document's first mistake."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the document"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"


_PROVIDER = "anthropic"
_TYPICAL_SHARE = 0.4
"""Of the tokens that a call may write: what it writes in the middle. Its slowest twentieth writes all of them."""
_MESSAGE_SECONDS = 0.02
"""The way of a message to a slot."""


def default_workload(policy: Policy) -> Workload:
    """Return what is taken where nothing was measured at all."""
    queues = {queue: default_work(policy, queue) for queue in QUEUES}
    mix = {name: queue.arrivals for name, queue in QUEUES.items() if queue.arrivals}
    mix[QueueName.SPEC] += 1 - sum(mix.values())
    return Workload(source="defaults: nothing was measured", queues=queues, mix=mix)


def default_work(policy: Policy, queue: QueueName) -> QueueWork:
    """Return what is taken of one queue."""
    limits, record = policy.queues[queue], QUEUES[queue]
    call = policy.calls[record.call or "agent_session"]
    count = record.calls if record.call else 0
    if record.busy_share is None:
        median, p95 = _call_seconds(policy, call)
    else:
        median, p95 = (share * limits.soft_seconds for share in record.busy_share)
    mean, variability = _lognormal(median, p95=min(p95, limits.hard_seconds), most=limits.hard_seconds)
    return QueueWork(
        source="default",
        mean_seconds=mean,
        variability=variability,
        pickup_seconds=_MESSAGE_SECONDS,
        turnaround_seconds=_MESSAGE_SECONDS,
        follows=dict(record.follows),
        usd=_usd(policy, call, count) if count else 0.0,
        models={f"{_PROVIDER}/{call.model}": _use(call, count)} if count else {},
    )


def default_wait_target(queue: QueueName) -> float:
    """Return the seconds that 95 % of a queue's attempts should not wait longer than, where nobody says otherwise."""
    return QUEUES[queue].target_seconds


def _call_seconds(policy: Policy, call: ModelCall) -> tuple[float, float]:
    speed = policy.speeds[call.model]
    written = call.max_tokens / speed.tokens_per_second
    return speed.first_token_seconds + _TYPICAL_SHARE * written, speed.first_token_seconds + written


def _usage(call: ModelCall, count: int) -> Usage:
    return Usage(input_tokens=call.input_tokens, output_tokens=round(_TYPICAL_SHARE * call.max_tokens / count))


def _usd(policy: Policy, call: ModelCall, count: int) -> float:
    return count * cost_nanousd(policy.prices[call.model], _usage(call, count)) / NANOUSD_PER_USD


def _use(call: ModelCall, count: int) -> ModelUse:
    usage = _usage(call, count)
    return ModelUse(calls=count, tokens=count * (usage.input_tokens + usage.output_tokens))


def _lognormal(median: float, *, p95: float, most: float) -> tuple[float, float]:
    """Return mean and variability of a lognormal distribution that is cut off at `most`."""
    normal = NormalDist()
    sigma = math.log(p95 / median) / normal.inv_cdf(0.95)
    bound = math.log(most / median) / sigma
    beyond = 1 - normal.cdf(bound)
    mean, square = (
        median**power * math.exp((power * sigma) ** 2 / 2) * normal.cdf(bound - power * sigma) + most**power * beyond
        for power in (1, 2)
    )
    return mean, square / mean**2 - 1
