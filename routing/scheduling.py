"""Whose turn it is: tenants share a queue by their weights, however much each of them has waiting.

Start-time fair queueing. A job's turn costs its tenant 1 / weight, so a tenant of weight 3 comes up three times where
one of weight 1 comes up once. What a tenant had is remembered, so nobody starves behind many others; whoever comes
back after a while begins where the order stands, and gets nothing for the time in which it asked for nothing.
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
    """How a tenant stands on one queue."""

    tenant: str
    weight: int
    standing: int
    """Its jobs on the runway."""
    turn: float
    """How far it has come: the end of the last turn that it had."""
    room: int
    """How many more of its jobs may go to the runway."""


class Ready(NamedTuple):
    """A job that may go to the broker when its turn comes."""

    job_id: UUID
    tenant: str
    priority: str
    created_at: datetime
    site_id: UUID | None


class Order(NamedTuple):
    """Where the order of turns stands."""

    now: float
    """The turn that is being worked off: of what stands on the runway, the earliest."""
    next_turns: Mapping[str, float]
    """When the next job of each tenant begins its turn."""


def order_of(shares: Sequence[Share], *, before: float) -> Order:
    """Return where the order of turns stands.

    Args:
        shares: the tenants with jobs on the runway or ready for it.
        before: where it stood when it was last looked at; it never goes back.
    """
    worked_off = [share.turn - share.standing / share.weight for share in shares if share.standing]
    now = max(before, min(worked_off, default=before))
    return Order(now, {share.tenant: max(share.turn, now + share.standing / share.weight) for share in shares})


def is_low(standing: int, *, highest: int) -> bool:
    """Tell whether a runway needs more jobs at once, and not with the next tick: half of what stood there was taken.

    Where messages stand no worker is without work: to fill up after each of them would only cost time.

    Args:
        standing: jobs that stand there.
        highest: how many there have been since it was filled.
    """
    return standing <= highest // 2


def seconds_to_low(standing: int, *, highest: int, seconds: float) -> float:
    """Return in how many seconds a runway gets low, if its jobs go on being taken as they were.

    Args:
        standing: jobs that stand there.
        highest: how many there have been since it was filled.
        seconds: how long ago that was.
    """
    return seconds * max(0, standing - highest // 2) / max(1, highest - standing)


def first_tenants(shares: Sequence[Share], order: Order, *, room: int) -> list[str]:
    """Return the tenants whose turn may come while so many jobs are taken: those who are next."""
    able = [share.tenant for share in shares if share.room > 0]
    return sorted(able, key=lambda tenant: order.next_turns[tenant])[:room]


def take_turns(shares: Sequence[Share], ready: Sequence[Ready], order: Order, *, room: int) -> list[Ready]:
    """Return the jobs whose turn it is, in order.

    Args:
        shares: the tenants.
        ready: their jobs, of each tenant in the order in which it wants them.
        order: where the order of turns stands.
        room: how many may be taken.
    """
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


def turns_after(shares: Sequence[Share], taken: Sequence[Ready], order: Order) -> dict[str, float]:
    """Return how far tenants have come once these jobs had their turns."""
    weights = {share.tenant: share.weight for share in shares}
    after: dict[str, float] = {}
    for job in taken:
        after[job.tenant] = after.get(job.tenant, order.next_turns[job.tenant]) + 1 / weights[job.tenant]
    return after


# Why a waiting job must not go to the broker yet: every wait is a fact of the ledger, never a timer in a process.


class Hold(StrEnum):
    """What a waiting job waits for besides its turn (`job.held_for`). The dispatcher alone lets it go on."""

    SITE = "site"
    """Another job writes its site. It goes on when the site is free; the most urgent and oldest first."""
    TIME = "time"
    """A time has to come first (`job.held_until`): a start in the future, or the pause before a further try."""
    PROVIDER = "provider"
    """The lane of its model is parked until then (`job.held_until`)."""


RESTING = "resting"
"""Under this name a job's result holds what its work waits for, as long as it does."""


def pause_before(pauses: Sequence[float], *, tries: int) -> float:
    """Return how many seconds work rests before it is tried again.

    Args:
        pauses: seconds before the second try, the third and so on; the last one holds for all that follow.
        tries: how often it was tried so far.
    """
    return pauses[min(tries, len(pauses)) - 1] if pauses and tries > 0 else 0.0


# What is let in and what may run: limits that keep one tenant, or one flood, from taking the fleet from all others.

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
