"""The Celery door: any Celery client sends `pointsman.submit` to queue `intake` with plain JSON kwargs.

The message's task id is the job's id and its idempotency key, so a client finds its job by the id it already has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from celery import Celery
from celery.app.task import Task
from sqlalchemy.exc import InterfaceError, OperationalError

from monitoring.errors import IdempotencyConflictError
from monitoring.ledger.store import Ledger
from producers.errors import AdmissionRefusedError, UnknownTenantError
from producers.publisher import Publisher
from producers.submit import Environment, Submitter
from routing.errors import InvalidJobError
from routing.jobs import Door
from routing.policy import Policy
from routing.tiers import QueueName, TaskName
from routing.vocabularies import Vocabularies

logger = logging.getLogger(__name__)

LEDGER_PAUSE_SECONDS = 2.0
"""How long a message is held before it goes back to the broker while the ledger is away."""


def register_tasks(
    app: Celery, *, ledger: Callable[[], Ledger], policy: Policy, environment: Environment,
    vocabularies: Vocabularies | None = None, **_: Any,
) -> None:  # fmt: skip
    """Register the intake task on an application.

    Args:
        app: the worker's application.
        ledger: opens the ledger, after the fork.
        policy: the platform's policy; the task's time limits are those of queue `intake`.
        environment: switches that are read for every decision.
        vocabularies: the words that routing looks for; the shipped ones by default.
        _: resources that only other providers need.
    """
    limits = policy.queues[QueueName.INTAKE]
    publisher = Publisher(app)

    @app.task(
        name=TaskName.SUBMIT.value, bind=True, shared=False,
        soft_time_limit=limits.soft_seconds, time_limit=limits.hard_seconds,
    )  # fmt: skip
    def submit(task: Task, /, **kwargs: Any) -> None:
        submitter = Submitter(
            ledger(), publisher, policy, environment=environment, vocabularies=vocabularies
        )  # fmt: skip
        try:
            take_in(kwargs, task_id=str(task.request.id), submitter=submitter)
        except (OperationalError, InterfaceError) as error:
            # The message was acknowledged when it came: no row holds the job yet, and nobody else has it.
            logger.warning("intake_delayed", extra={"job_id": str(task.request.id), "error": type(error).__name__})
            time.sleep(LEDGER_PAUSE_SECONDS)
            raise task.retry(countdown=0, max_retries=None) from None


def take_in(kwargs: dict[str, Any], *, task_id: str, submitter: Submitter) -> None:
    """Submit what a Celery message carries; a refusal becomes a `rejected` row under the task's id."""
    tenant = str(kwargs.pop("tenant", ""))
    try:
        job_id = UUID(task_id)
    except ValueError:
        logger.warning("intake_refused", extra={"rule": "the task id must be a UUID"})
        return
    try:
        submitter.submit(kwargs, tenant=tenant, door=Door.CELERY, job_id=job_id)
    except InvalidJobError as error:
        logger.info("intake_refused", extra={"job_id": str(job_id), "fields": [item.field for item in error.errors]})
    except AdmissionRefusedError as error:
        logger.info("intake_full", extra={"job_id": str(job_id), "retry_after_seconds": error.retry_after_seconds})
    except UnknownTenantError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "unknown tenant"})
    except IdempotencyConflictError:
        logger.warning("intake_refused", extra={"job_id": str(job_id), "rule": "task id used with another body"})
