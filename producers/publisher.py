"""Put messages on the broker by task name: no worker code is imported, and only ids travel."""

from __future__ import annotations

from celery import Celery
from kombu.exceptions import OperationalError

from monitoring.ledger.runway import Push
from producers.errors import PublishError
from routing.jobs import JobMessage
from routing.tiers import TASK_OF_QUEUE, Limits
from routing.topology import list_of


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
        try:
            self._app.send_task(
                TASK_OF_QUEUE[push.queue].value,
                args=[message.model_dump(mode="json")],
                task_id=message_id(push),
                queue=list_of(push.queue),
                soft_time_limit=limits.soft_seconds,
                time_limit=limits.hard_seconds,
                ignore_result=True,
                argsrepr="-",
                kwargsrepr="-",
                retry=True,
            )
        except (OperationalError, OSError) as error:
            raise PublishError(str(error)) from error
