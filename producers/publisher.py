"""Put messages on the broker by task name: no worker code is imported, and only ids travel."""

from __future__ import annotations

from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from monitoring.ledger.runway import Push
from producers.errors import PublishError
from routing.jobs import JobMessage
from routing.tiers import TASK_OF_QUEUE, Limits, QueueName, TaskName


def message_id(push: Push) -> str:
    """Return the broker message's id: the same job pushed twice with one fence is the same message."""
    return f"{push.job_id}/{push.fence}"


class Publisher:
    """Publishes with bounded waits: a dead broker costs seconds, never a hang (notes/fleet.md, 18)."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def push(self, push: Push, *, limits: Limits) -> None:
        """Send one job's message to its queue, with the time limits that hold for its tenant.

        Raises:
            PublishError: nobody's fault: the broker is away.
        """
        message = JobMessage(job_id=push.job_id, fence=push.fence)
        self._send(
            TASK_OF_QUEUE[push.queue], [message.model_dump(mode="json")], task_id=message_id(push), queue=push.queue,
            soft_time_limit=limits.soft_seconds, time_limit=limits.hard_seconds,
        )  # fmt: skip

    def admit(self, tenant: str, request: dict[str, Any], *, task_id: str) -> None:
        """Hand a request that came in at a tenant's own door to the intake workers.

        Raises:
            PublishError: nobody's fault: the broker is away.
        """
        self._send(TaskName.ADMIT, [tenant, request], task_id=task_id, queue=QueueName.INTAKE)

    def _send(
        self, task: TaskName, args: list[Any], *, task_id: str, queue: QueueName, **limits: float
    ) -> None:  # fmt: skip
        try:
            self._app.send_task(
                task.value, args=args, task_id=task_id, queue=queue.value, ignore_result=True, argsrepr="-",
                kwargsrepr="-", retry=True, **limits,
            )  # fmt: skip
        except (OperationalError, OSError) as error:
            raise PublishError(str(error)) from error
