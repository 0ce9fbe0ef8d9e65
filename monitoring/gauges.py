"""The metrics that are not sums over events, read at each scrape at a cost that does not grow with the backlog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice, product
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col

from ledger.cells.directory import Directory
from ledger.dispatch_window import IS_READY
from ledger.notifications import count_undelivered
from ledger.operations.activity import read_blockers, read_connections
from ledger.operations.leaders import DISPATCHER, leaders
from ledger.operations.workers import fleet_slots, slots_by_queue
from ledger.provider_circuits import circuits
from ledger.store import Statement
from ledger.tables import Tenant
from monitoring.backlog import RecentAttempts, read_wanted_slots
from monitoring.event_metrics import fold_lag_seconds
from monitoring.metrics import OPEN, SERVED, Metric, Reading, counter, gauge
from routing.broker import INTAKE_LISTS, list_of
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.provider_circuit import CircuitState
from routing.queues import QueueName
from routing.scheduling import WaitReason

COUNTED_AT_MOST = 10_000
"""The limit to which held jobs and dead letters are counted."""
LOOKED_AT_MOST = 50
"""How many of a queue's oldest jobs are searched for a ready one; as many of those sent, and of those to be sent."""

PROBED: tuple[Metric, ...] = (
    gauge(
        "workers", "Workers: serving, draining (stopping), or lost (silent without signing off).", {"standing": OPEN}
    ),
    gauge("fleet_slots", "Slots of all serving workers."),
    gauge("fleet_slots_busy", "Busy slots of serving workers."),
    gauge("slots", "Slots that serve a queue; one that serves several queues counts for each.", {"queue_name": OPEN}),
    gauge("slots_busy", "Busy slots that serve a queue, whichever queue's jobs they run.", {"queue_name": OPEN}),
    gauge("attempt_oldest_age_seconds", "Age of the longest-running attempt; 0 without one.", {"queue_name": OPEN}),
    gauge("lease_age_seconds_max", "Longest time since a running attempt renewed its lease.", {"queue_name": OPEN}),
    gauge("boxes_working", "Boxes with a running model session.", {"queue_name": OPEN}),
    gauge("dispatcher_leader_present", "1 while a dispatcher leads."),
    gauge("queue_oldest_age_seconds", "Age of the oldest job whose time has come; else 0.", {"queue_name": OPEN}),
    gauge(
        "queue_ready_oldest_age_seconds",
        f"Age of the oldest ready job of the {3 * LOOKED_AT_MOST} that are looked at; 0 without one.",
        {"queue_name": OPEN},
    ),
    gauge("queue_paused", "1 while operators have paused the queue.", {"queue_name": OPEN}),
    gauge("wanted_slots", "Slots that the queue wants now: the signal for autoscalers.", {"queue_name": OPEN}),
    gauge("backlog_work_seconds", "Expected slot-seconds of the waiting jobs.", {"queue_name": OPEN}),
    gauge("backlog_usd", "Expected cost of the waiting jobs in USD.", {"queue_name": OPEN}),
    gauge(
        "held_jobs", f"Waiting jobs that are not ready, by wait reason; counted to {COUNTED_AT_MOST}.", {"reason": OPEN}
    ),
    gauge("dead_letters", f"Open dead letters; counted to {COUNTED_AT_MOST}.", {"queue_name": OPEN}),
    gauge("budget_limit_usd", "Today's budget; for tenants the sum over those that spent today.", {"scope": OPEN}),
    gauge("budget_spent_usd", "Spent of today's budget.", {"scope": OPEN}),
    gauge("budget_reserved_usd", "Reserved of today's budget by calls in progress.", {"scope": OPEN}),
    gauge("budget_used_ratio_max", "The largest spent or reserved share of a budget of this scope.", {"scope": OPEN}),
    gauge(
        "circuit_open_seconds",
        "Seconds for which the circuit of an account's model stays open; 0 while closed.",
        {"provider": OPEN, "model": OPEN},
    ),
    gauge(
        "provider_breaker_state",
        "Circuit of an account's model: 0 closed, 1 half-open, 2 open.",
        {"provider": OPEN, "model": OPEN},
    ),
    gauge("broker_up", "1 while the broker answers the exporter."),
    gauge(
        "broker_messages",
        "Messages on the broker's lists; `unrouted` are served by nobody, `celery_intake` come from Celery clients.",
        {"queue_name": OPEN},
    ),
    gauge("broker_memory_used_bytes", "Memory used by the broker."),
    gauge("broker_memory_limit_bytes", "Memory limit of the broker; 0 for none."),
    gauge("broker_clients", "Connections to the broker."),
    counter("broker_evicted_keys_total", "Keys evicted by the broker for lack of memory since its start."),
    gauge("ledger_connections", "Connections to the ledger's server, of all its databases."),
    gauge("ledger_connections_limit", "Connections that the server accepts."),
    gauge("ledger_blocked_seconds_max", "Longest wait of a session for another one's lock; 0 without one."),
    gauge(
        "webhooks_undelivered",
        "Callbacks that have waited for over a minute, or were given up within a day.",
        {"standing": OPEN},
    ),
    gauge("cells_directory_up", "1 while the directory of the fleet answers; only of a cell."),
    gauge("cells_leased_usd", "What this cell has leased of the fleet's budget today; it spends no more."),
    gauge("cells_moves", "Tenants that are moving from or to this cell, by the step that is done.", {"step": OPEN}),
    gauge("cells_move_age_seconds_max", "Time since the oldest such move began; 0 without one."),
    gauge("fold_lag_seconds", "Age of the oldest event not counted yet; 0 without one."),
    gauge("audit_unsealed_age_seconds", "Age of the oldest audit row not sealed yet; 0 without one."),
    gauge("build_info", "Always 1.", {"version": OPEN, "policy": OPEN, "prices_as_of": OPEN}),
)
"""The metrics read at each scrape."""

