"""What waits, in seconds of work and in dollars: a queue's depth times what such jobs took lately.

A queue that was quiet lately goes by what it has taken ever; one that nothing was ever tried on, by its limits, so that
whoever scales by these numbers starts the first worker, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from monitoring.lately import Lately
from monitoring.metrics import (
    ATTEMPT_COST,
    ATTEMPT_DURATION,
    MILLISECONDS,
    PLACES,
    QUEUE_DEPTH,
    SERVED,
    SeriesKey,
    bounds_of,
    series_key,
)  # fmt: skip
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD
from routing.queues import QueueName

FEW = 5
"""So few recent attempts say less than all that there ever were."""


class Experience(NamedTuple):
    """What attempts on a queue took, on average."""

    attempts: float
    seconds: float
    nanousd: float


def whole_experience(series: Mapping[SeriesKey, float], queue: str) -> Experience:
    """Return what all attempts on a queue ever took, from the folded series."""
    attempts = milliseconds = nanousd = 0.0
    for tier, place in PLACES:
        if place == queue:
            labels = {"tier": tier, "queue_name": queue}
            for bound in bounds_of(ATTEMPT_DURATION):
                attempts += series.get(series_key(f"{ATTEMPT_DURATION.name}_bucket", labels | {"le": bound}), 0.0)
            milliseconds += series.get(series_key(f"{ATTEMPT_DURATION.name}_sum", labels), 0.0)
            nanousd += series.get(series_key(ATTEMPT_COST.name, labels), 0.0)
    if not attempts:
        return Experience(0, 0.0, 0.0)
    return Experience(attempts, milliseconds / MILLISECONDS / attempts, nanousd / attempts)


def limits_experience(policy: Policy, queue: str) -> Experience:
    """Return what an attempt on a queue may take at most."""
    limits = policy.queues[QueueName(queue)]
    return Experience(0, limits.soft_seconds, limits.llm_nanousd)


class Outlook(NamedTuple):
    """What the jobs that wait on a queue will probably take."""

    queue: str
    work_seconds: float
    usd: float


def outlook(
    series: Mapping[SeriesKey, float], lately: Mapping[str, Lately], policy: Policy
) -> tuple[Outlook, ...]:  # fmt: skip
    """Return the outlook of every queue that jobs wait on."""
    return tuple(_of_queue(queue, series, lately, policy) for queue in SERVED)


def _of_queue(
    queue: str, series: Mapping[SeriesKey, float], lately: Mapping[str, Lately], policy: Policy
) -> Outlook:  # fmt: skip
    newest = lately.get(queue)
    if newest is not None and newest.ended >= FEW:
        known = Experience(newest.ended, newest.seconds, newest.nanousd)
    else:
        known = whole_experience(series, queue)
    if not known.attempts:
        known = limits_experience(policy, queue)
    waiting = max(0.0, series.get(series_key(QUEUE_DEPTH.name, {"queue_name": queue}), 0.0))
    return Outlook(queue, waiting * known.seconds, waiting * known.nanousd / NANOUSD_PER_USD)
