"""What waits: its expected work and cost, and how many slots each queue wants.

Both come from recent attempts; without enough of them from all attempts of the queue, and without any from its limits,
so that an autoscaler starts the first worker, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sqlmodel import Session

from ledger.store import Statement
from monitoring.capacity.queueing import Demand, wanted_slots
from monitoring.capacity.workload import default_work
from monitoring.metrics import (
    ATTEMPT_COST,
    ATTEMPT_DURATION,
    MILLISECONDS,
    PLACES,
    QUEUE_DEPTH,
    SERVED,
    Reading,
    SeriesKey,
    bounds_of,
    series_key,
)
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QUEUES, QueueName

MIN_RECENT_ATTEMPTS = 5
"""With fewer recent attempts the average of all attempts is used."""
MOST_COUNTED = 2_000
"""Waiting jobs counted per queue: more would change no autoscaler's decision."""
_MIN_ATTEMPTS = 10
"""With fewer recent attempts a queue's default duration is used."""
_ATTEMPTS_IN_A_WINDOW = 3
"""The start rate is measured over this many durations of an attempt, at least a minute: one start is no rate."""
NEWEST = 1_000
"""Recent attempts that are read, over all queues."""

_RECENT = Statement("""
    SELECT queue, count(*) AS begun, count(seconds) AS ended, coalesce(avg(seconds), 0) AS mean,
           coalesce(var_pop(seconds), 0) AS variance,
           coalesce(avg(nanousd) FILTER (WHERE seconds IS NOT NULL), 0)::float AS nanousd,
           (count(*) FILTER (WHERE ago <= 300) / 300.0)::float AS in_5_minutes,
           (count(*) FILTER (WHERE ago <= 1800) / 1800.0)::float AS in_30_minutes
      FROM (
        SELECT queue, extract(epoch FROM ended_at - started_at)::float AS seconds,
               extract(epoch FROM clock_timestamp() - started_at)::float AS ago,
               (SELECT coalesce(sum(cost_nanousd), 0) FROM call WHERE call.attempt_id = attempt.id) AS nanousd
          FROM attempt
         WHERE started_at > (SELECT clock_timestamp() - interval '1 hour')
         ORDER BY started_at DESC LIMIT %(newest)s
    ) AS newest GROUP BY queue
""")


class RecentAttempts(NamedTuple):
    """A queue's newest attempts within the last hour."""

    begun: int
    ended: int
    seconds: float
    """Mean of those that ended; so are the next two."""
    variance: float
    nanousd: float
    in_5_minutes: float
    """Starts per second."""
    in_30_minutes: float


def read_recent_attempts(session: Session) -> Mapping[str, RecentAttempts]:
    """Return the newest attempts by queue."""
    return {queue: RecentAttempts(*values) for queue, *values in _RECENT.all(session, {"newest": NEWEST})}


class AttemptAverage(NamedTuple):
    """The average attempt of a queue."""

    seconds: float
    nanousd: float


def _lifetime_average(series: Mapping[SeriesKey, float], queue: str) -> AttemptAverage | None:
    """Return the average over all attempts of a queue, from the folded series; None without any."""
    attempts = milliseconds = nanousd = 0.0
    for tier, place in PLACES:
        if place == queue:
            labels = {"tier": tier, "queue_name": queue}
            for bound in bounds_of(ATTEMPT_DURATION):
                attempts += series.get(series_key(f"{ATTEMPT_DURATION.name}_bucket", labels | {"le": bound}), 0.0)
            milliseconds += series.get(series_key(f"{ATTEMPT_DURATION.name}_sum", labels), 0.0)
            nanousd += series.get(series_key(ATTEMPT_COST.name, labels), 0.0)
    return AttemptAverage(milliseconds / MILLISECONDS / attempts, nanousd / attempts) if attempts else None


