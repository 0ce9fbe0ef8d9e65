"""What waits, and how many slots it wants: each queue's backlog times what such jobs took recent.

A queue that was quiet lately goes by what it has taken ever; one that nothing was ever tried on, by its limits, so that
whoever scales by these numbers starts the first worker, too. All of it is read at each scrape, at the same cost however
much waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import islice, product
from typing import Any, NamedTuple

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import select, text
from sqlmodel import Session, col

from ledger.dispatch_window import DISPATCHER, leaders
from ledger.provider_circuits import lanes
from ledger.tables import Tenant
from ledger.workers import fleet_slots, slots_by_queue
from monitoring.capacity.queueing import Demand, wanted_slots
from monitoring.capacity.workload import default_wait_target, default_work
from monitoring.event_metrics import fold_lag_seconds
from monitoring.metrics import (
    ATTEMPT_COST,
    ATTEMPT_DURATION,
    MILLISECONDS,
    PLACES,
    QUEUE_DEPTH,
    SERVED,
    Metric,
    SeriesKey,
    bounds_of,
    counter,
    gauge,
    series_key,
)
from routing.broker import DOOR_LISTS, list_of
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.provider_circuit import LaneState
from routing.queues import QueueName
from routing.scheduling import Hold

MIN_RECENT_ATTEMPTS = 5
"""So few recent attempts say less than all that there ever were."""
MOST_COUNTED = 2_000
"""Waiting jobs of a queue that are counted: with so many, no autoscaler does anything else with more."""
_MIN_ATTEMPTS = 10
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


class AttemptAverage(NamedTuple):
    """What attempts on a queue took, on average."""

    seconds: float
    nanousd: float


def lifetime_average(series: Mapping[SeriesKey, float], queue: str) -> AttemptAverage | None:
    """Return what all attempts on a queue ever took, from the folded series; None where nothing was tried."""
    attempts = milliseconds = nanousd = 0.0
    for tier, place in PLACES:
        if place == queue:
            labels = {"tier": tier, "queue_name": queue}
            for bound in bounds_of(ATTEMPT_DURATION):
                attempts += series.get(series_key(f"{ATTEMPT_DURATION.name}_bucket", labels | {"le": bound}), 0.0)
            milliseconds += series.get(series_key(f"{ATTEMPT_DURATION.name}_sum", labels), 0.0)
            nanousd += series.get(series_key(ATTEMPT_COST.name, labels), 0.0)
    return AttemptAverage(milliseconds / MILLISECONDS / attempts, nanousd / attempts) if attempts else None


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
) -> AttemptAverage:
    if newest is not None and newest.ended >= MIN_RECENT_ATTEMPTS:
        return AttemptAverage(newest.seconds, newest.nanousd)
    if (whole := lifetime_average(series, queue)) is not None:
        return whole
    limits = policy.queues[QueueName(queue)]
    return AttemptAverage(limits.soft_seconds, limits.llm_nanousd)


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
    if newest is not None and newest.ended >= _MIN_ATTEMPTS and newest.seconds > 0:
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


# The metrics that are no sums over events: looked up at each scrape, each at the same cost whatever waits.

COUNTED_AT_MOST = 10_000
"""Held jobs and dead letters are counted up to here, so that a scrape costs the same however many there are."""

LOOKED_AT_MOST = 100
"""So many of a queue's oldest jobs are looked at for one that is ready."""

_FLEET: tuple[Metric, ...] = (
    gauge("workers", "Workers: serving, draining (told to stop), or lost (silent, not signed off).", "standing"),
    gauge("fleet_slots", "Jobs that all serving workers can work on at once; each slot counts once."),
    gauge("fleet_slots_busy", "Slots of serving workers that are taken."),
    gauge("slots", "Slots that serve a queue. One that serves several queues counts on each of them.", "queue_name"),
    gauge("slots_busy", "Slots that serve a queue and are taken, by jobs of whatever queue.", "queue_name"),
    gauge("attempt_oldest_age_seconds", "Age of the attempt that runs longest; 0 without one.", "queue_name"),
    gauge("lease_age_seconds_max", "Longest time since a running attempt renewed its lease.", "queue_name"),
    gauge("boxes_working", "Boxes in which a session with a model runs.", "queue_name"),
    gauge("dispatcher_leader_present", "1 while a dispatcher leads."),
)