MOST_PROVIDERS = 20
"""Accounts whose series start at 0; those of further ones start with their first call."""
_BREAKER = (CircuitState.CLOSED, CircuitState.HALF_OPEN, CircuitState.OPEN)


_SEEN = "SELECT waiting_since, held_for FROM job WHERE queue = name AND waiting_since IS NOT NULL"
_QUEUES = Statement(f"""
    SELECT name, coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(waiting_since) FROM ({_SEEN}) AS x)), 0),
           coalesce((SELECT extract(epoch FROM clock_timestamp() - min(waiting_since)) FROM (
                         ({_SEEN} ORDER BY waiting_since LIMIT %(most)s)
                         UNION ALL ({_SEEN} AND pushed_at IS NOT NULL ORDER BY tenant LIMIT %(most)s)
                         UNION ALL ({_SEEN} AND {IS_READY} ORDER BY tenant, priority, created_at LIMIT %(most)s)
                     ) AS seen WHERE held_for IS NULL), 0) AS ready_age,
           EXISTS (SELECT FROM queue_control WHERE queue = name AND paused_at IS NOT NULL) AS is_paused
      FROM unnest(CAST(%(queues)s AS text[])) AS names (name)
""")

_ATTEMPTS = Statement("""
    SELECT queue, max(extract(epoch FROM clock_timestamp() - started_at))::float AS age,
           max(%(lease_seconds)s - extract(epoch FROM lease_until - clock_timestamp()))::float AS lease_age,
           count(egress_address) AS boxes
      FROM attempt WHERE ended_at IS NULL GROUP BY queue
""")
"""There are never more of them than slots."""

_HELD = Statement("""
    SELECT 'site' AS reason, count(*) AS jobs FROM (
        SELECT FROM job WHERE held_for = 'site' ORDER BY site_id, queue, priority, created_at LIMIT %(most)s
    ) AS held
    UNION ALL
    SELECT held_for, count(*) FROM (
        SELECT held_for FROM job WHERE held_until IS NOT NULL ORDER BY held_until LIMIT %(most)s
    ) AS held GROUP BY held_for
""")

