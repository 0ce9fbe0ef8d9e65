"""Reads from a live ledger what its fleet does: bounded, from one moment, and without holding anybody up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from psycopg.errors import QueryCanceled
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from monitoring.capacity.arrivals import Arrival
from monitoring.capacity.defaults import default_workload
from monitoring.capacity.history import AttemptFact, CallTotals, describe, first_arrivals, mix_of
from monitoring.capacity.workload import QueueWork, Workload
from monitoring.errors import CapacityError
from monitoring.ledger.store import Ledger
from monitoring.ledger.workers import slots_by_queue
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD
from routing.queues import QueueName

LEAST_ATTEMPTS = 30
"""A queue with fewer attempts on record is taken at its defaults."""
MOST_ATTEMPTS = 20_000
"""Attempts that are read of each queue: the newest."""
_TIMEOUT_MS = 60_000

_ATTEMPTS = text("""
    WITH newest AS (
        SELECT name AS queue, found.* FROM unnest(CAST(:queues AS text[])) AS names (name)
         CROSS JOIN LATERAL (
            SELECT attempt.job_id, attempt.number, attempt.started_at, attempt.ended_at FROM attempt
             WHERE attempt.queue = name AND attempt.ended_at IS NOT NULL
               AND attempt.started_at > now() - make_interval(hours => :hours)
             ORDER BY attempt.started_at DESC LIMIT :most
         ) AS found
    )
    SELECT newest.queue, extract(epoch FROM newest.started_at)::float AS started_at,
           extract(epoch FROM newest.ended_at)::float AS ended_at,
           (SELECT (data ->> 'wait_seconds')::float FROM event
             WHERE event.job_id = newest.job_id AND event.kind = 'started'
               AND (data ->> 'attempt')::int = newest.number LIMIT 1) AS waited,
           (SELECT later.queue FROM attempt AS later
             WHERE later.job_id = newest.job_id AND later.number = newest.number + 1) AS next_queue,
           newest.number = 1 AS is_first
      FROM newest
""")

_CALLS = text("""
    WITH newest AS (
        SELECT name AS queue, found.id FROM unnest(CAST(:queues AS text[])) AS names (name)
         CROSS JOIN LATERAL (
            SELECT attempt.id FROM attempt
             WHERE attempt.queue = name AND attempt.ended_at IS NOT NULL
               AND attempt.started_at > now() - make_interval(hours => :hours)
             ORDER BY attempt.started_at DESC LIMIT :most
         ) AS found
    )
    SELECT newest.queue, call.provider || '/' || call.model AS model, count(*) AS calls,
           sum(input_tokens + output_tokens + cache_write_tokens + cache_read_tokens) AS tokens,
           sum(cost_nanousd) AS nanousd
      FROM newest JOIN call ON call.attempt_id = newest.id
     GROUP BY newest.queue, call.provider, call.model
""")

_ARRIVED = text("""
    WITH minutes AS (
        SELECT queue, floor(extract(epoch FROM started_at) / 60)::bigint AS minute, count(*) AS jobs FROM attempt
         WHERE number = 1 AND queue = ANY(CAST(:queues AS text[]))
           AND started_at > now() - make_interval(hours => :hours)
         GROUP BY queue, minute
    )
    SELECT queue, sum(jobs)::bigint AS jobs,
           (SELECT max(jobs)::bigint FROM (
                SELECT sum(sum(jobs)) OVER (ORDER BY minute RANGE BETWEEN 59 PRECEDING AND CURRENT ROW) AS jobs
                  FROM minutes GROUP BY minute
            ) AS hours) AS busiest
      FROM minutes GROUP BY queue
""")
"""How many jobs came, and how many in the busiest sixty minutes: counted, however many attempts are read."""

_TENANTS = text("""
    SELECT count(DISTINCT tenant) FROM job WHERE id IN (
        SELECT job_id FROM attempt
         WHERE started_at > now() - make_interval(hours => :hours)
         ORDER BY started_at DESC LIMIT :most)