_WAITING: tuple[Metric, ...] = (
    gauge("queue_oldest_age_seconds", "Age of the job that has waited longest; 0 for an empty queue.", "queue_name"),
    gauge(
        "queue_ready_oldest_age_seconds",
        f"Age of the oldest job that nothing but its turn holds, among the {LOOKED_AT_MOST} oldest; 0 without one.",
        "queue_name",
    ),
    gauge("queue_paused", "1 while operators have paused the queue.", "queue_name"),
    gauge("wanted_slots", "How many slots the queue wants now: what an autoscaler follows.", "queue_name"),
    gauge("backlog_work_seconds", "Slot-seconds that the waiting jobs will probably take.", "queue_name"),
    gauge("backlog_usd", "USD that the waiting jobs will probably cost.", "queue_name"),
    gauge("held_jobs", f"Waiting jobs that something holds, by what; counted to {COUNTED_AT_MOST}.", "reason"),
    gauge("dead_letters", f"Dead letters that nobody has seen to; counted to {COUNTED_AT_MOST}.", "queue_name"),
)

_MONEY: tuple[Metric, ...] = (
    gauge("budget_limit_usd", "Today's budget; of tenants, the sum over those that spent today.", "scope"),
    gauge("budget_spent_usd", "Spent of today's budget.", "scope"),
    gauge("budget_reserved_usd", "Reserved of today's budget by calls that are under way.", "scope"),
    gauge("budget_used_ratio_max", "The largest share of a budget of this scope that is spent or reserved.", "scope"),
    gauge("lane_parked_seconds", "How long a model of an account stays parked; 0 while it is not.", "provider model"),
    gauge(
        "provider_breaker_state",
        "0 while a model of an account flows, 1 while one call may test it, 2 while parked.",
        "provider model",
    ),
)

_BROKER: tuple[Metric, ...] = (
    gauge("broker_up", "1 while the broker answers the exporter."),
    gauge(
        "broker_messages",
        "Messages on the broker's lists; `unrouted` are those that nobody serves, `door` those of Celery clients.",
        "queue_name",
    ),
    gauge("broker_memory_used_bytes", "Memory that the broker uses."),
    gauge("broker_memory_limit_bytes", "Memory that the broker may use; 0 where it has no limit."),
    gauge("broker_clients", "Connections to the broker."),
    counter("broker_evicted_keys_total", "Keys that the broker threw away for want of memory since it started."),
)

_RECORD: tuple[Metric, ...] = (
    gauge("fold_lag_seconds", "Age of the oldest event that is not in these numbers yet; 0 when all are."),
    gauge("audit_unsealed_age_seconds", "Age of the oldest audit row that is not sealed yet; 0 when all are."),
    gauge("build_info", "Always 1.", "version policy prices_as_of"),
)

PROBED: tuple[Metric, ...] = (*_FLEET, *_WAITING, *_MONEY, *_BROKER, *_RECORD)
"""The metrics that are read at each scrape."""

MOST_PROVIDERS = 20
"""Accounts whose series start at 0; those of further ones begin with their first call."""
_BREAKER = (LaneState.FLOWING, LaneState.HALF_OPEN, LaneState.PARKED)


class Reading(NamedTuple):
    """One value of a gauge."""

    name: str
    labels: tuple[str, ...]
    """Values in the order of the metric's labels."""
    value: float


_QUEUES = text("""
    SELECT name,
           coalesce((SELECT extract(epoch FROM clock_timestamp() - min(waiting_since)) FROM job
                      WHERE queue = name AND waiting_since IS NOT NULL), 0),
           coalesce((SELECT extract(epoch FROM clock_timestamp() - min(waiting_since)) FROM (
                         SELECT waiting_since, held_for FROM job WHERE queue = name AND waiting_since IS NOT NULL
                          ORDER BY waiting_since LIMIT :most) AS oldest WHERE held_for IS NULL), 0),
           EXISTS (SELECT FROM queue_control WHERE queue = name AND paused_at IS NOT NULL)
      FROM unnest(CAST(:queues AS text[])) AS names (name)
""")

