"""A lane is one model of one provider's account: what trouble in it means, decided from values alone.

A provider that says it is busy is believed for the whole fleet at once: the lane is parked, nobody's attempts are spent
on it, and every other lane flows. A parked lane opens by one call that tries it (ledger/lanes.py).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ANY = "*"
LEAST_PAUSE_SECONDS = 1.0
_MOST_STEPS = 32
"""A pause that doubles has reached any bound by then."""
_SPREAD = 0.1
_MOST_SPREAD_SECONDS = 10.0

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LaneName = Annotated[str, StringConstraints(pattern=r"^[^/\s]{1,64}/[^/\s]{1,128}$")]
"""`PROVIDER/MODEL`, either of which may be `*`."""


class Trouble(StrEnum):
    """Why a lane is parked."""

    RATE_LIMITED = "rate_limited"
    """The provider said that this account asks too much (429)."""
    OVERLOADED = "overloaded"
    """The provider said that it has no room (529, 503)."""
    FAILING = "failing"
    """It cannot be reached, breaks calls off or answers with errors of its own (5xx)."""


class LaneState(StrEnum):
    """How a lane stands."""

    FLOWING = "flowing"
    HALF_OPEN = "half_open"
    """It was parked long enough: one call at a time may try it."""
    PARKED = "parked"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LaneRules(_Section):
    """How the calls of one lane are held back."""

    requests_per_minute: PerMinute | None = None
    """Calls that the whole fleet may make in a minute; None for no limit of ours."""
    tokens_per_minute: PerMinute | None = None
    """Tokens, read and written, in a minute; None for no limit of ours."""
    failures: int = Field(default=5, gt=0)
    """So many failed calls in a row park a lane. A provider that says it is busy is believed at once."""
    pause_seconds: Seconds = 2.0
    """How long a lane is parked first, where the provider names no time; doubled each time the lane fails its test."""
    longest_pause_seconds: Seconds = 120.0
    longest_retry_after_seconds: Seconds = 600.0
    """A provider that names a longer time is asked again after this one."""
    probe_seconds: Seconds = 60.0
    """How long the one call that tests a lane may take to be answered; then another one may."""


class LaneOverride(_Section):
    """What is different in some lanes."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    failures: int | None = Field(default=None, gt=0)
    pause_seconds: Seconds | None = None
    longest_pause_seconds: Seconds | None = None
    longest_retry_after_seconds: Seconds | None = None
    probe_seconds: Seconds | None = None


class Lanes(LaneRules):
    """How all lanes are held back, and those that are different."""

    longest_wait_seconds: Seconds = 3600.0
    """A job that waited so long for its lane, all waits together, ends `provider_busy`."""
    own: dict[LaneName, LaneOverride] = Field(default_factory=dict)
    """By `PROVIDER/MODEL`; a name wins over `*`, and the model's over the provider's."""

    def of(self, provider: str, model: str) -> LaneRules:
        """Return the rules of one lane.

        Args:
            provider: the name by which the gateway knows the account.
            model: the model.
        """
        if not self.own:
            return self
        changed: dict[str, Any] = {}
        for name in (f"{provider}/{ANY}", f"{ANY}/{model}", f"{provider}/{model}"):
            if (own := self.own.get(name)) is not None:
                changed |= own.model_dump(exclude_none=True)
        return self.model_copy(update=changed)


def read_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for, as a number or as a date; None when it says neither.

    Args:
        value: the header.
        now: what the provider's own clock shows, where it says so; otherwise ours.
    """
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        aware = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
        return max(0.0, (aware - now).total_seconds())
    return seconds if 0 <= seconds < math.inf else None


def pauses(trouble: Trouble, rules: LaneRules, *, retry_after: float | None, is_probe: bool) -> tuple[float, ...]:
    """Return for how many seconds the first, second, ... failure in a row parks a lane; the last holds for all after.

    Zero parks it not. How many there were is known only to the ledger, which picks from these under its lock.

    Args:
        trouble: what is wrong.
        rules: the lane's.
        retry_after: seconds that the provider named.
        is_probe: whether the call tested a lane that had been parked: then its failure always parks it again.
    """
    if retry_after is not None:
        return (min(max(retry_after, LEAST_PAUSE_SECONDS), rules.longest_retry_after_seconds),)
    growing = [min(rules.pause_seconds * 2.0**step, rules.longest_pause_seconds) for step in range(_MOST_STEPS)]
    last = growing.index(growing[-1])
    borne = rules.failures - 1 if trouble is Trouble.FAILING else 0
    return (*[growing[0] if is_probe else 0.0] * borne, *growing[: last + 1])


def job_pause(asked: float | None, lanes: Lanes, *, times: int, waited_seconds: float, salt: int) -> float | None:
    """Return how many seconds a job stays away from its lane, or None when it has waited for long enough.

    Jobs that were turned away together come back a little apart, each by a share of its own of the wait.

    Args:
        asked: seconds until the lane is tried again, where that is known.
        lanes: the policy's.
        times: how often the job has waited for a lane already.
        waited_seconds: how long, all in all.
        salt: any number of the job's own.
    """
    left = lanes.longest_wait_seconds - waited_seconds
    if left < LEAST_PAUSE_SECONDS:
        return None
    growing = min(lanes.pause_seconds * 2.0 ** min(times, _MOST_STEPS), lanes.longest_pause_seconds)
    pause = max(asked or 0.0, growing, LEAST_PAUSE_SECONDS)
    share = (salt % 1000) / 1000
    return min(pause + share * min(pause * _SPREAD, _MOST_SPREAD_SECONDS), left)