""")


class Measured(NamedTuple):
    """What was read."""

    workload: Workload
    arrivals: tuple[Arrival, ...] = ()
    """When new jobs came, in order."""
    slots: Mapping[QueueName, int] = MappingProxyType({})
    """Slots that serve each queue now, as their workers say; one that serves several queues counts on each."""


def measure(ledger: Ledger, policy: Policy, *, hours: int, least: int = LEAST_ATTEMPTS) -> Measured:
    """Read what the fleet did in the last hours; what it did too seldom is taken at its defaults.

    Args:
        ledger: read only.
        policy: for the defaults.
        hours: how far back.
        least: attempts below which a queue's own are not believed.

    Raises:
        CapacityError: the caller's fault: there is more to read than it may take.
    """
    taken = default_workload(policy)
    window = {"queues": [queue.value for queue in taken.queues], "hours": hours, "most": MOST_ATTEMPTS}
    try:
        with ledger.begin() as session:
            session.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            session.execute(text(f"SET LOCAL statement_timeout = {_TIMEOUT_MS}"))
            attempts = _read_attempts(session, window)
            calls = _read_calls(session, window)
            arrived, busiest = _read_arrived(session, window)
            slots = {QueueName(each.queue): each.slots for each in slots_by_queue(session) if each.slots > 0}
            tenants = session.scalar(_TENANTS, window) or 1
    except OperationalError as error:
        if isinstance(error.orig, QueryCanceled):
            rule = f"the ledger took more than {_TIMEOUT_MS / 1000:g} s to read {hours} h: ask for fewer --hours"
            raise CapacityError(rule) from None
        raise
    queues = dict(taken.queues)
    for queue, facts in attempts.items():
        if len(facts) >= least:
            queues[queue] = _known(describe(facts, calls[queue]))
    seen = sum(len(facts) for facts in attempts.values())
    workload = Workload(
        source=f"the ledger's last {hours} h: {seen:,} attempts" if seen else taken.source,
        queues=queues,
        mix=mix_of(arrived) or taken.mix,
        rate_per_second=busiest / 3600 or None,
        tenants=tenants,
    )
    return Measured(workload, tuple(first_arrivals(attempts, most=MOST_ATTEMPTS)), slots)


def _known(work: QueueWork) -> QueueWork:
    """Leave out what leads to `unrouted`: nobody works there."""
    return work.model_copy(
        update={"follows": {queue: share for queue, share in work.follows.items() if queue != QueueName.UNROUTED}}
    )


def _read_attempts(session: Session, window: dict[str, object]) -> dict[QueueName, list[AttemptFact]]:
    found: dict[QueueName, list[AttemptFact]] = defaultdict(list)
    for row in session.execute(_ATTEMPTS, window):
        queue = QueueName(row.queue)
        found[queue].append(
            AttemptFact(
                queue=queue, arrived_at=row.started_at - (row.waited or 0.0), started_at=row.started_at,
                ended_at=row.ended_at, next_queue=QueueName(row.next_queue) if row.next_queue else None,
                is_first=row.is_first,
            )
        )  # fmt: skip
    return found


def _read_arrived(session: Session, window: dict[str, object]) -> tuple[dict[QueueName, int], int]:
    """Return how many jobs came to each queue, and how many in the busiest hour."""
    rows = session.execute(_ARRIVED, window).all()
    return {QueueName(row.queue): row.jobs for row in rows}, max((row.busiest for row in rows), default=0)


def _read_calls(session: Session, window: dict[str, object]) -> dict[QueueName, list[CallTotals]]:
    found: dict[QueueName, list[CallTotals]] = defaultdict(list)
    for row in session.execute(_CALLS, window):
        queue = QueueName(row.queue)
        found[queue].append(
            CallTotals(queue, row.model, row.calls, int(row.tokens or 0), float(row.nanousd or 0) / NANOUSD_PER_USD)
        )
    return found
