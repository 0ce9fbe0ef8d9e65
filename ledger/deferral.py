"""Deferral: a job waits for its provider or a disk, for a worker that can read its message, or for too long.

A deferred attempt is over and counts for nothing against its job. What it had paid for is waste when its work is lost
(`parked`), and none when the job goes on from it (`parked_kept`). A job of which nothing is kept gives up its site, so
that the site's jobs of other providers go on, and begins again from whatever its site shows then. One whose work is
kept holds on to its site: another release would make that work worthless.

A job that no worker took up in its queue's time expires, whatever kept it waiting. The time runs from when it began to
wait for a worker, by the ledger's clock; what waits for its start is not waiting for a worker yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger.errors import JobNotFoundError
from ledger.events import EventKind, record
from ledger.jobs import close_attempt, end, lock_job, move, wait_on
from ledger.run_tables import AgentExecution
from ledger.sql import Statement, after
from ledger.step_ends import is_step
from ledger.tables import Job, Release, Site
from ledger.wait_reasons import hold_back
from routing.errors import UnknownMessageError
from routing.jobs import PARKED, PARKED_KEPT, Reason, State
from routing.provider_circuit import Lanes, job_pause
from routing.queues import QueueName
from routing.scheduling import Hold


class Deferred(NamedTuple):
    """How a job has waited so far for what its work was parked for."""

    times: int
    seconds: float
    """Of the pauses that it was given. How long it then stood in its queue is no fault of what it waited for."""


_DEFERRED = Statement("""
    SELECT count(*) AS times, coalesce(sum(least(given, greatest(extract(epoch FROM started_at - at), 0))), 0)::float
               AS seconds
      FROM (SELECT kind, at, CAST(data ->> 'held_seconds' AS float8) AS given, lead(at) OVER (ORDER BY id) AS started_at
              FROM event
             WHERE job_id = %(job)s AND (kind = %(started)s OR kind = %(waiting)s AND (
                   data ->> 'held_for' = %(lane)s OR data ->> 'reason' = %(storage)s))) AS told
     WHERE kind = %(waiting)s
""")
"""A pause that somebody cut short, because they knew that the lane flows, counts for what was left of it."""


def time_deferred(session: Session, job_id: UUID) -> Deferred:
    """Return how often and how long a job that is being worked on has waited while it was parked, all in all."""
    kinds = {"started": EventKind.STARTED.value, "waiting": EventKind.WAITING.value}
    holds = {"lane": Hold.PROVIDER.value, "storage": Reason.STORAGE_UNAVAILABLE.value}
    return Deferred(*_DEFERRED.one(session, {"job": job_id, **kinds, **holds}))


def defer(
    session: Session,
    job: Job,
    *,
    asked: float | None,
    reason: Reason,
    detail: str,
    lanes: Lanes,
    kept: Release | None = None,
) -> float | None:
    """Close the attempt that holds a locked job and let the job wait for its lane, or for storage that is away.

    Args:
        session: the caller's transaction.
        job: held by its attempt.
        asked: seconds until it is tried again, where that is known.
        reason: what it waits for: a provider that is busy, a gateway that is away, or storage.
        detail: the same in words, which whoever goes on from kept work is told.
        lanes: the policy's rules, which hold for all three.
        kept: what of its work the job goes on from; None when nothing is kept.

    Returns:
        The seconds that it waits; None when it has waited for as long as it may, and nothing was done.
    """
    so_far = time_deferred(session, job.id)
    seconds = job_pause(asked, lanes, times=so_far.times, waited_seconds=so_far.seconds, salt=job.id.int)
    if seconds is None:
        return None
    close_attempt(session, job, outcome=PARKED if kept is None else PARKED_KEPT, reason=reason)
    job.fence += 1
    if kept is not None:
        job.start_release_id = kept.id
        job.result = {**job.result, "begun": {**job.result.get("begun", {}), "report": detail, "is_kept": True}}
    elif job.start_release_id is None:
        _give_up_site(session, job)
    if job.state in (State.RUNNING, State.SCANNING):
        move(session, job, State.QUEUED, reason=reason)
    if is_step(job):
        session.execute(sql_update(AgentExecution).where(col(AgentExecution.job_id) == job.id).values(status="queued"))
        record(session, EventKind.RUN_STEP, job=job, status="queued", reason=reason.value)
    record(session, EventKind.PROGRESS, job=job, text=f"waits for {round(seconds)} s: {detail}")
    is_storage = reason is Reason.STORAGE_UNAVAILABLE
    hold = Hold.TIME if is_storage else Hold.PROVIDER  # a lane that opens lets nobody's disk come back
    wait_on(session, job, QueueName(job.queue), hold=hold, seconds=seconds, reason=reason)
    return seconds


def _give_up_site(session: Session, job: Job) -> None:
    """Free the site of a job that has nothing to lose. Its base is then what the site shows when it is claimed anew."""
    locked = (col(Site.id) == job.site_id) & (col(Site.lock_job_id) == job.id)
    session.execute(sql_update(Site).where(locked).values(lock_job_id=None))
    job.base_release_id = None


UNKNOWN_VERSION_SECONDS = 30.0
"""How long such a job is held."""


def requeue_unknown_version(session: Session, unread: UnknownMessageError, *, queue: QueueName) -> bool:
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
    hold_back(session, job, Hold.TIME, seconds=UNKNOWN_VERSION_SECONDS)
    job.waiting_since = since
    record(session, EventKind.UNREAD, job=job, queue=queue.value, version=unread.version)
    return True


_MAY_EXPIRE = frozenset({State.RECEIVED, State.DEBATING, State.QUEUED})


class StaleJob(NamedTuple):
    """A job that has waited for longer than it may."""

    job_id: UUID
    queue: QueueName


_STALE = Statement("""
    SELECT late.id, bound.queue
      FROM unnest(CAST(%(queues)s AS text[]), CAST(%(seconds)s AS double precision[])) AS bound (queue, seconds)
     CROSS JOIN LATERAL (
         SELECT id FROM job WHERE job.queue = bound.queue AND waiting_since IS NOT NULL
            AND waiting_since < (SELECT clock_timestamp()) - make_interval(secs => bound.seconds)
          ORDER BY waiting_since LIMIT %(limit)s
     ) AS late
""")


def stale_jobs(session: Session, wait_seconds: Mapping[QueueName, float], *, limit: int = 100) -> list[StaleJob]:
    """Return jobs that have waited for longer than they may, with one look at all queues; of each the oldest first.

    Args:
        session: the caller's transaction.
        wait_seconds: how long jobs may wait, by queue.
        limit: so many of each queue.
    """
    bounds = {"queues": [queue.value for queue in wait_seconds], "seconds": list(wait_seconds.values())}
    return [StaleJob(id_, QueueName(queue)) for id_, queue in _STALE.all(session, bounds | {"limit": limit})]


def expire_waiting(session: Session, job_id: UUID, queue: QueueName, *, wait_seconds: float) -> bool:
    """End a job that still waits on a queue for longer than it may; False when a worker or somebody else was first."""
    job = lock_job(session, job_id)
    is_late = session.scalar(select(col(Job.waiting_since) < after(-wait_seconds)).where(col(Job.id) == job_id))
    if job.queue != queue.value or State(job.state) not in _MAY_EXPIRE or not is_late:
        return False
    detail = f"no worker of queue {queue.value} took it up within {wait_seconds:g} s"
    end(session, job, State.EXPIRED, reason=Reason.QUEUE_EXPIRED, detail=detail)
    return True
