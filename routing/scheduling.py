"""Fair scheduling of queues among tenants, and admission limits.

Start-time fair queueing: a job costs its tenant 1 / weight of virtual time, so a tenant of weight 3 gets three jobs for
each job of a tenant of weight 1. A tenant that was idle resumes at the current virtual time and gains nothing by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class Share(NamedTuple):
    """A tenant's position on one queue."""

    tenant: str
    weight: int
    standing: int
    """Its jobs in the dispatch window."""
    turn: float
    """Virtual finish time of its last job."""
    room: int
    """How many more of its jobs may be dispatched."""


class Ready(NamedTuple):
    """A job that may be dispatched."""

    job_id: UUID
    tenant: str
    priority: str
    created_at: datetime
    site_id: UUID | None


class Order(NamedTuple):
    """Virtual time of a queue."""

    now: float
    """The earliest virtual start time in the dispatch window."""
    next_turns: Mapping[str, float]
    """Virtual start time of each tenant's next job."""


def compute_order(shares: Sequence[Share], *, before: float) -> Order:
    """Return the virtual time of a queue.

    Args:
        shares: the tenants with jobs in the dispatch window or ready for it.
        before: the previous virtual time; time never runs backwards.
    """
    starts = [share.turn - share.standing / share.weight for share in shares if share.standing]
    now = max(before, min(starts, default=before))
    return Order(now, {share.tenant: max(share.turn, now + share.standing / share.weight) for share in shares})


def is_low(standing: int, *, highest: int) -> bool:
    """Return whether a dispatch window has half drained and needs a refill before the next tick.

    While messages remain no worker is idle, so refilling after each of them would only cost time.

    Args:
        standing: jobs in the window.
        highest: the most since it was filled.
    """
    return standing <= highest // 2


def seconds_to_low(standing: int, *, highest: int, seconds: float) -> float:
    """Return the seconds until a dispatch window is low if it drains at its present rate.

    Args:
        standing: jobs in the window.
        highest: the most since it was filled.
        seconds: the time since then.
    """
    return seconds * max(0, standing - highest // 2) / max(1, highest - standing)


def next_tenants(shares: Sequence[Share], order: Order, *, room: int) -> list[str]:
    """Return the tenants that can be next while `room` jobs are taken."""
    eligible = [share.tenant for share in shares if share.room > 0]
    return sorted(eligible, key=lambda tenant: order.next_turns[tenant])[:room]


def select_next_jobs(shares: Sequence[Share], ready: Sequence[Ready], order: Order, *, room: int) -> list[Ready]:
    """Return the next jobs, at most `room`; `ready` holds each tenant's jobs in its own order."""
    by_tenant = {share.tenant: share for share in shares}
    turns: list[tuple[float, str, datetime, Ready]] = []
    taken: dict[str, int] = {}
    for job in ready:
        share, place = by_tenant[job.tenant], taken.get(job.tenant, 0)
        if place < share.room:
            turn = order.next_turns[job.tenant] + place / share.weight
            turns.append((turn, job.priority, job.created_at, job))
            taken[job.tenant] = place + 1
    turns.sort(key=lambda item: item[:3])
    return [job for *_, job in turns[:room]]


def advance_turns(shares: Sequence[Share], taken: Sequence[Ready], order: Order) -> dict[str, float]:
    """Return the tenants' virtual finish times after these jobs."""
    weights = {share.tenant: share.weight for share in shares}
    after: dict[str, float] = {}
    for job in taken:
        after[job.tenant] = after.get(job.tenant, order.next_turns[job.tenant]) + 1 / weights[job.tenant]
    return after


class WaitReason(StrEnum):
    """Why a job must not be dispatched yet (`job.held_for`); only the dispatcher releases it."""

    SITE = "site"
    """Another job is writing its site; then the most urgent and oldest goes first."""
    TIME = "time"
    """Until `job.held_until`: a start in the future, or a retry delay."""
    PROVIDER = "provider"
    """Until `job.held_until`: the provider circuit of its model is open."""


CONTROL_RETRIES = "retrying"
"""The key of a job's result that says what its work is waiting for."""


def retry_delay_seconds(pauses: Sequence[float], *, tries: int) -> float:
    """Return the delay after so many tries; the last of `pauses` repeats."""
    return pauses[min(tries, len(pauses)) - 1] if pauses and tries > 0 else 0.0


FURTHEST_START_DAYS = 30
"""How far ahead `start_at` may be."""
LONGEST_RETRY_SECONDS = 3_600
NO_RATE_SECONDS = 60
"""Retry-After while the queue does not drain."""
_HEADROOM = 0.1
"""Share of a full queue that has to drain before callers return."""


class Admission(BaseModel):
    """Limits on waiting and running jobs, so that no tenant can take the fleet from all others."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    running_per_tenant: int | None = Field(default=64, gt=0)
    """Concurrent attempts of one tenant on all queues but `control`, unless the tenant has its own limit."""
    waiting_per_queue: int = Field(default=100_000, gt=0)
    """Jobs on a queue; further ones are refused with a Retry-After."""
    waiting_per_tenant: int = Field(default=20_000, gt=0)
    """Of those, the jobs of one tenant."""


def retry_after_seconds(waiting: int, *, limit: int, drained_per_second: float) -> int:
    """Return after how many seconds to try a full queue again."""
    if drained_per_second <= 0:
        return NO_RATE_SECONDS
    excess = waiting - limit + max(1.0, _HEADROOM * limit)
    return min(LONGEST_RETRY_SECONDS, max(1, math.ceil(excess / drained_per_second)))