_DEAD = Statement("""
    SELECT queue, count(*) FROM (
        SELECT queue FROM job WHERE failure_signature IS NOT NULL AND dismissed_at IS NULL
         ORDER BY tenant, failure_signature, ended_at LIMIT %(most)s
    ) AS dead GROUP BY queue
""")

_BUDGETS = Statement("""
    WITH day AS (SELECT to_char(timezone('UTC', clock_timestamp()), 'YYYY-MM-DD') AS today),
    budget AS (
        SELECT cap.* FROM day JOIN cap ON cap.scope = 'fleet_day' AND cap.key = day.today
        UNION ALL
        SELECT cap.* FROM day CROSS JOIN tenant
          JOIN cap ON cap.scope = 'tenant_day' AND cap.key = tenant.name || '/' || day.today
    )
    SELECT scopes.name, coalesce(sum(limit_nanousd), 0) AS most, coalesce(sum(spent_nanousd), 0) AS spent,
           coalesce(sum(reserved_nanousd), 0) AS reserved,
           coalesce(max((spent_nanousd + reserved_nanousd) / nullif(limit_nanousd, 0)::float), 0) AS used
      FROM (VALUES ('fleet_day'), ('tenant_day')) AS scopes (name) LEFT JOIN budget ON budget.scope = scopes.name
     GROUP BY scopes.name
""")

_UNSEALED = Statement("""
    SELECT coalesce((SELECT extract(epoch FROM clock_timestamp() - at) FROM audit
                      WHERE seq > coalesce((SELECT last_seq FROM audit_seal ORDER BY number DESC LIMIT 1), 0)
                      ORDER BY seq LIMIT 1), 0)
""")


def read_gauges(
    session: Session, policy: Policy, *, recent: Mapping[str, RecentAttempts], providers: Sequence[str]
) -> list[Reading]:
    """Return the gauges read from the ledger.

    `providers` are accounts whose circuits have series from the start.
    """
    wanted = read_wanted_slots(session, policy, recent=recent)
    return [
        *_read_workers(session),
        *_read_attempts(session, policy.attempts.lease_seconds),
        *_read_queues(session),
        *(Reading("wanted_slots", (queue,), slots) for queue, slots in wanted.items()),
        *_read_counts(session),
        *_read_budgets(session),
        *_read_circuits(session, product(providers, policy.prices)),
        *_read_ledger(session),
        Reading("dispatcher_leader_present", (), float(DISPATCHER in leaders(session))),
        Reading("fold_lag_seconds", (), fold_lag_seconds(session)),
        Reading("audit_unsealed_age_seconds", (), float(_UNSEALED.scalar(session) or 0)),
        Reading("build_info", (version("pointsman"), policy.version, policy.prices_as_of), 1),
    ]


def read_providers(session: Session) -> tuple[str, ...]:
    """Return the accounts used by tenants, up to `MOST_PROVIDERS`."""
    named = select(col(Tenant.provider)).where(col(Tenant.provider).is_not(None)).distinct()
    return tuple(name for name in session.scalars(named.order_by(col(Tenant.provider)).limit(MOST_PROVIDERS)) if name)


def _columns(names: Sequence[str], rows: Iterable[Iterable[Any]]) -> Iterator[Reading]:
    """Yield one reading per column of rows that begin with their label; none is below 0."""
    for label, *values in rows:
        for name, value in zip(names, values, strict=True):
            yield Reading(name, (label,), max(0.0, float(value)))


def _read_workers(session: Session) -> Iterator[Reading]:
    fleet = fleet_slots(session)
    for standing in ("serving", "draining", "lost"):
        yield Reading("workers", (standing,), getattr(fleet, standing))
    yield Reading("fleet_slots", (), fleet.slots)
    yield Reading("fleet_slots_busy", (), fleet.busy)
    served = {each.queue: (each.slots, each.busy) for each in slots_by_queue(session)}
    yield from _columns(("slots", "slots_busy"), ((queue, *served.get(queue, (0, 0))) for queue in SERVED))


