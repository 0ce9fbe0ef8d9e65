"""How the queues stand for one tenant: what others have waiting is not its business."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from sqlalchemy import func, select
from sqlmodel import Session, col

from monitoring.ledger.clock import now
from monitoring.ledger.record_tables import QueueControl
from monitoring.ledger.runway import Depth
from monitoring.ledger.tables import Job
from routing.tiers import TASK_OF_QUEUE


class QueueView(BaseModel):
    """How a queue stands, counting the caller's own jobs."""

    model_config = ConfigDict(frozen=True)

    queue: str
    waiting: int
    oldest_age_seconds: float
    is_paused: bool


def queue_depths(session: Session, tenant: str) -> list[QueueView]:
    """Return how many of a tenant's jobs wait on each queue: what others have waiting is not its business."""
    paused = set(session.scalars(select(col(QueueControl.queue)).where(col(QueueControl.paused_at).is_not(None))))
    depths = {depth.queue: depth for depth in _own_depths(session, tenant)}
    return [
        QueueView(
            queue=queue.value,
            waiting=depths[queue.value].waiting if queue.value in depths else 0,
            oldest_age_seconds=round(depths[queue.value].oldest_age_seconds, 3) if queue.value in depths else 0.0,
            is_paused=queue.value in paused,
        )
        for queue in TASK_OF_QUEUE
    ]


def _own_depths(session: Session, tenant: str) -> list[Depth]:
    age = func.greatest(0, func.extract("epoch", now() - func.min(col(Job.waiting_since))))
    rows = session.execute(
        select(col(Job.queue), func.count(), age)
        .where(col(Job.tenant) == tenant, col(Job.waiting_since).is_not(None))
        .group_by(col(Job.queue))
    )
    return [Depth(queue, waiting, float(seconds)) for queue, waiting, seconds in rows]
