"""Reads from a live ledger what its fleet does: bounded, from one moment, and without holding anybody up."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from statistics import fmean, median, pvariance
from types import MappingProxyType
from typing import NamedTuple

from psycopg.errors import QueryCanceled
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from ledger.errors import CapacityError
from ledger.operations.workers import slots_by_queue
from ledger.store import Ledger
from monitoring.capacity.workload import ModelUse, QueueWork, Workload, default_workload
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QueueName

LEAST_ATTEMPTS = 30
"""A queue with fewer attempts on record is taken at its defaults."""
MOST_ATTEMPTS = 20_000
"""Attempts that are read of each queue: the newest."""
_TIMEOUT_MS = 60_000

_NEWEST = """
    WITH newest AS (
        SELECT name AS queue, found.* FROM unnest(CAST(:queues AS text[])) AS names (name)
         CROSS JOIN LATERAL (
            SELECT id, job_id, number, started_at, ended_at FROM attempt
             WHERE queue = name AND ended_at IS NOT NULL AND started_at > now() - make_interval(hours => :hours)
             ORDER BY started_at DESC LIMIT :most
         ) AS found
    )
"""

_ATTEMPTS = text(f"""{_NEWEST}
    SELECT newest.queue, extract(epoch FROM newest.started_at)::float AS started_at,
           extract(epoch FROM newest.ended_at)::float AS ended_at,
           (SELECT (data ->> 'wait_seconds')::float FROM event
             WHERE event.job_id = newest.job_id AND event.kind = 'started'
               AND (data ->> 'attempt')::int = newest.number LIMIT 1) AS waited,
           (SELECT later.queue FROM attempt AS later
             WHERE later.job_id = newest.job_id AND later.number = newest.number + 1) AS next_queue
      FROM newest
""")

_CALLS = text(f"""{_NEWEST}
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


class AttemptFact(NamedTuple):
    """One attempt that has ended. Times are seconds of one clock."""

    arrived_at: float
    """When its job began to wait for it."""
    started_at: float
    ended_at: float
    next_queue: QueueName | None = None
    """Where its job had its next attempt, if it had one."""


class CallTotals(NamedTuple):
    """What all attempts on a queue asked of one model."""

    model: str
    """`PROVIDER/MODEL`."""
    calls: int
    tokens: int
    usd: float


class Handover(NamedTuple):
    """How long the ways between attempts take, in seconds."""

    pickup_seconds: float
    turnaround_seconds: float


class Measured(NamedTuple):
    """What was read."""

    workload: Workload
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
            arrived = session.execute(_ARRIVED, window).all()
            slots = {QueueName(each.queue): each.slots for each in slots_by_queue(session) if each.slots > 0}
            tenants = session.scalar(_TENANTS, window) or 1
    except OperationalError as error:
        if isinstance(error.orig, QueryCanceled):
            rule = f"the ledger took more than {_TIMEOUT_MS / 1000:g} s to read {hours} h: ask for fewer --hours"
            raise CapacityError(rule) from None
        raise
    believed = {queue: describe(facts, calls[queue]) for queue, facts in attempts.items() if len(facts) >= least}
    seen, jobs = sum(len(facts) for facts in attempts.values()), sum(row.jobs for row in arrived)
    workload = Workload(
        source=f"the ledger's last {hours} h: {seen:,} attempts" if seen else taken.source,
        queues=taken.queues | believed,
        mix={QueueName(row.queue): row.jobs / jobs for row in arrived} or taken.mix,
        rate_per_second=max((row.busiest for row in arrived), default=0) / 3600 or None,
        tenants=tenants,
    )
    return Measured(workload, slots)


def describe(attempts: Sequence[AttemptFact], calls: Sequence[CallTotals]) -> QueueWork:
    """Return what attempts of one queue are like.

    Args:
        attempts: at least one.
        calls: of the same queue and of the same attempts.
    """
    count = len(attempts)
    seconds = [max(0.0, attempt.ended_at - attempt.started_at) for attempt in attempts]
    mean = fmean(seconds)
    ways = handover(attempts)
    followed = Counter(attempt.next_queue for attempt in attempts if attempt.next_queue is not None)
    followed.pop(QueueName.UNROUTED, None)  # nobody works there
    return QueueWork(
        source="measured",
        attempts=count,
        mean_seconds=mean,
        variability=pvariance(seconds, mean) / mean**2 if mean > 0 else 0.0,
        pickup_seconds=ways.pickup_seconds,
        turnaround_seconds=ways.turnaround_seconds,
        follows={queue: times / count for queue, times in followed.items()},
        usd=sum(total.usd for total in calls) / count,
        models={total.model: ModelUse(calls=total.calls / count, tokens=total.tokens / count) for total in calls},
    )


def handover(attempts: Sequence[AttemptFact]) -> Handover:
    """Tell a wait for a free slot from the way that every message takes.

    An attempt that began although no other one had ended while its job waited was taken up by a slot that was free:
    its wait is the pickup. One that waited for another's end began so long after it: the turnaround. Both are medians,
    so jobs that were held back for something else do not count much.
    """
    ordered = sorted(attempts, key=lambda attempt: attempt.started_at)
    ends = sorted(attempt.ended_at for attempt in ordered)
    pickups, turnarounds = [], []
    unmatched: deque[float] = deque()
    added = 0
    for attempt in ordered:
        until = bisect_right(ends, attempt.started_at)
        unmatched.extend(ends[added:until])
        added = max(added, until)
        while unmatched and unmatched[0] < attempt.arrived_at:
            unmatched.popleft()  # its slot was free when this job came
        if bisect_left(ends, attempt.arrived_at) == until:
            pickups.append(max(0.0, attempt.started_at - attempt.arrived_at))
        elif unmatched:
            turnarounds.append(attempt.started_at - unmatched.popleft())
    pickup = median(pickups) if pickups else 0.0
    return Handover(pickup, median(turnarounds) if turnarounds else pickup)


def _read_attempts(session: Session, window: dict[str, object]) -> dict[QueueName, list[AttemptFact]]:
    attempts: dict[QueueName, list[AttemptFact]] = defaultdict(list)
    for row in session.execute(_ATTEMPTS, window):
        next_queue = QueueName(row.next_queue) if row.next_queue else None
        arrived_at = row.started_at - (row.waited or 0.0)
        attempts[QueueName(row.queue)].append(AttemptFact(arrived_at, row.started_at, row.ended_at, next_queue))
    return attempts


def _read_calls(session: Session, window: dict[str, object]) -> dict[QueueName, list[CallTotals]]:
    calls: dict[QueueName, list[CallTotals]] = defaultdict(list)
    for row in session.execute(_CALLS, window):
        usd = float(row.nanousd or 0) / NANOUSD_PER_USD
        calls[QueueName(row.queue)].append(CallTotals(row.model, row.calls, int(row.tokens or 0), usd))
    return calls
