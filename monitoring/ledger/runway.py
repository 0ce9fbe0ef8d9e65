"""The runway: which waiting jobs stand in the broker, in fair order, and which of them got lost there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.ledger.clock import after, now
from monitoring.ledger.record_tables import Leader, QueueControl
from monitoring.ledger.tables import Job
from routing.policy import Runway
from routing.tiers import QUEUE_OF_TIER, QueueName


class Push(NamedTuple):
    """A message that has to go to the broker."""

    job_id: UUID
    fence: int
    queue: QueueName
    tenant: str


class Depth(NamedTuple):
    """How a queue stands."""

    queue: str
    waiting: int
    oldest_age_seconds: float


def has_room(session: Session, queue: QueueName, tenant: str, *, runway: Runway, site_id: UUID | None) -> bool:
    """Tell whether a job that is being accepted may go to the broker at once."""
    room = session.execute(
        text("""
            SELECT (SELECT count(*) FROM (SELECT 1 FROM job WHERE queue = :queue AND waiting_since IS NOT NULL
                      AND pushed_at IS NOT NULL LIMIT :per_queue) AS pushed) < :per_queue
               AND (SELECT count(*) FROM (SELECT 1 FROM job WHERE queue = :queue AND tenant = :tenant
                      AND waiting_since IS NOT NULL AND pushed_at IS NOT NULL LIMIT :per_tenant) AS own) < :per_tenant
               AND NOT EXISTS (SELECT 1 FROM queue_control WHERE queue = :queue AND paused_at IS NOT NULL)
               AND NOT EXISTS (SELECT 1 FROM tenant WHERE name = :tenant AND paused_at IS NOT NULL)
               AND NOT EXISTS (SELECT 1 FROM site WHERE id = :site AND lock_job_id IS NOT NULL)
        """),
        {
            "queue": queue.value,
            "tenant": tenant,
            "site": site_id,
            "per_queue": runway.per_queue,
            "per_tenant": runway.per_tenant,
        },
    )
    return bool(room.scalar())


_TOP_UP = text("""
    WITH pushed AS (
        SELECT tenant, count(*) AS standing FROM job
         WHERE queue = :queue AND waiting_since IS NOT NULL AND pushed_at IS NOT NULL GROUP BY tenant
    ), ready AS (
        SELECT job.id, job.tenant, job.priority, job.created_at,
               row_number() OVER (PARTITION BY job.tenant ORDER BY job.priority, job.created_at)
                 + coalesce(pushed.standing, 0) AS turn
          FROM job
          JOIN tenant ON tenant.name = job.tenant AND tenant.paused_at IS NULL
          LEFT JOIN site ON site.id = job.site_id
          LEFT JOIN pushed ON pushed.tenant = job.tenant
         WHERE job.queue = :queue AND job.waiting_since IS NOT NULL AND job.pushed_at IS NULL
           AND job.held_for IS NULL AND (NOT :writes OR site.lock_job_id IS NULL OR site.lock_job_id = job.id)
    )
    SELECT id FROM ready WHERE turn <= :per_tenant ORDER BY turn, priority, created_at
     LIMIT greatest(0, :per_queue - (SELECT coalesce(sum(standing), 0) FROM pushed))
""")


def top_up(session: Session, queue: QueueName, *, runway: Runway) -> Sequence[Push]:
    """Choose the jobs that go to the broker next, tenants in turn, and mark them as pushed.

    Skips paused queues and tenants, and jobs whose site another job is writing.
    """
    paused = session.get(QueueControl, queue.value)
    if paused is not None and paused.paused_at is not None:
        return []
    chosen = session.scalars(
        _TOP_UP,
        {
            "queue": queue.value,
            "writes": queue in QUEUE_OF_TIER.values(),
            "per_queue": runway.per_queue,
            "per_tenant": runway.per_tenant,
        },
    ).all()
    if not chosen:
        return []
    marked = session.execute(
        sql_update(Job)
        .where(col(Job.id).in_(chosen), col(Job.waiting_since).is_not(None), col(Job.pushed_at).is_(None))
        .where(col(Job.held_for).is_(None))
        .values(pushed_at=now())
        .returning(col(Job.id), col(Job.fence), col(Job.tenant))
    ).all()
    order = {job_id: position for position, job_id in enumerate(chosen)}
    pushes = [Push(job_id, fence, queue, tenant) for job_id, fence, tenant in marked]
    return sorted(pushes, key=lambda push: order[push.job_id])


def standing(session: Session, queue: QueueName, *, older_than_seconds: float) -> Sequence[Push]:
    """Return the jobs whose message should be in the broker since at least that long."""
    rows = session.execute(
        select(col(Job.id), col(Job.fence), col(Job.tenant)).where(
            col(Job.queue) == queue.value,
            col(Job.waiting_since).is_not(None),
            col(Job.pushed_at) < after(-older_than_seconds),
        )
    )
    return [Push(job_id, fence, queue, tenant) for job_id, fence, tenant in rows]


def unpush(session: Session, pushes: Sequence[Push]) -> None:
    """Take back the mark of jobs whose message is not in the broker: they wait for the next top-up."""
    for push in pushes:
        session.execute(
            sql_update(Job)
            .where(col(Job.id) == push.job_id, col(Job.fence) == push.fence, col(Job.waiting_since).is_not(None))
            .values(pushed_at=None)
        )


def pause(session: Session, queue: QueueName, *, is_paused: bool) -> None:
    """Pause or resume a queue; survives restarts."""
    when = now() if is_paused else None
    session.execute(
        insert(QueueControl)
        .values(queue=queue.value, paused_at=when)
        .on_conflict_do_update(index_elements=["queue"], set_={"paused_at": when})
    )


def depths(session: Session) -> Sequence[Depth]:
    """Return how many jobs wait on each queue, and how long the oldest has."""
    rows = session.execute(
        select(
            col(Job.queue),
            func.count(),
            func.extract("epoch", now() - func.min(col(Job.waiting_since))),
        )
        .where(col(Job.waiting_since).is_not(None))
        .group_by(col(Job.queue))
    )
    return [Depth(queue, waiting, float(age)) for queue, waiting, age in rows]


def lead(session: Session, role: str, holder: str, *, seconds: float) -> bool:
    """Become or stay the one leader of a role for so many seconds; False while another holds it."""
    free = (col(Leader.until) < now()) | (col(Leader.holder) == holder)
    taken = session.scalar(
        insert(Leader)
        .values(role=role, holder=holder, until=after(seconds))
        .on_conflict_do_update(index_elements=["role"], set_={"holder": holder, "until": after(seconds)}, where=free)
        .returning(col(Leader.holder))
    )
    return taken == holder


def resign(session: Session, role: str, holder: str) -> None:
    """Give up a role at a clean stop, so that another takes over at once."""
    session.execute(
        sql_update(Leader).where(col(Leader.role) == role, col(Leader.holder) == holder).values(until=now())
    )
