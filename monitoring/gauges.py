"""The metrics that are no sums over events: looked up at each scrape, each at the same cost whatever waits."""

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
from ledger.operations.workers import fleet_slots, slots_by_queue
from ledger.provider_circuits import lanes
from ledger.tables import Tenant
from monitoring.event_metrics import lag_seconds
from monitoring.forecast import RecentAttempts, read_wanted_slots
from monitoring.metrics import SERVED, Metric, counter, gauge
from routing.broker import DOOR_LISTS, list_of
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.provider_circuit import LaneState
from routing.queues import QueueName
from routing.scheduling import Hold

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
        Reading("fold_lag_seconds", (), lag_seconds(session)),
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
