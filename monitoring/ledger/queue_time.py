"""Queue TTL: a job that no worker took up in its queue's time expires, so that nobody gets an answer they forgot about.

The time runs from when it began to wait for a worker, by the ledger's clock, whatever keeps it waiting: a site that is
being written, a paused queue, a provider. What waits for its start is not waiting for a worker yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import select
from sqlmodel import Session, col

from monitoring.ledger.clock import after, moment
from monitoring.ledger.jobs import end, lock_job
from monitoring.ledger.tables import Job
from routing.jobs import Reason, State
from routing.tiers import QueueName

_MAY_EXPIRE = frozenset({State.RECEIVED, State.DEBATING, State.QUEUED})


def stale_jobs(session: Session, queue: QueueName, *, wait_seconds: float, limit: int = 100) -> Sequence[UUID]:
    """Return jobs that have waited on a queue for longer than they may, the oldest first."""
    waits = (col(Job.queue) == queue.value) & (col(Job.waiting_since).is_not(None))
    stale = select(col(Job.id)).where(waits, col(Job.waiting_since) < moment(-wait_seconds))
    return session.scalars(stale.order_by(col(Job.waiting_since)).limit(limit)).all()


def expire_waiting(session: Session, job_id: UUID, queue: QueueName, *, wait_seconds: float) -> bool:
    """End a job that still waits on a queue for longer than it may; False when a worker or somebody else was first."""
    job = lock_job(session, job_id)
    is_late = session.scalar(select(col(Job.waiting_since) < after(-wait_seconds)).where(col(Job.id) == job_id))
    if job.queue != queue.value or State(job.state) not in _MAY_EXPIRE or not is_late:
        return False
    detail = f"no worker of queue {queue.value} took it up within {wait_seconds:g} s"
    end(session, job, State.EXPIRED, reason=Reason.QUEUE_EXPIRED, detail=detail)
    return True