def _read_attempts(session: Session, lease_seconds: float) -> Iterator[Reading]:
    running = {queue: values for queue, *values in _ATTEMPTS.all(session, {"lease_seconds": lease_seconds})}
    names = ("attempt_oldest_age_seconds", "lease_age_seconds_max", "boxes_working")
    return _columns(names, ((queue, *running.get(queue, (0, 0, 0))) for queue in SERVED))


def _read_counts(session: Session) -> list[Reading]:
    most = {"most": COUNTED_AT_MOST}
    held = {hold.value: 0 for hold in WaitReason} | {reason: count for reason, count in _HELD.all(session, most)}
    dead = dict.fromkeys(SERVED, 0) | {queue: count for queue, count in _DEAD.all(session, most)}
    return [
        *(Reading("held_jobs", (reason,), count) for reason, count in held.items()),
        *(Reading("dead_letters", (queue,), count) for queue, count in dead.items()),
    ]


def _read_queues(session: Session) -> Iterator[Reading]:
    names = ("queue_oldest_age_seconds", "queue_ready_oldest_age_seconds", "queue_paused")
    return _columns(names, _QUEUES.all(session, {"queues": list(SERVED), "most": LOOKED_AT_MOST}))


def _read_circuits(session: Session, possible: Iterable[tuple[str, str]]) -> Iterator[Reading]:
    """Yield every possible circuit: one without trouble is closed."""
    closed = (0.0, float(_BREAKER.index(CircuitState.CLOSED)))
    standing = dict.fromkeys(possible, closed)
    for circuit in circuits(session):
        standing[circuit.provider, circuit.model] = (circuit.open_seconds, float(_BREAKER.index(circuit.state)))
    for labels, (open_seconds, state) in standing.items():
        yield Reading("circuit_open_seconds", labels, open_seconds)
        yield Reading("provider_breaker_state", labels, state)


def _read_budgets(session: Session) -> Iterator[Reading]:
    names = ("budget_limit_usd", "budget_spent_usd", "budget_reserved_usd", "budget_used_ratio_max")
    for scope, *nanousd, used in _BUDGETS.all(session):
        yield from _columns(names, [(scope, *(float(amount) / NANOUSD_PER_USD for amount in nanousd), used)])


def _read_ledger(session: Session) -> list[Reading]:
    connections, undelivered = read_connections(session), count_undelivered(session)
    return [
        Reading("ledger_connections", (), connections.used),
        Reading("ledger_connections_limit", (), connections.most),
        Reading("ledger_blocked_seconds_max", (), max((each.seconds for each in read_blockers(session)), default=0.0)),
        *(Reading("webhooks_undelivered", (standing,), count) for standing, count in undelivered._asdict().items()),
    ]


def read_cell(directory: Directory, cell: str) -> list[Reading]:
    """Return a cell's metrics from the directory; only `cells_directory_up` if it does not answer."""
    try:
        standing = directory.standing(cell)
    except SQLAlchemyError:
        return [Reading("cells_directory_up", (), 0)]
    return [
        Reading("cells_directory_up", (), 1),
        Reading("cells_leased_usd", (), standing.leased_nanousd / NANOUSD_PER_USD),
        *(Reading("cells_moves", (step.value,), count) for step, count in standing.moves.items()),
        Reading("cells_move_age_seconds_max", (), standing.move_seconds),
    ]


_LISTS = {queue.value: (list_of(queue),) for queue in QueueName} | {"celery_intake": INTAKE_LISTS}
"""The broker's lists by label: each queue's, and those of Celery clients."""


def read_broker(broker: Redis) -> list[Reading]:
    """Return the broker's metrics; only `broker_up` if it does not answer."""
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
