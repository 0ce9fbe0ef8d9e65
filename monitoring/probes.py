"""Read what is no sum over events: ages, budgets, who leads. Each look costs the same whatever the backlog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from typing import NamedTuple

from sqlalchemy import select, text
from sqlmodel import Session, col

from monitoring.gauges import COUNTED_AT_MOST, LOOKED_AT_MOST
from monitoring.lately import Lately
from monitoring.ledger.dispatch_window import DISPATCHER, leaders
from monitoring.ledger.provider_circuits import lanes
from monitoring.ledger.tables import Tenant
from monitoring.ledger.workers import fleet_slots, slots_by_queue
from monitoring.metrics import SERVED
from monitoring.rollup import lag_seconds
from monitoring.wanted_slots import read_wanted
from routing.lanes import LaneState
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD
from routing.waits import Hold

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
    session: Session, policy: Policy, *, lately: Mapping[str, Lately], providers: Sequence[str]
) -> list[Reading]:  # fmt: skip
    """Return the present values of the gauges that are read from the ledger.

    Args:
        session: the caller's transaction.
        policy: limits and prices.
        lately: how attempts were, by queue.
        providers: accounts whose lanes have series from the start.
    """
    wanted = read_wanted(session, policy, lately=lately)
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
