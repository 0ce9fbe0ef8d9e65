"""What a message at the Celery door means: any client sends `pointsman.submit` to queue `intake` with JSON kwargs.

The message's task id is the job's id and its idempotency key, so a client finds its job by the id it already has, and
a message that is taken in twice is one job.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import NoReturn
from uuid import UUID

from monitoring import traces
from monitoring.errors import IdempotencyConflictError
from producers.celery_message import CeleryMessage
from producers.errors import AdmissionRefusedError, UnknownTenantError
from producers.submit import Submitter
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Door, check_site_name

logger = logging.getLogger(__name__)

_FACTS: traces.Facts = {
    "messaging.system": "celery", "messaging.operation.type": "receive", "messaging.destination.name": "intake",
}  # fmt: skip


def take_in(message: CeleryMessage, submitter: Submitter, *, tenant: str | None = None) -> None:
    """Submit what a Celery message carries; a refusal becomes a `rejected` row under the task's id.

    Args:
        message: as its client made it.
        submitter: takes it in.
        tenant: whose own door it stood at; None for the shared one, where a message names its tenant.
    """
    fields = message.job_fields()
    named = str(fields.pop("tenant", tenant or ""))
    if tenant is None:
        tenant = named
    if not _can_be_tenant(tenant):  # the rule for tenants, too; and nothing else may reach the ledger
        logger.warning("intake_refused", extra={"rule": "unknown tenant"})
        return
    try:
        job_id = UUID(message.id)
    except ValueError:
        logger.warning("intake_refused", extra={"rule": "the task id must be a UUID"})
        refusal = InvalidJobError((FieldError("id", "the task id must be a UUID"),))
        submitter.record_refusal(refusal, tenant=tenant, door=Door.CELERY)
        return
    try:
        if named != tenant:
            _refuse_stranger(tenant, job_id=job_id, submitter=submitter)
        with traces.begin("receive intake", message.traceparent, kind=traces.Kind.CONSUMER, facts=_FACTS):
            _submit(message, fields, tenant=tenant, job_id=job_id, submitter=submitter)
    except InvalidJobError as error:
        logger.info("intake_refused", extra={"job_id": str(job_id), "fields": [item.field for item in error.errors]})
    except AdmissionRefusedError as error:
        logger.info("intake_full", extra={"job_id": str(job_id), "retry_after_seconds": error.retry_after_seconds})
    except UnknownTenantError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "unknown tenant"})
    except IdempotencyConflictError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "task id used with another body"})


def _can_be_tenant(name: str) -> bool:
    try:
        check_site_name(name)
    except ValueError:
        return False
    return True


def _refuse_stranger(tenant: str, *, job_id: UUID, submitter: Submitter) -> NoReturn:
    error = InvalidJobError((FieldError("tenant", "is not the tenant of this queue; leave it out"),))
    submitter.record_refusal(error, tenant=tenant, door=Door.CELERY, job_id=job_id)
    raise error


def _submit(
    message: CeleryMessage, fields: dict[str, object], *, tenant: str, job_id: UUID, submitter: Submitter
) -> None:  # fmt: skip
    try:
        message.check_expiry(datetime.now(UTC))
    except InvalidJobError as error:
        submitter.record_refusal(error, tenant=tenant, door=Door.CELERY, job_id=job_id)
        raise
    submitter.submit(fields, tenant=tenant, door=Door.CELERY, job_id=job_id)
