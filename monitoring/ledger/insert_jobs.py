"""A job is accepted here: its row, its events and its audit row, in one statement, and once for each request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.errors import IdempotencyConflictError
from monitoring.ledger import audit
from monitoring.ledger.events import INSERT_EVENTS, EventKind, Happened, event_rows, wake_dispatcher
from monitoring.ledger.sql import Statement, dump_json, now
from monitoring.ledger.tables import Job, NewJob, digest_request
from routing.jobs import JobRequest
from routing.queues import QueueName

_VALUES = {name: f"new.{name}" for name in NewJob.COLUMNS} | {
    "fence": "0",
    "lost_attempts": "0",
    "waiting_since": """CASE WHEN (asked.facts ->> 'waits')::bool
        THEN greatest(clock_timestamp(), CASE WHEN new.held_for = 'time' THEN new.held_until END) END""",
    "pushed_at": "CASE WHEN (asked.facts ->> 'is_pushed')::bool THEN clock_timestamp() END",
    "expires_at": "clock_timestamp() + make_interval(secs => (asked.facts ->> 'open_seconds')::float)",
    "created_at": "now() + make_interval(secs => 0.000001 * asked.place)",
}
"""What each column of a new job's row is set to; any other is left to its default."""

_ACCEPT = Statement(f"""
    WITH taken AS (
        INSERT INTO job ({", ".join(_VALUES)}) SELECT {", ".join(_VALUES.values())}
          FROM jsonb_array_elements(CAST(%(jobs)s AS jsonb)) WITH ORDINALITY AS asked (facts, place)
         CROSS JOIN LATERAL jsonb_populate_record(CAST(NULL AS job), asked.facts) AS new
         ORDER BY new.idempotency_key, asked.place
            ON CONFLICT DO NOTHING RETURNING id
    ), told AS ({INSERT_EVENTS} JOIN taken ON taken.id = job_id ORDER BY ordinality
    ), audited AS ({audit.INSERT_AUDIT} JOIN taken ON taken.id = job_id ORDER BY ordinality
    )
    SELECT id FROM taken
""")
"""Keys are taken in their own order, so that two batches which share some wait for each other and not in a circle. The
order of the jobs stands in `created_at`, which is what they are worked off by: a transaction has one `now()`."""


class Accepted(NamedTuple):
    """The outcome of accepting a job."""

    job: Job
    is_new: bool
    """False when the same request was accepted before: the caller gets that job."""


def accept(session: Session, new: NewJob, *, actor: str | None = None) -> Accepted:
    """Write the row that makes a job accepted, and load it.

    Args:
        session: the caller's transaction.
        new: the job.
        actor: who asked for it; the tenant where nobody else is named.

    Raises:
        IdempotencyConflictError: the caller's fault: the key or the id was used with another body.
    """
    session.flush()
    if accept_all(session, [new], actor=actor):
        return Accepted(session.get_one(Job, new.id), is_new=True)
    same = same_request(session, new.tenant, new.request, job_id=new.id, digest=new.digest)
    if same is None:
        raise IdempotencyConflictError(new.id)
    return Accepted(same, is_new=False)


def accept_all(session: Session, batch: Sequence[NewJob], *, actor: str | None = None) -> frozenset[UUID]:
    """Write the rows that make jobs accepted, in this order; return the ids of those that are now.

    The others were accepted before, under the same id or idempotency key: nothing is written about them.

    Args:
        session: the caller's transaction.
        batch: the jobs, no two of which have the same id or idempotency key.
        actor: who asked for them; their tenant where nobody else is named.
    """
    values = {
        "jobs": dump_json([new.row() for new in batch]),
        "events": dump_json([row for new in batch for row in event_rows(_events(new), new)]),
        "audit": dump_json([_audit_row(new, actor or f"tenant:{new.tenant}") for new in batch]),
    }
    taken = frozenset(_ACCEPT.scalars(session, values))
    for new in batch:
        if new.id in taken and new.parent_id is not None and new.queue is not QueueName.STEPS:
            _dismiss(session, new.parent_id)
    if any(new.id in taken and new.waits and not new.is_pushed for new in batch):
        wake_dispatcher(session)
    return taken


def _events(new: NewJob) -> Iterable[Happened]:
    """Yield what happens when a job is accepted: that it is, with the decision made about it, and that it waits."""
    place = {"queue": new.queue.value, "tier": new.tier}
    decision = {"mode": None if new.keeps_route else new.mode, "confidence": new.route.get("confidence")}
    yield EventKind.ACCEPTED, {"door": new.door.value, "state": new.state.value, **decision, **place}
    if new.waits:
        yield EventKind.WAITING, place


def _audit_row(new: NewJob, actor: str) -> dict[str, object]:
    detail = {"door": new.door.value, "route": dict(new.route)}
    return audit.audit_row("job_accepted", actor=actor, job=new, facts=audit.Facts(), detail=detail)


def _dismiss(session: Session, job_id: UUID) -> None:
    """Take a job that another one goes on from off the dead letters."""
    is_dead = col(Job.failure_signature).is_not(None) & col(Job.dismissed_at).is_(None)
    session.execute(sql_update(Job).where(col(Job.id) == job_id, is_dead).values(dismissed_at=now()))


def same_request(
    session: Session, tenant: str, request: JobRequest, *, job_id: UUID, digest: str | None = None
) -> Job | None:
    """Return the job that was accepted before under this id or idempotency key, or None.

    Args:
        session: the caller's transaction.
        tenant: whose request it is.
        request: what is asked.
        job_id: the id that the job would get.
        digest: hash of what is asked, where that is more than the request.

    Raises:
        IdempotencyConflictError: the caller's fault: it was accepted with another body.
    """
    same = col(Job.id) == job_id
    if request.idempotency_key is not None:
        own_key = (col(Job.tenant) == tenant) & (col(Job.idempotency_key) == request.idempotency_key)
        same = or_(same, own_key)
    job = session.scalars(select(Job).where(same).order_by(col(Job.id) != job_id)).first()
    if job is not None and (job.tenant != tenant or job.request_digest != (digest or digest_request(request))):
        raise IdempotencyConflictError(job.id if job.tenant == tenant else job_id)
    return job
