"""Reads for `pointsman_wanted_slots` how every queue stands: at each scrape, at the same cost whatever waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import text
from sqlmodel import Session

from monitoring.capacity.defaults import WAIT_TARGETS, default_work
from monitoring.capacity.wanted import Demand, wanted_slots
from monitoring.lately import NEWEST, Lately
from routing.policy import Policy
from routing.queues import QueueName

MOST_COUNTED = 2_000
"""Waiting jobs of a queue that are counted: with so many, no autoscaler does anything else with more."""
_LEAST = 10
"""Of one queue; with fewer it is taken at its default."""

_STANDING = text("""
    SELECT name AS queue,
           (SELECT count(*) FROM (SELECT FROM job WHERE queue = name AND waiting_since IS NOT NULL
                                     AND pushed_at IS NULL AND held_for IS NULL
                                   ORDER BY tenant, priority, created_at LIMIT :most) AS ready)
           + (SELECT count(*) FROM (SELECT FROM job WHERE queue = name AND waiting_since IS NOT NULL
                                       AND pushed_at IS NOT NULL ORDER BY tenant LIMIT :most) AS pushed) AS waiting,
           (SELECT count(*) FROM attempt WHERE queue = name AND ended_at IS NULL) AS running,
           coalesce((SELECT drained_per_second FROM backlog WHERE queue = name AND tenant = ''
                        AND counted_at > clock_timestamp() - interval '1 minute'), 0) AS starts_per_second,
           EXISTS (SELECT FROM queue_control WHERE queue = name AND paused_at IS NOT NULL) AS is_paused
      FROM unnest(CAST(:queues AS text[])) AS names (name)
""")
"""The orders are those of the indexes: without them a queue on which little waits is looked for in the whole table."""

_ATTEMPTS_IN_A_WINDOW = 3
"""Starts are counted over so many times what an attempt takes, a minute at least: one start in a minute is no rate."""


class Took(NamedTuple):
    """How long a queue's attempts take."""

    mean_seconds: float
    variability: float
    """Variance over the mean squared."""


def read_wanted(session: Session, policy: Policy, *, lately: Mapping[str, Lately]) -> Mapping[QueueName, int]:
    """Return how many slots each queue wants that workers can serve.

    Args:
        session: the caller's transaction.
        policy: what is taken of queues on which little was tried.
        lately: how attempts were.
    """
    is_whole = sum(newest.begun for newest in lately.values()) < NEWEST
    rows = session.execute(_STANDING, {"queues": [queue.value for queue in WAIT_TARGETS], "most": MOST_COUNTED})
    wanted = {}
    for row in rows:
        queue, newest = QueueName(row.queue), lately.get(row.queue)
        took = _took(newest, policy, queue)
        demand = Demand(
            waiting=row.waiting, running=row.running, mean_seconds=took.mean_seconds, variability=took.variability,
            starts_per_second=_rate(
                newest, took.mean_seconds, in_a_minute=float(row.starts_per_second), is_whole=is_whole
            ),
            is_paused=row.is_paused,
        )  # fmt: skip
        wanted[queue] = wanted_slots(demand, target_seconds=WAIT_TARGETS[queue])
    return wanted


def _took(newest: Lately | None, policy: Policy, queue: QueueName) -> Took:
    if newest is not None and newest.ended >= _LEAST and newest.seconds > 0:
        return Took(newest.seconds, newest.variance / newest.seconds**2)
    service = default_work(policy, queue).service
    return Took(service.mean, service.variability)


def _rate(newest: Lately | None, mean_seconds: float, *, in_a_minute: float, is_whole: bool) -> float:
    """Return starts per second over the shortest window that is long enough for such attempts.

    Args:
        newest: how attempts were, if there were any.
        mean_seconds: that one takes.
        in_a_minute: starts per second in the last one, as the dispatcher counts them.
        is_whole: whether the newest attempts reach back far enough; a fleet that begins more has enough in a minute.
    """
    needed = _ATTEMPTS_IN_A_WINDOW * mean_seconds
    if needed <= 60 or not is_whole:
        return in_a_minute
    if newest is None:
        return 0.0
    return newest.in_5_minutes if needed <= 300 else newest.in_30_minutes
