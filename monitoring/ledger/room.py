"""Whether there is room for further jobs, and where each begins to wait: looked up once for all that come together.

How much waits is as the dispatcher counted it last (backlog), since counting at every submit would cost what waits. So
a queue can be over its limit by what is accepted between two counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from sqlmodel import Session

from monitoring.ledger.runway import WRITING_QUEUES
from monitoring.ledger.runway_sql import AT_WORK, IS_PUSHED, IS_READY
from monitoring.ledger.statement import Statement
from routing.admission import Admission, retry_after_seconds
from routing.policy import Runway
from routing.queues import QueueName
from routing.waits import Hold

LOOK = Statement(f"""
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


class Place(NamedTuple):
    """Where a job that is being accepted begins to wait."""

    is_pushed: bool
    """Whether its message goes to the broker right after the commit."""
    hold: Hold | None = None
    """Why it must not; None where it only waits for its turn."""


class Fullness(NamedTuple):
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
class Room:
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

    def fullness(self, admission: Admission) -> Fullness | None:
        """Tell why no further job of the tenant fits on the queue; None when one does."""
        limits = (
            ("tenant", self.own, admission.waiting_per_tenant), ("queue", self.everyone, admission.waiting_per_queue)
        )  # fmt: skip
        for whose, counted, limit in limits:
            waiting = counted.waiting + self.taken
            if waiting >= limit:
                retry = retry_after_seconds(waiting, limit=limit, drained_per_second=counted.drained_per_second)
                return Fullness(whose, limit, retry)
        return None

    def take(
        self, site_id: UUID | None, *, runway: Runway, admission: Admission, is_early: bool = False
    ) -> Place:  # fmt: skip
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
            return Place(is_pushed=False, hold=Hold.TIME)
        if site_id is not None and self.queue in WRITING_QUEUES:
            if site_id in self.crowded:
                return Place(is_pushed=False, hold=Hold.SITE)
            self.crowded.add(site_id)
        if not self._has_place(runway, admission):
            return Place(is_pushed=False)
        self.standing += 1
        self.own_standing += 1
        return Place(is_pushed=True)

    def _has_place(self, runway: Runway, admission: Admission) -> bool:
        if self.is_closed or self.standing >= runway.per_queue:
            return False
        limit = self.max_running if self.max_running is not None else admission.running_per_tenant
        if limit is not None and self.queue is not QueueName.CONTROL and self.own_standing + self.at_work >= limit:
            return False
        return self.own_standing < runway.per_tenant * self.weight


def look_for_room(
    session: Session, tenant: str, wanted: Mapping[QueueName, Collection[UUID]]
) -> dict[QueueName, Room]:  # fmt: skip
    """Return how queues stand for a tenant.

    Args:
        session: the caller's transaction.
        tenant: whose jobs are to wait there.
        wanted: the queues, and the sites that those jobs work on.
    """
    sites = [(site_id, queue.value) for queue, ids in wanted.items() for site_id in ids]
    rows = LOOK.all(
        session,
        {
            "tenant": tenant, "queues": [queue.value for queue in wanted], "sites": [site_id for site_id, _ in sites],
            "site_queues": [queue for _, queue in sites],
        },
    )  # fmt: skip
    return {
        QueueName(row.queue): Room(
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
