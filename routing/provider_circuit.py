"""Provider circuits: when calls to one model of a provider's account are held back, and for how long.

When a provider says that it is busy, the circuit opens for the whole fleet and no attempts are wasted; other circuits
stay closed. A successful trial call closes it again (ledger/provider_circuits.py).
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
"""Doublings after which any bound is reached."""
_SPREAD = 0.1
_MOST_SPREAD_SECONDS = 10.0

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]
CircuitName = Annotated[str, StringConstraints(pattern=r"^[^/\s]{1,64}/[^/\s]{1,128}$")]
"""`PROVIDER/MODEL`; either may be `*`."""


class Trouble(StrEnum):
    """Why a circuit opens."""

    RATE_LIMITED = "rate_limited"
    """The account exceeds its rate limit (429)."""
    OVERLOADED = "overloaded"
    """The provider is overloaded (529, 503)."""
    FAILING = "failing"
    """It is unreachable, drops calls or returns server errors (5xx)."""


class CircuitState(StrEnum):
    """State of a circuit."""

    CLOSED = "closed"
    HALF_OPEN = "half_open"
    """One trial call at a time."""
    OPEN = "open"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CircuitRules(_Section):
    """Limits of one circuit."""

    requests_per_minute: PerMinute | None = None
    """Calls of the whole fleet; None for no limit."""
    tokens_per_minute: PerMinute | None = None
    """Input and output tokens; None for no limit."""
    failures: int = Field(default=5, gt=0)
    """Consecutive failed calls that open the circuit; a busy provider opens it at once."""
    pause_seconds: Seconds = 2.0
    """How long it stays open first, unless the provider names a time; doubled with each failed trial."""
    longest_pause_seconds: Seconds = 120.0
    longest_retry_after_seconds: Seconds = 600.0
    """Upper bound of the time that a provider names."""
    probe_seconds: Seconds = 60.0
    """Time limit of the trial call; then another is made."""


class CircuitOverride(_Section):
    """Different limits for some circuits."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    failures: int | None = Field(default=None, gt=0)
    pause_seconds: Seconds | None = None
    longest_pause_seconds: Seconds | None = None
    longest_retry_after_seconds: Seconds | None = None
    probe_seconds: Seconds | None = None


class Circuits(CircuitRules):
    """Limits of all circuits, and overrides."""

    longest_wait_seconds: Seconds = 3600.0
    """A job that has waited this long in total ends as `provider_busy`."""
    own: dict[CircuitName, CircuitOverride] = Field(default_factory=dict)
    """By `PROVIDER/MODEL`; a name wins over `*`, and a model over a provider."""

    def of(self, provider: str, model: str) -> CircuitRules:
        """Return the limits of one circuit; `provider` is the gateway's name of the account."""
        if not self.own:
            return self
        changed: dict[str, Any] = {}
        for name in (f"{provider}/{ANY}", f"{ANY}/{model}", f"{provider}/{model}"):
            if (own := self.own.get(name)) is not None:
                changed |= own.model_dump(exclude_none=True)
        return self.model_copy(update=changed)


def read_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After` header, a number or a date; None if it is neither.

    Args:
        value: the header.
        now: the provider's clock if it sends a date, otherwise ours.
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


def pauses(trouble: Trouble, rules: CircuitRules, *, retry_after: float | None, is_probe: bool) -> tuple[float, ...]:
    """Return how many seconds the first, second, ... consecutive failure opens the circuit; the last one repeats.

    Zero leaves it closed. Only the ledger, under its lock, knows the number of failures and picks one.

    Args:
        trouble: what is wrong.
        rules: the circuit's limits.
        retry_after: seconds that the provider named.
        is_probe: whether this was the trial call, whose failure always opens the circuit again.
    """
    if retry_after is not None:
        return (min(max(retry_after, LEAST_PAUSE_SECONDS), rules.longest_retry_after_seconds),)
    growing = [min(rules.pause_seconds * 2.0**step, rules.longest_pause_seconds) for step in range(_MOST_STEPS)]
    last = growing.index(growing[-1])
    borne = rules.failures - 1 if trouble is Trouble.FAILING else 0
    return (*[growing[0] if is_probe else 0.0] * borne, *growing[: last + 1])


def job_pause(asked: float | None, circuits: Circuits, *, times: int, waited_seconds: float, salt: int) -> float | None:
    """Return how many seconds a job waits for its circuit, or None if it has waited too long; jitter spreads jobs.

    Args:
        asked: seconds until the next trial call, if known.
        circuits: the policy's limits.
        times: how often the job has waited before.
        waited_seconds: for how long in total.
        salt: a number that differs between jobs, for the jitter.
    """
    left = circuits.longest_wait_seconds - waited_seconds
    if left < LEAST_PAUSE_SECONDS:
        return None
    growing = min(circuits.pause_seconds * 2.0 ** min(times, _MOST_STEPS), circuits.longest_pause_seconds)
    pause = max(asked or 0.0, growing, LEAST_PAUSE_SECONDS)
    share = (salt % 1000) / 1000
    return min(pause + share * min(pause * _SPREAD, _MOST_SPREAD_SECONDS), left)