_ATTEMPTS = text("""
    SELECT queue, max(extract(epoch FROM clock_timestamp() - started_at))::float,
           max(:lease_seconds - extract(epoch FROM lease_until - clock_timestamp()))::float, count(door)
      FROM attempt WHERE ended_at IS NULL GROUP BY queue
""")
"""There are never more of them than slots."""

_HELD = text("""
    SELECT 'site', count(*) FROM (
        SELECT FROM job WHERE held_for = 'site' ORDER BY site_id, queue, priority, created_at LIMIT :most
    ) AS held
    UNION ALL
    SELECT held_for, count(*) FROM (
        SELECT held_for FROM job WHERE held_until IS NOT NULL ORDER BY held_until LIMIT :most
    ) AS held GROUP BY held_for
""")
"""The orders are those of the indexes: without them the planner may read the whole table."""

_DEAD = text("""
    SELECT queue, count(*) FROM (
        SELECT queue FROM job WHERE failure_signature IS NOT NULL AND dismissed_at IS NULL
         ORDER BY tenant, failure_signature, ended_at LIMIT :most
    ) AS dead GROUP BY queue
""")

_BUDGETS = text("""
    WITH day AS (SELECT to_char(timezone('UTC', clock_timestamp()), 'YYYY-MM-DD') AS today),
    budget AS (
        SELECT cap.* FROM day JOIN cap ON cap.scope = 'fleet_day' AND cap.key = day.today
        UNION ALL
        SELECT cap.* FROM day CROSS JOIN tenant
          JOIN cap ON cap.scope = 'tenant_day' AND cap.key = tenant.name || '/' || day.today
    )
    SELECT scopes.name, coalesce(sum(limit_nanousd), 0), coalesce(sum(spent_nanousd), 0),
           coalesce(sum(reserved_nanousd), 0),
           coalesce(max((spent_nanousd + reserved_nanousd) / nullif(limit_nanousd, 0)::float), 0)
      FROM (VALUES ('fleet_day'), ('tenant_day')) AS scopes (name) LEFT JOIN budget ON budget.scope = scopes.name
     GROUP BY scopes.name
""")

_UNSEALED = text("""
    SELECT coalesce((SELECT extract(epoch FROM clock_timestamp() - at) FROM audit
                      WHERE sealed_in IS NULL ORDER BY seq LIMIT 1), 0)
""")


def read_gauges(
    session: Session, policy: Policy, *, recent: Mapping[str, RecentAttempts], providers: Sequence[str]
) -> list[Reading]:
    """Return the present values of the gauges that are read from the ledger.

    Args:
        session: the caller's transaction.
        policy: limits and prices.
        recent: how attempts were, by queue.
        providers: accounts whose lanes have series from the start.
    """
    wanted = read_wanted_slots(session, policy, recent=recent)
    return [
        *_read_workers(session),
        *_read_attempts(session, policy.attempts.lease_seconds),
        *_read_queues(session),
        *(Reading("wanted_slots", (queue,), slots) for queue, slots in wanted.items()),
        *_read_counts(session),
        *_read_budgets(session),
        *_read_lanes(session, product(providers, policy.prices)),
        Reading("dispatcher_leader_present", (), float(DISPATCHER in leaders(session))),
        Reading("fold_lag_seconds", (), fold_lag_seconds(session)),
        Reading("audit_unsealed_age_seconds", (), float(session.scalar(_UNSEALED) or 0)),
        Reading("build_info", (version("pointsman"), policy.version, policy.prices_as_of), 1),
    ]


def read_providers(session: Session) -> tuple[str, ...]:
    """Return the names of the accounts that tenants' calls go to, a label's worth of them."""
    named = select(col(Tenant.provider)).where(col(Tenant.provider).is_not(None)).distinct()
    return tuple(name for name in session.scalars(named.order_by(col(Tenant.provider)).limit(MOST_PROVIDERS)) if name)


def _read_workers(session: Session) -> list[Reading]:
    fleet = fleet_slots(session)
    readings = [
        *(Reading("workers", (standing,), getattr(fleet, standing)) for standing in ("serving", "draining", "lost")),
        Reading("fleet_slots", (), fleet.slots),
        Reading("fleet_slots_busy", (), fleet.busy),
    ]
    served = {each.queue: each for each in slots_by_queue(session)}
    for queue in SERVED:
        here = served.get(queue)
        readings.append(Reading("slots", (queue,), here.slots if here is not None else 0))
        readings.append(Reading("slots_busy", (queue,), here.busy if here is not None else 0))
    return readings


