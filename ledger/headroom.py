"""Admission headroom and initial placement, looked up once for all jobs that are submitted together.

How much waits is as the dispatcher counted it last (`count_backlog`), since counting at every submit would cost what
waits. So a queue can be over its limit by what is accepted between two counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select
from sqlmodel import Session, col

from ledger.dispatch_window import ALL_TENANTS, AT_WORK, IS_PUSHED, IS_READY, WRITING_QUEUES
from ledger.record_tables import Backlog
from ledger.sql import Statement, now
from routing.policy.platform import Runway
from routing.queues import QueueName
from routing.scheduling import Admission, Hold, retry_after_seconds

_HEADROOM = Statement(f"""
    SELECT asked.queue, ARRAY(
               SELECT site.id
                 FROM unnest(CAST(%(sites)s AS uuid[]), CAST(%(site_queues)s AS text[])) AS wanted (id, queue)
                 JOIN site ON site.id = wanted.id
                WHERE wanted.queue = asked.queue
                  AND (site.lock_job_id IS NOT NULL
                       OR (SELECT id FROM job WHERE site_id = wanted.id AND queue = asked.queue
                              AND waiting_since IS NOT NULL AND held_for IS NULL ORDER BY site_id, queue LIMIT 1)
                          IS NOT NULL
                       OR (SELECT id FROM job WHERE site_id = wanted.id AND queue = asked.queue AND held_for = 'site'
                            ORDER BY priority LIMIT 1) IS NOT NULL)
           ) AS crowded,
           (SELECT count(*) FROM job WHERE queue = asked.queue AND {IS_PUSHED}) AS standing,
           (SELECT count(*) FROM job WHERE queue = asked.queue AND job.tenant = %(tenant)s
               AND {IS_PUSHED}) AS own_standing,
           (SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
             WHERE {AT_WORK} AND job.tenant = %(tenant)s) AS at_work,
           tenant.paused_at IS NOT NULL
           OR EXISTS (SELECT FROM queue_control WHERE queue = asked.queue AND paused_at IS NOT NULL)
           OR (SELECT id FROM job WHERE queue = asked.queue AND job.tenant = %(tenant)s AND {IS_READY}
                ORDER BY priority, created_at LIMIT 1) IS NOT NULL AS is_closed,
           tenant.weight, tenant.max_running,
           coalesce(own.waiting, 0) AS own_waiting, coalesce(own.drained_per_second, 0) AS own_rate,
           coalesce(everyone.waiting, 0) AS waiting, coalesce(everyone.drained_per_second, 0) AS rate,
           coalesce((SELECT spent_nanousd FROM cap
                      WHERE scope = 'tenant_day' AND key = tenant.name || '/' || day), 0) AS own_spent,
           coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day' AND key = day), 0) AS spent,
           greatest(1, ceil(extract(epoch FROM date_trunc('day', today) + interval '1 day' - today))) AS seconds_left
      FROM (SELECT today, to_char(today, 'YYYY-MM-DD') AS day
              FROM timezone('UTC', clock_timestamp()) AS clock (today)) AS utc
     CROSS JOIN unnest(CAST(%(queues)s AS text[])) AS asked (queue)
      JOIN tenant ON tenant.name = %(tenant)s
      LEFT JOIN backlog AS own ON own.queue = asked.queue AND own.tenant = tenant.name
      LEFT JOIN backlog AS everyone ON everyone.queue = asked.queue AND everyone.tenant = ''
""")


class Placement(NamedTuple):
    """Where a job that is being accepted begins to wait."""

    is_pushed: bool
    """Whether its message goes to the broker right after the commit."""
    hold: Hold | None = None
    """Why it must not; None where it only waits for its turn."""


class Saturation(NamedTuple):
    """Why no further job fits on a queue now."""

    whose: str
    """`queue` or `tenant`."""
    limit: int
    retry_after_seconds: int


class Counted(NamedTuple):
    """What waits, and how fast it is worked off."""

    waiting: int
    drained_per_second: float


class DaySpend(NamedTuple):
    """What is booked on the caps of a day."""

    tenant_nanousd: int
    fleet_nanousd: int
    seconds_left: int
    """Until the day is over, in UTC by the ledger's clock."""


