"""What waits, and how many slots it wants: each queue's backlog times what such jobs took recent.

A queue that was quiet lately goes by what it has taken ever; one that nothing was ever tried on, by its limits, so that
whoever scales by these numbers starts the first worker, too. All of it is read at each scrape, at the same cost however
much waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import text
from sqlmodel import Session

from monitoring.capacity.queueing import Demand, wanted_slots
from monitoring.capacity.workload import default_wait_target, default_work
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
)
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QueueName

FEW = 5
"""So few recent attempts say less than all that there ever were."""
MOST_COUNTED = 2_000
"""Waiting jobs of a queue that are counted: with so many, no autoscaler does anything else with more."""
_LEAST = 10
"""Attempts of one queue; with fewer it is taken at its default."""
_ATTEMPTS_IN_A_WINDOW = 3
"""Starts are counted over so many times what an attempt takes, a minute at least: one start in a minute is no rate."""
NEWEST = 1_000
"""Attempts, over all queues, that tell how attempts are now: read once for all that is estimated from them."""

_RECENT = text("""
    SELECT queue, count(*), count(seconds), coalesce(avg(seconds), 0), coalesce(var_pop(seconds), 0),
           coalesce(avg(nanousd) FILTER (WHERE seconds IS NOT NULL), 0)::float,
           (count(*) FILTER (WHERE ago <= 300) / 300.0)::float, (count(*) FILTER (WHERE ago <= 1800) / 1800.0)::float
      FROM (
        SELECT queue, extract(epoch FROM ended_at - started_at)::float AS seconds,
               extract(epoch FROM clock_timestamp() - started_at)::float AS ago,
               (SELECT coalesce(sum(cost_nanousd), 0) FROM call WHERE call.attempt_id = attempt.id) AS nanousd
          FROM attempt
         WHERE started_at > (SELECT clock_timestamp() - interval '1 hour')
         ORDER BY started_at DESC LIMIT :newest
    ) AS newest GROUP BY queue
""")


class RecentAttempts(NamedTuple):
    """How a queue's newest attempts of the last hour were."""

    begun: int
    ended: int
    seconds: float
    """On average, of those that ended; so are the next two."""
    variance: float
    nanousd: float
    in_5_minutes: float
    """Starts per second."""
    in_30_minutes: float


def read_recent_attempts(session: Session) -> Mapping[str, RecentAttempts]:
    """Return how the newest attempts were, by queue."""
    return {queue: RecentAttempts(*values) for queue, *values in session.execute(_RECENT, {"newest": NEWEST})}


class Experience(NamedTuple):
    """What attempts on a queue took, on average."""

    seconds: float
    nanousd: float


def whole_experience(series: Mapping[SeriesKey, float], queue: str) -> Experience | None:
    """Return what all attempts on a queue ever took, from the folded series; None where nothing was tried."""
    attempts = milliseconds = nanousd = 0.0
    for tier, place in PLACES:
        if place == queue:
            labels = {"tier": tier, "queue_name": queue}
            for bound in bounds_of(ATTEMPT_DURATION):
                attempts += series.get(series_key(f"{ATTEMPT_DURATION.name}_bucket", labels | {"le": bound}), 0.0)
            milliseconds += series.get(series_key(f"{ATTEMPT_DURATION.name}_sum", labels), 0.0)
            nanousd += series.get(series_key(ATTEMPT_COST.name, labels), 0.0)
    return Experience(milliseconds / MILLISECONDS / attempts, nanousd / attempts) if attempts else None


class BacklogForecast(NamedTuple):
    """What the jobs that wait on a queue will probably take."""

    queue: str
    work_seconds: float
    usd: float


def forecast_backlog(
    series: Mapping[SeriesKey, float], recent: Mapping[str, RecentAttempts], policy: Policy
) -> tuple[BacklogForecast, ...]:
    """Return the forecast of every queue that jobs wait on."""
    forecasts = []
    for queue in SERVED:
        waiting = max(0.0, series.get(series_key(QUEUE_DEPTH.name, {"queue_name": queue}), 0.0))
        attempt = _expected_attempt(queue, series, recent.get(queue), policy)
        usd = waiting * attempt.nanousd / NANOUSD_PER_USD
        forecasts.append(BacklogForecast(queue, waiting * attempt.seconds, usd))
    return tuple(forecasts)


def _expected_attempt(
    queue: str, series: Mapping[SeriesKey, float], newest: RecentAttempts | None, policy: Policy
) -> Experience:
    if newest is not None and newest.ended >= FEW:
        return Experience(newest.seconds, newest.nanousd)
    if (whole := whole_experience(series, queue)) is not None:
        return whole
    limits = policy.queues[QueueName(queue)]
    return Experience(limits.soft_seconds, limits.llm_nanousd)


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


def read_wanted_slots(
    session: Session, policy: Policy, *, recent: Mapping[str, RecentAttempts]
) -> Mapping[QueueName, int]:
    """Return how many slots each queue wants that workers can serve.

    Args:
        session: the caller's transaction.
        policy: what is taken of queues on which little was tried.
        recent: how attempts were.
    """
    is_whole = sum(newest.begun for newest in recent.values()) < NEWEST
    rows = session.execute(_STANDING, {"queues": [queue.value for queue in policy.queues], "most": MOST_COUNTED})
    wanted = {}
    for row in rows:
        queue, newest = QueueName(row.queue), recent.get(row.queue)
        mean_seconds, variability = _attempt_seconds(newest, policy, queue)
        in_a_minute = float(row.starts_per_second)
        demand = Demand(
            waiting=row.waiting,
            running=row.running,
            mean_seconds=mean_seconds,
            variability=variability,
            starts_per_second=_rate(newest, mean_seconds, in_a_minute=in_a_minute, is_whole=is_whole),
            is_paused=row.is_paused,
        )
        wanted[queue] = wanted_slots(demand, target_seconds=default_wait_target(queue))
    return wanted


def _attempt_seconds(newest: RecentAttempts | None, policy: Policy, queue: QueueName) -> tuple[float, float]:
    """Return what an attempt takes on average, and the variance of that over the mean squared."""
    if newest is not None and newest.ended >= _LEAST and newest.seconds > 0:
        return newest.seconds, newest.variance / newest.seconds**2
    work = default_work(policy, queue)
    return work.mean_seconds, work.variability


def _rate(newest: RecentAttempts | None, mean_seconds: float, *, in_a_minute: float, is_whole: bool) -> float:
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
