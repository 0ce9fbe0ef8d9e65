"""Reads for `pointsman_wanted_slots` how every queue stands: at each scrape, at the same cost whatever waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

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
                                     AND pushed_at IS NULL AND held_for IS NULL LIMIT :most) AS ready)
           + (SELECT count(*) FROM (SELECT FROM job WHERE queue = name AND waiting_since IS NOT NULL
                                       AND pushed_at IS NOT NULL LIMIT :most) AS pushed) AS waiting,
           (SELECT count(*) FROM attempt WHERE queue = name AND ended_at IS NULL) AS running,
           coalesce((SELECT drained_per_second FROM backlog WHERE queue = name AND tenant = ''
                        AND counted_at > clock_timestamp() - interval '1 minute'), 0) AS starts_per_second,
           EXISTS (SELECT FROM queue_control WHERE queue = name AND paused_at IS NOT NULL) AS is_paused
      FROM unnest(CAST(:queues AS text[])) AS names (name)
""")

_DURATIONS = text("""
    SELECT queue, count(*) AS attempts, avg(seconds) AS mean, var_pop(seconds) AS variance FROM (
        SELECT queue, extract(epoch FROM ended_at - started_at)::float AS seconds FROM attempt
         WHERE ended_at IS NOT NULL AND started_at > (SELECT clock_timestamp() - interval '1 hour')
         ORDER BY started_at DESC LIMIT :newest
    ) AS newest GROUP BY queue
""")


class Durations(NamedTuple):
    """How long attempts take."""

    mean_seconds: float
    variability: float


def read_wanted(session: Session, policy: Policy) -> Mapping[QueueName, int]:
    """Return how many slots each queue wants that workers can serve."""
    durations = _durations(session)
    rows = session.execute(_STANDING, {"queues": [queue.value for queue in WAIT_TARGETS], "most": MOST_COUNTED})
    wanted = {}
    for row in rows:
        queue = QueueName(row.queue)
        took = durations.get(queue) or _default(policy, queue)
        demand = Demand(
            waiting=row.waiting, running=row.running, starts_per_second=float(row.starts_per_second),
            mean_seconds=took.mean_seconds, variability=took.variability, is_paused=row.is_paused,
        )  # fmt: skip
        wanted[queue] = wanted_slots(demand, target_seconds=WAIT_TARGETS[queue])
    return wanted


def _durations(session: Session) -> dict[QueueName, Durations]:
    rows = session.execute(_DURATIONS, {"newest": _NEWEST}).all()
    return {
        QueueName(row.queue): Durations(row.mean, row.variance / row.mean**2)
        for row in rows if row.attempts >= _LEAST and row.mean > 0
    }  # fmt: skip


def _default(policy: Policy, queue: QueueName) -> Durations:
    service = default_work(policy, queue).service
    return Durations(service.mean, service.variability)
