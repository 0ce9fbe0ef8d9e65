"""Give back a job whose message a worker could not read: it waits a while, and then its message is sent again.

A newer version sent it while workers of this one still serve the queue. Without a pause the two would
toss it to each other; meanwhile others of the queue pass.
"""

from __future__ import annotations

from sqlmodel import Session

from monitoring.errors import JobNotFoundError
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.holds import hold_back
from monitoring.ledger.jobs import lock_job
from routing.errors import UnknownMessageError
from routing.queues import QueueName
from routing.waits import Hold

PAUSE_SECONDS = 30.0
"""How long such a job is held."""


def give_back(session: Session, unread: UnknownMessageError, *, queue: QueueName) -> bool:
    """Hold the job of an unread message for a while; False for a stale copy, which nobody needs to read.

    It goes on waiting meanwhile: it ages like any other, so an upgrade that is stuck shows.
    """
    try:
        job = lock_job(session, unread.job_id)
    except JobNotFoundError:
        return False
    if job.fence != unread.fence or job.pushed_at is None or job.queue != queue.value:
        return False
    since = job.waiting_since
    hold_back(session, job, Hold.TIME, seconds=PAUSE_SECONDS)
    job.waiting_since = since
    record(session, EventKind.UNREAD, job=job, queue=queue.value, version=unread.version)
    return True
