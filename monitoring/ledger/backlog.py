"""How much waits and how fast it is worked off, as the dispatcher counts it now and then: what admission goes by.

Counting at every submit would cost what waits. So a queue can be over its limit by what is accepted between two counts.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import func, select, text
from sqlmodel import Session, col

from monitoring.ledger.clock import now
from monitoring.ledger.record_tables import Backlog
from monitoring.ledger.runway import ALL_TENANTS
from routing.admission import Admission, retry_after_seconds
from routing.tiers import QueueName

COUNT_SECONDS = 5.0
"""How old the newest count gets before it is made again."""
_WINDOW_SECONDS = 60

_COUNT = text("""
    WITH waiting AS (
        SELECT queue, tenant, count(*) AS jobs FROM job WHERE waiting_since IS NOT NULL GROUP BY queue, tenant
    ), started AS (
        SELECT attempt.queue, job.tenant, count(*) AS attempts FROM attempt JOIN job ON job.id = attempt.job_id
         WHERE attempt.started_at > (SELECT clock_timestamp() - make_interval(secs => :window))
         GROUP BY attempt.queue, job.tenant
    ), whole AS (
        SELECT queue, tenant, coalesce(jobs, 0) AS jobs, coalesce(attempts, 0) AS attempts
          FROM waiting FULL JOIN started USING (queue, tenant)
    ), counted AS (
        SELECT queue, coalesce(tenant, '') AS tenant, sum(jobs) AS jobs, sum(attempts) AS attempts
          FROM whole GROUP BY GROUPING SETS ((queue, tenant), (queue))
    ), emptied AS (
        UPDATE backlog SET waiting = 0, drained_per_second = 0, counted_at = clock_timestamp()
         WHERE (waiting > 0 OR drained_per_second > 0)
           AND NOT EXISTS (SELECT FROM counted WHERE counted.queue = backlog.queue AND counted.tenant = backlog.tenant)
    )
    INSERT INTO backlog (queue, tenant, waiting, drained_per_second, counted_at)
    SELECT queue, tenant, jobs, attempts / CAST(:window AS double precision), clock_timestamp() FROM counted
     ORDER BY queue, tenant
    ON CONFLICT (queue, tenant) DO UPDATE SET waiting = excluded.waiting, counted_at = excluded.counted_at,
        drained_per_second = excluded.drained_per_second
""")


class Fullness(NamedTuple):
    """Why no further job fits on a queue now."""

    whose: str
    """`queue` or `tenant`."""
    limit: int
    retry_after_seconds: int


def count_backlog(session: Session, *, every_seconds: float = COUNT_SECONDS) -> bool:
    """Count what waits, unless that was done a moment ago; tells whether it was."""
    newest = select(func.max(col(Backlog.counted_at)) > now() - func.make_interval(0, 0, 0, 0, 0, 0, every_seconds))
    if session.scalar(newest.where(col(Backlog.tenant) == ALL_TENANTS)):
        return False
    session.execute(_COUNT, {"window": _WINDOW_SECONDS})
    return True


def fullness(session: Session, queue: QueueName, tenant: str, *, admission: Admission) -> Fullness | None:
    """Tell why no further job of a tenant fits on a queue; None when one does."""
    rows = session.execute(
        select(col(Backlog.tenant), col(Backlog.waiting), col(Backlog.drained_per_second)).where(
            col(Backlog.queue) == queue.value, col(Backlog.tenant).in_((ALL_TENANTS, tenant))
        )
    )
    counted = {name: (waiting, rate) for name, waiting, rate in rows}
    limits = (("tenant", tenant, admission.waiting_per_tenant), ("queue", ALL_TENANTS, admission.waiting_per_queue))
    for whose, name, limit in limits:
        waiting, rate = counted.get(name, (0, 0.0))
        if waiting >= limit:
            return Fullness(whose, limit, retry_after_seconds(waiting, limit=limit, drained_per_second=rate))
    return None


class DaySpend(NamedTuple):
    """What is booked on the caps of a day."""

    tenant_nanousd: int
    fleet_nanousd: int
    seconds_left: int
    """Until the day is over, in UTC by the ledger's clock."""


_DAY_SPEND = text("""
    SELECT coalesce((SELECT spent_nanousd FROM cap
                      WHERE scope = 'tenant_day' AND key = CAST(:tenant AS text) || '/' || day), 0),
           coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day' AND key = day), 0),
           greatest(1, ceil(extract(epoch FROM date_trunc('day', today) + interval '1 day' - today)))
      FROM (SELECT today, to_char(today, 'YYYY-MM-DD') AS day
              FROM timezone('UTC', clock_timestamp()) AS clock (today)) AS utc
""")


def day_spend(session: Session, tenant: str) -> DaySpend:
    """Return what a tenant and the whole fleet have spent today."""
    own, fleet, left = session.execute(_DAY_SPEND, {"tenant": tenant}).one()
    return DaySpend(own, fleet, int(left))
