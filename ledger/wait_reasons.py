"""Why a waiting job must not go to the broker yet: it is set aside instead of being looked at every round.

A held job is in none of the indexes that the dispatch window is filled from, so what waits for its site, for a time or
for a provider costs nothing. Only the dispatcher lets it go on: a time's jobs when it has come, a site's one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import DateTime, cast, func, select
from sqlmodel import Session

from ledger.sql import Statement, after, now
from ledger.tables import Job
from routing.scheduling import Hold

RELEASED_AT_ONCE = 500
"""Jobs that one look lets go on at most: the next look takes up the rest."""


def set_hold(job: Job, hold: Hold | None, *, seconds: float | None = None) -> None:
    """Note on a locked waiting job why it must not go to the broker yet, or that it may.

    A job that waits for a time starts to wait for a worker when that has come: its age counts from then.

    Args:
        job: waits, or is about to.
        hold: why; None when nothing keeps it.
        seconds: how long it is held at least; only a job that is held for its site has no such time.
    """
    assert (seconds is None) == (hold in (None, Hold.SITE)), "a time belongs to a hold that time ends"
    job.held_for = hold.value if hold is not None else None
    job.held_until = after(seconds) if seconds is not None else None  # type: ignore[assignment]
    if hold is Hold.TIME and seconds is not None:
        job.waiting_since = after(max(0.0, seconds))  # type: ignore[assignment]


def hold_back(session: Session, job: Job, hold: Hold, *, seconds: float | None = None) -> None:
    """Park a locked job that waits already; a message of it that is on its way finds it held.

    Args:
        session: the caller's transaction.
        job: waits for a worker.
        hold: why it has to wait.
        seconds: how long at least; None for a job that waits for its site.
    """
    job.pushed_at = None
    set_hold(job, hold, seconds=seconds)
    session.flush()


def seconds_to_start(session: Session, job: Job) -> float | None:
    """Return how long a job still has to wait for the start that its owner asked for; None when it need not."""
    if (asked := job.request.get("start_at")) is None:
        return None
    left = select(func.extract("epoch", cast(asked, DateTime(timezone=True)) - now()))
    seconds = float(session.scalar(left) or 0.0)
    return seconds if seconds > 0 else None


_DUE = Statement("""
    WITH due AS (
        SELECT id FROM job WHERE held_until <= (SELECT clock_timestamp()) ORDER BY held_until LIMIT %(limit)s
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET held_for = NULL, held_until = NULL WHERE id = ANY(ARRAY(SELECT id FROM due)) RETURNING id
""")

_HEADS = Statement("""
    WITH RECURSIVE lines AS (
        (SELECT site_id, queue FROM job WHERE held_for = 'site' ORDER BY site_id, queue LIMIT 1)
        UNION ALL
        SELECT next.site_id, next.queue FROM lines CROSS JOIN LATERAL (
            SELECT job.site_id, job.queue FROM job
             WHERE job.held_for = 'site' AND (job.site_id, job.queue) > (lines.site_id, lines.queue)
             ORDER BY job.site_id, job.queue LIMIT 1
        ) AS next
    ), free AS (
        SELECT lines.site_id, lines.queue FROM lines JOIN site ON site.id = lines.site_id AND site.lock_job_id IS NULL
         WHERE NOT EXISTS (SELECT FROM job AS next WHERE next.site_id = lines.site_id AND next.queue = lines.queue
                              AND next.waiting_since IS NOT NULL AND next.held_for IS NULL)
         LIMIT %(limit)s
    ), head AS (
        SELECT first.id FROM free CROSS JOIN LATERAL (
            SELECT job.id FROM job
             WHERE job.held_for = 'site' AND job.site_id = free.site_id AND job.queue = free.queue
             ORDER BY job.priority, job.created_at LIMIT 1
        ) AS first
        UNION ALL
        SELECT holder.id FROM lines JOIN site ON site.id = lines.site_id
          JOIN job AS holder ON holder.id = site.lock_job_id AND holder.queue = lines.queue
         WHERE holder.held_for = 'site'
    ), locked AS (
        SELECT id FROM job WHERE id = ANY(ARRAY(SELECT id FROM head)) AND held_for = 'site'
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET held_for = NULL, held_until = NULL WHERE id = ANY(ARRAY(SELECT id FROM locked)) RETURNING id
""")
"""One job for each free site and queue on which nobody else is about to write it: its most urgent, of those the oldest.

Lines are found one by one through the index, so that this costs what busy sites there are, not what waits for them. A
queue without workers keeps only its own line waiting. A job that holds its site's lock waits for nobody.
"""


def release_due(session: Session, *, limit: int = RELEASED_AT_ONCE) -> Sequence[UUID]:
    """Let jobs go on whose time has come, by the ledger's clock; return them."""
    return _DUE.scalars(session, {"limit": limit})


def release_sites(session: Session, *, limit: int = RELEASED_AT_ONCE) -> Sequence[UUID]:
    """Let the next job of each site go on that has become free; return them."""
    return _HEADS.scalars(session, {"limit": limit})