def forecast_backlog(
    series: Mapping[SeriesKey, float], recent: Mapping[str, RecentAttempts], policy: Policy
) -> Iterator[Reading]:
    """Yield the expected work and cost of each queue's waiting jobs."""
    for queue in SERVED:
        waiting = max(0.0, series.get(series_key(QUEUE_DEPTH.name, {"queue_name": queue}), 0.0))
        attempt = _expected_attempt(queue, series, recent.get(queue), policy)
        yield Reading("backlog_work_seconds", (queue,), waiting * attempt.seconds)
        yield Reading("backlog_usd", (queue,), waiting * attempt.nanousd / NANOUSD_PER_USD)


def _expected_attempt(
    queue: str, series: Mapping[SeriesKey, float], newest: RecentAttempts | None, policy: Policy
) -> AttemptAverage:
    if newest is not None and newest.ended >= MIN_RECENT_ATTEMPTS:
        return AttemptAverage(newest.seconds, newest.nanousd)
    if (average := _lifetime_average(series, queue)) is not None:
        return average
    limits = policy.queues[QueueName(queue)]
    return AttemptAverage(limits.soft_seconds, limits.llm_nanousd)


_STANDING = Statement("""
    SELECT name AS queue,
           (SELECT count(*) FROM (SELECT FROM job WHERE queue = name AND waiting_since IS NOT NULL
                                     AND pushed_at IS NULL AND held_for IS NULL
                                   ORDER BY tenant, priority, created_at LIMIT %(most)s) AS ready)
           + (SELECT count(*) FROM (SELECT FROM job WHERE queue = name AND waiting_since IS NOT NULL
                                       AND pushed_at IS NOT NULL ORDER BY tenant LIMIT %(most)s) AS pushed) AS waiting,
           (SELECT count(*) FROM attempt WHERE queue = name AND ended_at IS NULL) AS running,
           coalesce((SELECT drained_per_second FROM backlog WHERE queue = name AND tenant = ''
                        AND counted_at > clock_timestamp() - interval '1 minute'), 0) AS starts_per_second,
           EXISTS (SELECT FROM queue_control WHERE queue = name AND paused_at IS NOT NULL) AS is_paused
      FROM unnest(CAST(%(queues)s AS text[])) AS names (name)
""")
"""The ORDER BYs match the indexes: without them a short queue costs a scan of the whole table."""


def read_wanted_slots(
    session: Session, policy: Policy, *, recent: Mapping[str, RecentAttempts]
) -> Mapping[QueueName, int]:
    """Return how many slots each queue wants; queues with few recent attempts count by the policy's defaults."""
    is_whole = sum(newest.begun for newest in recent.values()) < NEWEST
    rows = _STANDING.all(session, {"queues": [queue.value for queue in policy.queues], "most": MOST_COUNTED})
    wanted = {}
    for row in rows:
        queue, newest = QueueName(row.queue), recent.get(row.queue)
        mean_seconds, variability = _attempt_seconds(newest, policy, queue)
        demand = Demand(
            waiting=row.waiting,
            running=row.running,
            mean_seconds=mean_seconds,
            variability=variability,
            starts_per_second=_rate(newest, mean_seconds, in_a_minute=row.starts_per_second, is_whole=is_whole),
            is_paused=row.is_paused,
        )
        wanted[queue] = wanted_slots(demand, target_seconds=QUEUES[queue].target_seconds)
    return wanted


def _attempt_seconds(newest: RecentAttempts | None, policy: Policy, queue: QueueName) -> tuple[float, float]:
    """Return the mean duration of an attempt, and its variance over the mean squared."""
    if newest is not None and newest.ended >= _MIN_ATTEMPTS and newest.seconds > 0:
        return newest.seconds, newest.variance / newest.seconds**2
    work = default_work(policy, queue)
    return work.mean_seconds, work.variability


def _rate(newest: RecentAttempts | None, mean_seconds: float, *, in_a_minute: float, is_whole: bool) -> float:
    """Return starts per second over the shortest window that is long enough for such attempts.

    `in_a_minute` is the dispatcher's count of the last minute. `is_whole` says whether `newest` reaches back far
    enough; a busier fleet has enough starts in a minute.
    """
    needed = _ATTEMPTS_IN_A_WINDOW * mean_seconds
    if needed <= 60 or not is_whole:
        return in_a_minute
    if newest is None:
        return 0.0
    return newest.in_5_minutes if needed <= 300 else newest.in_30_minutes