def _read_attempts(session: Session, lease_seconds: float) -> list[Reading]:
    running = {queue: values for queue, *values in session.execute(_ATTEMPTS, {"lease_seconds": lease_seconds})}
    readings = []
    for queue in SERVED:
        oldest, lease_age, boxes = running.get(queue, (0.0, 0.0, 0))
        readings.append(Reading("attempt_oldest_age_seconds", (queue,), max(0.0, oldest)))
        readings.append(Reading("lease_age_seconds_max", (queue,), max(0.0, lease_age)))
        readings.append(Reading("boxes_working", (queue,), boxes))
    return readings


def _read_counts(session: Session) -> list[Reading]:
    most = {"most": COUNTED_AT_MOST}
    held = {hold.value: 0 for hold in Hold} | {reason: count for reason, count in session.execute(_HELD, most)}
    dead = dict.fromkeys(SERVED, 0) | {queue: count for queue, count in session.execute(_DEAD, most)}
    return [
        *(Reading("held_jobs", (reason,), count) for reason, count in held.items()),
        *(Reading("dead_letters", (queue,), count) for queue, count in dead.items()),
    ]


def _read_queues(session: Session) -> list[Reading]:
    readings = []
    for queue, age, ready_age, is_paused in session.execute(_QUEUES, {"queues": list(SERVED), "most": LOOKED_AT_MOST}):
        readings.append(Reading("queue_oldest_age_seconds", (queue,), max(0.0, float(age))))
        readings.append(Reading("queue_ready_oldest_age_seconds", (queue,), max(0.0, float(ready_age))))
        readings.append(Reading("queue_paused", (queue,), float(is_paused)))
    return readings


def _read_lanes(session: Session, possible: Iterable[tuple[str, str]]) -> list[Reading]:
    """Return every lane that there may be: one that never had trouble flows."""
    flowing = (0.0, float(_BREAKER.index(LaneState.FLOWING)))
    standing = dict.fromkeys(possible, flowing)
    for lane in lanes(session):
        standing[lane.provider, lane.model] = (lane.parked_seconds, float(_BREAKER.index(lane.state)))
    readings = []
    for labels, (parked_seconds, state) in standing.items():
        readings.append(Reading("lane_parked_seconds", labels, parked_seconds))
        readings.append(Reading("provider_breaker_state", labels, state))
    return readings


def _read_budgets(session: Session) -> list[Reading]:
    readings = []
    for scope, limit, spent, reserved, used in session.execute(_BUDGETS):
        readings.append(Reading("budget_limit_usd", (scope,), float(limit) / NANOUSD_PER_USD))
        readings.append(Reading("budget_spent_usd", (scope,), float(spent) / NANOUSD_PER_USD))
        readings.append(Reading("budget_reserved_usd", (scope,), float(reserved) / NANOUSD_PER_USD))
        readings.append(Reading("budget_used_ratio_max", (scope,), float(used)))
    return readings


DOOR = "door"
_LISTS: dict[str, tuple[str, ...]] = {queue.value: (list_of(queue),) for queue in QueueName} | {DOOR: DOOR_LISTS}
"""The lists by the label that they count for: each queue's, and those at which Celery clients submit."""


def read_broker(broker: Redis) -> list[Reading]:
    """Return the present values of the broker's metrics; of one that does not answer only that.

    A list's length costs the broker the same however long the list is.
    """
    try:
        facts: dict[str, Any] = broker.info()
        pipe = broker.pipeline(transaction=False)
        for names in _LISTS.values():
            for name in names:
                pipe.llen(name)
        lengths = iter(pipe.execute())
    except (RedisError, OSError):
        return [Reading("broker_up", (), 0)]
    return [
        Reading("broker_up", (), 1),
        *(Reading("broker_messages", (label,), float(sum(islice(lengths, len(_LISTS[label]))))) for label in _LISTS),
        Reading("broker_memory_used_bytes", (), float(facts["used_memory"])),
        Reading("broker_memory_limit_bytes", (), float(facts["maxmemory"])),
        Reading("broker_clients", (), float(facts["connected_clients"])),
        Reading("broker_evicted_keys_total", (), float(facts["evicted_keys"])),
    ]
