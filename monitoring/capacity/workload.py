"""What a fleet does, as values: how long attempts take on each queue, what follows from them, and what they cost.

One ledger's measurements can be written to a file and planned with elsewhere: this is that file's format.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from monitoring.capacity.samples import MOST_SAMPLES, Samples
from monitoring.errors import CapacityError
from routing.queues import QueueName

MOST_FILE_BYTES = 8 * 1024 * 1024
_MOST_PASSES = 10_000
_STILL = 1e-9

Seconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Rates = Mapping[QueueName, float]


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
    seconds: tuple[Seconds, ...] = Field(min_length=1, max_length=MOST_SAMPLES)
    """What attempts took, from claim to settlement: samples."""
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

    @cached_property
    def service(self) -> Samples:
        """The samples as a distribution."""
        return Samples.of(self.seconds)

    @cached_property
    def occupancy(self) -> Samples:
        """For how long an attempt keeps its slot from others: with the way to the next one."""
        return self.service.shifted(self.turnaround_seconds)

    @property
    def calls(self) -> float:
        """Model calls of an attempt."""
        return sum(use.calls for use in self.models.values())


class Workload(_Section):
    """What was measured of a fleet, or is taken where nothing was."""

    v: Literal[1] = 1
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

        Args:
            arriving: new jobs per second by queue.

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
            data = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise CapacityError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > MOST_FILE_BYTES:
        raise CapacityError(f"{path}: is longer than {MOST_FILE_BYTES} bytes")
    try:
        return Workload.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise CapacityError(f"{path}: {place}: {first['msg'].removeprefix('Value error, ')}") from None
