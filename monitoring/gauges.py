"""What is read as it is: the metrics that are no sums over events, looked up at each scrape in constant time."""

from __future__ import annotations

from monitoring.metrics import Metric, counter, gauge

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