@dataclass
class Headroom:
    """How a queue stands for one tenant, those of its jobs included that have been taken in since it was looked at."""

    queue: QueueName
    own: Counted
    everyone: Counted
    spend: DaySpend
    standing: int
    """Messages of all tenants on the broker."""
    own_standing: int
    at_work: int
    """Attempts of the tenant, over all queues."""
    weight: int
    max_running: int | None
    is_closed: bool
    """Whether nothing goes to the broker at once: the queue or the tenant is paused, or others wait before it."""
    crowded: set[UUID]
    """Sites that somebody writes, or will before a further job of this queue."""
    taken: int = field(default=0)

    def fullness(self, admission: Admission) -> Saturation | None:
        """Tell why no further job of the tenant fits on the queue; None when one does."""
        limits = (
            ("tenant", self.own, admission.waiting_per_tenant),
            ("queue", self.everyone, admission.waiting_per_queue),
        )
        for whose, counted, limit in limits:
            waiting = counted.waiting + self.taken
            if waiting >= limit:
                retry = retry_after_seconds(waiting, limit=limit, drained_per_second=counted.drained_per_second)
                return Saturation(whose, limit, retry)
        return None

    def take(self, site_id: UUID | None, *, runway: Runway, admission: Admission, is_early: bool = False) -> Placement:
        """Find a place for the next job: on the broker at once, in the ledger, or behind its site.

        It goes to the broker at once only where none of its tenant waits before it.

        Args:
            site_id: what it works on.
            runway: how many messages may stand in the broker.
            admission: how many attempts its tenant may have.
            is_early: it has a start of its own, before which it stands in nobody's way.
        """
        self.taken += 1
        if is_early:
            return Placement(is_pushed=False, hold=Hold.TIME)
        if site_id is not None and self.queue in WRITING_QUEUES:
            if site_id in self.crowded:
                return Placement(is_pushed=False, hold=Hold.SITE)
            self.crowded.add(site_id)
        if not self._has_place(runway, admission):
            return Placement(is_pushed=False)
        self.standing += 1
        self.own_standing += 1
        return Placement(is_pushed=True)

    def _has_place(self, runway: Runway, admission: Admission) -> bool:
        if self.is_closed or self.standing >= runway.per_queue:
            return False
        limit = self.max_running if self.max_running is not None else admission.running_per_tenant
        if limit is not None and self.queue is not QueueName.CONTROL and self.own_standing + self.at_work >= limit:
            return False
        return self.own_standing < runway.per_tenant * self.weight


def load_headroom(
    session: Session, tenant: str, wanted: Mapping[QueueName, Collection[UUID]]
) -> dict[QueueName, Headroom]:
    """Return how queues stand for a tenant.

    Args:
        session: the caller's transaction.
        tenant: whose jobs are to wait there.
        wanted: the queues, and the sites that those jobs work on.
    """
    sites = [(site_id, queue.value) for queue, ids in wanted.items() for site_id in ids]
    rows = _HEADROOM.all(
        session,
        {
            "tenant": tenant,
            "queues": [queue.value for queue in wanted],
            "sites": [site_id for site_id, _ in sites],
            "site_queues": [queue for _, queue in sites],
        },
    )
    return {
        QueueName(row.queue): Headroom(
            queue=QueueName(row.queue),
            own=Counted(row.own_waiting, row.own_rate),
            everyone=Counted(row.waiting, row.rate),
            spend=DaySpend(row.own_spent, row.spent, int(row.seconds_left)),
            standing=row.standing,
            own_standing=row.own_standing,
            at_work=row.at_work,
            weight=row.weight,
            max_running=row.max_running,
            is_closed=row.is_closed,
            crowded=set(row.crowded),
        )
        for row in rows
    }


COUNT_SECONDS = 5.0
"""How old the newest count gets before it is made again."""
_WINDOW_SECONDS = 60

_COUNT = Statement("""
    WITH waiting AS (
        SELECT queue, tenant, count(*) AS jobs FROM job WHERE waiting_since IS NOT NULL GROUP BY queue, tenant
    ), started AS (
        SELECT attempt.queue, job.tenant, count(*) AS attempts FROM attempt JOIN job ON job.id = attempt.job_id
         WHERE attempt.started_at > (SELECT clock_timestamp() - make_interval(secs => %(window)s))
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
    SELECT queue, tenant, jobs, attempts / CAST(%(window)s AS double precision), clock_timestamp() FROM counted
     ORDER BY queue, tenant
    ON CONFLICT (queue, tenant) DO UPDATE SET waiting = excluded.waiting, counted_at = excluded.counted_at,
        drained_per_second = excluded.drained_per_second
""")


def count_backlog(session: Session, *, every_seconds: float = COUNT_SECONDS) -> bool:
    """Count what waits, unless that was done a moment ago; tells whether it was."""
    newest = select(func.max(col(Backlog.counted_at)) > now() - func.make_interval(0, 0, 0, 0, 0, 0, every_seconds))
    if session.scalar(newest.where(col(Backlog.tenant) == ALL_TENANTS)):
        return False
    _COUNT.all(session, {"window": _WINDOW_SECONDS})
    return True
