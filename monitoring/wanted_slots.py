"""Reads for `pointsman_wanted_slots` how every queue stands: at each scrape, at the same cost whatever waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlmodel import Session

from monitoring.capacity.defaults import WAIT_TARGETS, default_work
from monitoring.capacity.wanted import Demand, wanted_slots
from routing.policy import Policy
from routing.tiers import QueueName

MOST_COUNTED = 2_000
"""Waiting jobs of a queue that are counted: with so many, no autoscaler does anything else with more."""
_NEWEST = 1_000
"""Attempts, over all queues, that tell how long attempts take now."""
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

_LATELY = text("""
    SELECT queue, count(*) AS begun, count(seconds) AS attempts, avg(seconds) AS mean, var_pop(seconds) AS variance,
           count(*) FILTER (WHERE ago <= 300) / 300.0 AS in_5_minutes,
           count(*) FILTER (WHERE ago <= 1800) / 1800.0 AS in_30_minutes FROM (
        SELECT queue, extract(epoch FROM ended_at - started_at)::float AS seconds,
               extract(epoch FROM clock_timestamp() - started_at)::float AS ago FROM attempt
         WHERE started_at > (SELECT clock_timestamp() - interval '1 hour')
         ORDER BY started_at DESC LIMIT :newest
    ) AS newest GROUP BY queue
""")
"""Of the newest attempts: how long they took, and how many of a queue began in so long."""
_ATTEMPTS_IN_A_WINDOW = 3
"""Starts are counted over so many times what an attempt takes, a minute at least: one start in a minute is no rate."""


class Lately(NamedTuple):
    """How a queue's attempts were."""

    mean_seconds: float
    variability: float
    in_5_minutes: float = 0.0
    """Starts per second."""
    in_30_minutes: float = 0.0


def read_wanted(session: Session, policy: Policy) -> Mapping[QueueName, int]:
    """Return how many slots each queue wants that workers can serve."""
    lately = {QueueName(row.queue): row for row in session.execute(_LATELY, {"newest": _NEWEST})}
    is_whole = sum(row.begun for row in lately.values()) < _NEWEST
    rows = session.execute(_STANDING, {"queues": [queue.value for queue in WAIT_TARGETS], "most": MOST_COUNTED})
    wanted = {}
    for row in rows:
        queue = QueueName(row.queue)
        took = _took(lately.get(queue), policy, queue)
        demand = Demand(
            waiting=row.waiting, running=row.running, mean_seconds=took.mean_seconds, variability=took.variability,
            starts_per_second=_rate(took, in_a_minute=float(row.starts_per_second), is_whole=is_whole),
            is_paused=row.is_paused,
        )  # fmt: skip
        wanted[queue] = wanted_slots(demand, target_seconds=WAIT_TARGETS[queue])
    return wanted


def _took(row: Any, policy: Policy, queue: QueueName) -> Lately:
    if row is not None and row.attempts >= _LEAST and row.mean > 0:
        mean, variability = row.mean, row.variance / row.mean**2
    else:
        service = default_work(policy, queue).service
        mean, variability = service.mean, service.variability
    starts = (0.0, 0.0) if row is None else (float(row.in_5_minutes), float(row.in_30_minutes))
    return Lately(mean, variability, *starts)


def _rate(took: Lately, *, in_a_minute: float, is_whole: bool) -> float:
    """Return starts per second over the shortest window that is long enough for such attempts.

    Args:
        took: how attempts were.
        in_a_minute: starts per second in the last one, as the dispatcher counts them.
        is_whole: whether the newest attempts reach back far enough; a fleet that begins more has enough in a minute.
    """
    needed = _ATTEMPTS_IN_A_WINDOW * took.mean_seconds
    if needed <= 60 or not is_whole:
        return in_a_minute
    return took.in_5_minutes if needed <= 300 else took.in_30_minutes
