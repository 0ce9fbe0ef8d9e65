"""What is kept of a request that is not taken in: the refusal and its reason; at the Celery door a row that says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session

from monitoring.errors import IdempotencyConflictError
from monitoring.ledger import audit
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.sql import now
from monitoring.ledger.tables import Job, Tenant
from producers.errors import AdmissionRefusedError, LedgerAwayError
from routing.errors import InvalidJobError
from routing.jobs import Door, JobRequest, Reason, State
from routing.queues import QueueName

Refusal = InvalidJobError | IdempotencyConflictError | AdmissionRefusedError | LedgerAwayError
"""Why a request is not taken in, of which nothing else was written."""


class Refused(NamedTuple):
    """A request that was not taken in."""

    error: Refusal
    job_id: UUID | None = None
    """The id that its sender at the Celery door gave it, under which it finds the refusal."""


def record_refusals(session: Session, refused: Iterable[Refused], *, tenant: str, door: Door) -> None:
    """Put refusals on record; of a tenant that there is not nothing is written, and neither of a key's conflict."""
    if session.get(Tenant, tenant) is None:
        return
    for error, job_id in refused:
        if isinstance(error, InvalidJobError):
            row = _record_invalid(session, error, tenant=tenant, door=door)
        elif isinstance(error, AdmissionRefusedError):
            row = _record_full(session, error, door=door)
        else:
            continue
        if door is Door.CELERY and job_id is not None:
            session.execute(insert(Job).values(_rejected_row(job_id, tenant, **row)).on_conflict_do_nothing())


def _record_invalid(session: Session, error: InvalidJobError, *, tenant: str, door: Door) -> dict[str, Any]:
    fields = [{"field": item.field, "rule": item.rule} for item in error.errors]
    first = error.errors[0].field.split(".")[0]
    known = first if first in JobRequest.model_fields else "other"
    record(session, EventKind.REFUSED, door=door.value, field=known)
    audit.append(session, "job_refused", actor=f"tenant:{tenant}", tenant=tenant, door=door.value, errors=fields)
    detail = "; ".join(f"{item['field']}: {item['rule']}" for item in fields)
    return {"reason": Reason.INVALID_REQUEST, "detail": detail, "result": {"errors": fields}}


def _record_full(session: Session, error: AdmissionRefusedError, *, door: Door) -> dict[str, Any]:
    """Count a job for which there was no room. A flood of them leaves no audit trail: nothing was decided."""
    record(session, EventKind.REFUSED, door=door.value, field=error.reason.value)
    told = {"retry_after_seconds": error.retry_after_seconds}
    return {"reason": error.reason, "detail": str(error), "result": told}


def _rejected_row(job_id: UUID, tenant: str, *, reason: Reason, detail: str, result: dict[str, Any]) -> dict[str, Any]:
    """A caller at the Celery door has nothing but its task id: the refusal stands under that id, if it is free."""
    return {
        "id": job_id,
        "tenant": tenant,
        "door": Door.CELERY.value,
        "requested_by": f"{Door.CELERY.value}:{tenant}",
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
