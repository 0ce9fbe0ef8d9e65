"""Let a held job wait for its lane or a disk, at nobody's cost: its attempt is over, and counts for nothing against it.

What a parked attempt had paid for is waste when its work is lost (`parked`), and none when the job goes on from it
(`parked_kept`). A job of which nothing is kept gives up its site, so that the site's jobs in other lanes flow, and
begins again from whatever its site shows then. One whose work is kept holds on to its site: another release would
make that work worthless.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.ledger.events import EventKind, record
from monitoring.ledger.jobs import close_attempt, move, wait_on
from monitoring.ledger.run_tables import AgentExecution
from monitoring.ledger.step_ends import is_step
from monitoring.ledger.tables import Job, Release, Site
from routing.jobs import PARKED, PARKED_KEPT, Reason, State
from routing.lanes import Lanes, job_pause
from routing.queues import QueueName
from routing.waits import Hold


class Waited(NamedTuple):
    """How a job has waited so far for what its work was parked for."""

    times: int
    seconds: float
    """Of the pauses that it was given. How long it then stood in its queue is no fault of what it waited for."""


_WAITED = text("""
    SELECT count(*), coalesce(sum(least(given, greatest(extract(epoch FROM started_at - at), 0))), 0)
      FROM (SELECT kind, at, CAST(data ->> 'held_seconds' AS float8) AS given, lead(at) OVER (ORDER BY id) AS started_at
              FROM event
             WHERE job_id = :job AND (kind = :started OR kind = :waiting AND (
                   data ->> 'held_for' = :lane OR data ->> 'reason' = :storage))) AS told
     WHERE kind = :waiting
""")
"""A pause that somebody cut short, because they knew that the lane flows, counts for what was left of it."""


def waited(session: Session, job_id: UUID) -> Waited:
    """Return how often and how long a job that is being worked on has waited while it was parked, all in all."""
    kinds = {"started": EventKind.STARTED.value, "waiting": EventKind.WAITING.value}
    holds = {"lane": Hold.PROVIDER.value, "storage": Reason.STORAGE_UNAVAILABLE.value}
    times, seconds = session.execute(_WAITED, {"job": job_id, **kinds, **holds}).one()
    return Waited(times, float(seconds))


def park(
    session: Session, job: Job, *, asked: float | None, reason: Reason, detail: str, lanes: Lanes,
    kept: Release | None = None,
) -> float | None:  # fmt: skip
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
    so_far = waited(session, job.id)
    seconds = job_pause(
        asked, lanes, times=so_far.times, waited_seconds=so_far.seconds, salt=job.id.int
    )  # fmt: skip
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
