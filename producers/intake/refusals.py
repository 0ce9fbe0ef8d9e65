"""What is recorded of a request that is refused: an event, an audit row, and of a Celery message a row to look up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session

from ledger import audit
from ledger.errors import IdempotencyConflictError
from ledger.events import EventKind, record
from ledger.store import now
from ledger.tables import Job, Tenant
from producers.errors import AdmissionRefusedError, LedgerAwayError
from routing.errors import InvalidJobError
from routing.jobs import JobRequest, Reason, Source, State
from routing.queues import QueueName

Refusal = InvalidJobError | IdempotencyConflictError | AdmissionRefusedError | LedgerAwayError


class Refused(NamedTuple):
    """A request that was not accepted."""

    error: Refusal
    job_id: UUID | None = None
    """The Celery task id, under which the sender finds the refusal."""


def record_refusals(session: Session, refused: Iterable[Refused], *, tenant: str, source: Source, actor: str) -> None:
    """Record refusals, except idempotency conflicts; of unknown tenants only those that a task id leads to.

    The trail names who asked, the `actor`; of an unknown tenant nobody did.
    """
    if session.get(Tenant, tenant) is None:
        for error, job_id in refused:
            if isinstance(error, InvalidJobError) and job_id is not None and source is Source.CELERY:
                _record_invalid(session, error, source=source, actor="nobody", tenant=None, job_id=job_id)
        return
    for error, job_id in refused:
        if isinstance(error, InvalidJobError):
            row = _record_invalid(session, error, source=source, actor=actor, tenant=tenant)
        elif isinstance(error, AdmissionRefusedError):
            row = _record_full(session, error, source=source)
        else:
            continue
        if source is Source.CELERY and job_id is not None:
            session.execute(insert(Job).values(_rejected_row(job_id, tenant, **row)).on_conflict_do_nothing())


def _record_invalid(session: Session, error: InvalidJobError, *, source: Source, **who: Any) -> dict[str, Any]:
    fields = [{"field": item.field, "rule": item.rule} for item in error.errors]
    first = error.errors[0].field.split(".")[0]
    field = first if first in JobRequest.model_fields else "other"
    record(session, EventKind.REFUSED, source=source.value, field=field)
    audit.append(session, audit.REFUSED, source=source.value, errors=fields, **who)
    return {"reason": Reason.INVALID_REQUEST, "detail": str(error), "result": {"errors": fields}}


def _record_full(session: Session, error: AdmissionRefusedError, *, source: Source) -> dict[str, Any]:
    """Count a job for which there was no headroom. Nothing was decided, so a flood leaves no audit trail."""
    record(session, EventKind.REFUSED, source=source.value, field=error.reason.value)
    result = {"retry_after_seconds": error.retry_after_seconds}
    return {"reason": error.reason, "detail": str(error), "result": result}


def _rejected_row(job_id: UUID, tenant: str, *, reason: Reason, detail: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a refused Celery message: its sender can look it up only by its task id."""
    return {
        "id": job_id,
        "tenant": tenant,
        "source": Source.CELERY.value,
        "requested_by": f"{Source.CELERY.value}:{tenant}",
        "state": State.REJECTED.value,
        "prompt": "",
        "request": {},
        "request_digest": "",
        "priority": "P2",
        "root_id": job_id,
        "route": {},
        "queue": QueueName.INTAKE.value,
        "fence": 0,
        "lost_attempts": 0,
        "cap_nanousd": 0,
        "reason": reason.value,
        "detail": detail,
        "result": result,
        "ended_at": now(),
    }
