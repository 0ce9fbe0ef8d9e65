"""How the queues stand for one tenant: what others have waiting is not its business."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from sqlmodel import Session

from monitoring.ledger.dispatch_window import Depth, depths, paused_queues
from routing.queues import QUEUES


class QueueView(BaseModel):
    """How a queue stands, counting the caller's own jobs."""

    model_config = ConfigDict(frozen=True)

    queue: str
    waiting: int
    oldest_age_seconds: float
    is_paused: bool


def queue_depths(session: Session, tenant: str) -> list[QueueView]:
    """Return how many of a tenant's jobs wait on each queue."""
    paused = paused_queues(session)
    own = {depth.queue: depth for depth in depths(session, tenant=tenant)}
    return [
        QueueView(**own.get(queue.value, Depth(queue.value, 0, 0.0))._asdict(), is_paused=queue.value in paused)
        for queue in QUEUES
    ]
