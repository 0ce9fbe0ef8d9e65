"""Queue TTL: a job that no worker took up in its queue's time expires, so that nobody gets an answer they forgot about.

The time runs from when it began to wait for a worker, by the ledger's clock, whatever keeps it waiting: a site that is
being written, a paused queue, a provider. What waits for its start is not waiting for a worker yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select, text
from sqlmodel import Session, col

from monitoring.ledger.clock import after
from monitoring.ledger.jobs import end, lock_job
from monitoring.ledger.tables import Job
from routing.jobs import Reason, State
from routing.queues import QueueName

_MAY_EXPIRE = frozenset({State.RECEIVED, State.DEBATING, State.QUEUED})


class Stale(NamedTuple):
    """A job that has waited for longer than it may."""

    job_id: UUID
    queue: QueueName


_STALE = text("""
    SELECT late.id, bound.queue
      FROM unnest(CAST(:queues AS text[]), CAST(:seconds AS double precision[])) AS bound (queue, seconds)
     CROSS JOIN LATERAL (
         SELECT id FROM job WHERE job.queue = bound.queue AND waiting_since IS NOT NULL
            AND waiting_since < (SELECT clock_timestamp()) - make_interval(secs => bound.seconds)
          ORDER BY waiting_since LIMIT :limit
     ) AS late
""")


def stale_jobs(session: Session, wait_seconds: Mapping[QueueName, float], *, limit: int = 100) -> list[Stale]:
    """Return jobs that have waited for longer than they may, with one look at all queues; of each the oldest first.

    Args:
        session: the caller's transaction.
        wait_seconds: how long jobs may wait, by queue.
        limit: so many of each queue.
    """
    bounds = {"queues": [queue.value for queue in wait_seconds], "seconds": list(wait_seconds.values())}
    return [Stale(id_, QueueName(queue)) for id_, queue in session.execute(_STALE, bounds | {"limit": limit})]


def expire_waiting(session: Session, job_id: UUID, queue: QueueName, *, wait_seconds: float) -> bool:
    """End a job that still waits on a queue for longer than it may; False when a worker or somebody else was first."""
    job = lock_job(session, job_id)
    is_late = session.scalar(select(col(Job.waiting_since) < after(-wait_seconds)).where(col(Job.id) == job_id))
    if job.queue != queue.value or State(job.state) not in _MAY_EXPIRE or not is_late:
        return False
    detail = f"no worker of queue {queue.value} took it up within {wait_seconds:g} s"
    end(session, job, State.EXPIRED, reason=Reason.QUEUE_EXPIRED, detail=detail)
    return True
