"""A job becomes accepted here: its row, its events and its audit row, in one statement, and once for each request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import or_, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.errors import IdempotencyConflictError
from monitoring.ledger import audit, events
from monitoring.ledger.clock import now
from monitoring.ledger.events import EventKind
from monitoring.ledger.new_jobs import NewJob, new_row, request_digest, waits
from monitoring.ledger.statement import Statement
from monitoring.ledger.storable import dump_json
from monitoring.ledger.tables import Job
from routing.jobs import JobRequest
from routing.queues import QueueName

ACCEPT = Statement("""
    WITH taken AS (
        INSERT INTO job (
            id, tenant, door, requested_by, state, prompt, request, request_digest, idempotency_key, priority, site_id,
            parent_id, root_id, start_release_id, route, mode, tier, queue, waiting_since, pushed_at, held_for,
            held_until, supersede_key, cap_nanousd, clarification, expires_at, fence, lost_attempts, result, trace,
            created_at)
        SELECT id, tenant, door, requested_by, state, prompt, request, request_digest, idempotency_key, priority,
               site_id, parent_id, root_id, start_release_id, route, mode, tier, queue,
               CASE WHEN waits THEN greatest(clock_timestamp(), CASE WHEN held_for = 'time' THEN held_until END) END,
               CASE WHEN is_pushed THEN clock_timestamp() END, held_for, held_until, supersede_key, cap_nanousd,
               clarification, clock_timestamp() + make_interval(secs => open_seconds), 0, 0, result, trace,
               now() + make_interval(secs => 0.000001 * place)
          FROM jsonb_to_recordset(CAST(%(jobs)s AS jsonb)) AS new (
                   place integer, id uuid, tenant text, door text, requested_by text, state text, prompt text,
                   request jsonb, request_digest text, idempotency_key text, priority text, site_id uuid,
                   parent_id uuid, root_id uuid, start_release_id uuid, route jsonb, mode text, tier integer,
                   queue text, waits boolean, is_pushed boolean, held_for text, held_until timestamptz,
                   supersede_key text, cap_nanousd bigint, clarification jsonb, open_seconds double precision,
                   result jsonb, trace text)
         ORDER BY idempotency_key, place
            ON CONFLICT DO NOTHING RETURNING id
    ), told AS (
        INSERT INTO event (kind, job_id, tenant, data)
        SELECT kind, job_id, tenant, data
          FROM jsonb_populate_recordset(CAST(NULL AS event), CAST(%(events)s AS jsonb)) WITH ORDINALITY AS happened
          JOIN taken ON taken.id = job_id ORDER BY ordinality
    ), audited AS (
        INSERT INTO audit (action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan,
                           approval, detail)
        SELECT action, actor, tenant, job_id, tier, prompt, prompt_sha256, input_hash, output_hash, scan, approval,
               detail
          FROM jsonb_populate_recordset(CAST(NULL AS audit), CAST(%(audit)s AS jsonb)) WITH ORDINALITY AS done
          JOIN taken ON taken.id = job_id ORDER BY ordinality
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
    jobs = [{"place": place, **new_row(new)} for place, new in enumerate(batch)]
    happened = [row for new in batch for row in _events(new)]
    audited = [
        audit.row_of(
            "job_accepted", actor=actor or f"tenant:{new.tenant}", job=new,
            facts=audit.Facts(),  # of a job that nobody has worked on there are none
            detail={"door": new.door.value, "route": dict(new.route)},
        )
        for new in batch
    ]  # fmt: skip
    values = {"jobs": dump_json(jobs), "events": _dump(happened), "audit": _dump(audited)}
    taken = frozenset(row.id for row in ACCEPT.all(session, values))
    for new in batch:
        if new.id in taken and new.parent_id is not None and new.queue is not QueueName.STEPS:
            _lay_to_rest(session, new.parent_id)
    if any(new.id in taken and waits(new) and not new.is_pushed for new in batch):
        events.wake_dispatcher(session)
    return taken


def _events(new: NewJob) -> Iterator[dict[str, Any]]:
    """Yield what happens when a job is accepted: that it is, with the decision made about it, and that it waits."""
    place = {"queue": new.queue.value, "tier": new.tier}
    decided = None if new.keeps_route else new.mode
    told = {"state": new.state.value, "confidence": new.route.get("confidence")}
    yield events.row_of(EventKind.ACCEPTED, new, {"door": new.door.value, "mode": decided, **place, **told})
    if waits(new):
        yield events.row_of(EventKind.WAITING, new, place)


def _dump(rows: Sequence[Mapping[str, Any]]) -> str:
    return dump_json([{**row, "job_id": str(row["job_id"])} for row in rows])


def _lay_to_rest(session: Session, job_id: UUID) -> None:
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
    if job is not None and (job.tenant != tenant or job.request_digest != (digest or request_digest(request))):
        raise IdempotencyConflictError(job.id if job.tenant == tenant else job_id)
    return job
