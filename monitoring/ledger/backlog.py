"""How much waits and how fast it is worked off, as the dispatcher counts it now and then: what admission goes by."""

from __future__ import annotations

from sqlalchemy import func, select, text
from sqlmodel import Session, col

from monitoring.ledger.clock import now
from monitoring.ledger.record_tables import Backlog
from monitoring.ledger.runway import ALL_TENANTS

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


def count_backlog(session: Session, *, every_seconds: float = COUNT_SECONDS) -> bool:
    """Count what waits, unless that was done a moment ago; tells whether it was."""
    newest = select(func.max(col(Backlog.counted_at)) > now() - func.make_interval(0, 0, 0, 0, 0, 0, every_seconds))
    if session.scalar(newest.where(col(Backlog.tenant) == ALL_TENANTS)):
        return False
    session.execute(_COUNT, {"window": _WINDOW_SECONDS})
    return True
