"""What is let in and what may run: limits that keep one tenant, or one flood, from taking the fleet from all others."""

from __future__ import annotations

import math

from pydantic import BaseModel, ConfigDict, Field

FURTHEST_START_DAYS = 30
"""How far ahead a job may be asked to start."""
LONGEST_RETRY_SECONDS = 3_600
NO_RATE_SECONDS = 60
"""What a caller is told to wait while nothing is being worked off, so that nobody knows how long it will take."""
_HEADROOM = 0.1
"""Part of a full queue that has to be worked off before a caller is told to come back."""


class Admission(BaseModel):
    """How much may wait and run (`admission` in the policy)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    running_per_tenant: int | None = Field(default=64, gt=0)
    """Attempts of one tenant at a time, over all queues but `control`; a tenant may have a limit of its own."""
    waiting_per_queue: int = Field(default=100_000, gt=0)
    """Jobs that may wait on a queue; another one is refused with a time to come back."""
    waiting_per_tenant: int = Field(default=20_000, gt=0)
    """Of those, jobs of one tenant."""


def retry_after_seconds(waiting: int, *, limit: int, drained_per_second: float) -> int:
    """Return when it is worth trying again to get into a queue that is full.

    Args:
        waiting: how many jobs wait.
        limit: how many may.
        drained_per_second: how fast they are worked off.
    """
    if drained_per_second <= 0:
        return NO_RATE_SECONDS
    excess = waiting - limit + max(1.0, _HEADROOM * limit)
    return min(LONGEST_RETRY_SECONDS, max(1, math.ceil(excess / drained_per_second)))
