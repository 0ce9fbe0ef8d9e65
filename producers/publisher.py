"""Put messages on the broker by task name: no worker code is imported, and only ids travel."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import ResponseError

from monitoring import traces
from monitoring.ledger.runway import Push
from producers.errors import PublishError
from routing.jobs import JobMessage
from routing.tiers import TASK_OF_QUEUE, Limits
from routing.topology import list_of

REST_SECONDS = 2.0
"""While the broker does not answer nothing is sent for so long: the first caller has paid for all that come then."""


def message_id(push: Push) -> str:
    """Return the broker message's id: the same job pushed twice with one fence is the same message."""
    return f"{push.job_id}/{push.fence}"


class Publisher:
    """Publishes with bounded waits: a dead broker costs seconds, never a hang (docs/pitfalls.md, 18)."""

    def __init__(self, app: Celery, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._rests_until = float("-inf")

    def push(self, push: Push, *, limits: Limits) -> None:
        """Send one job's message to its queue, with the time limits that hold for its tenant.

        Raises:
            PublishError: nobody's fault: the broker is away, or was a moment ago; or it refused this one message.
        """
        if self._clock() < self._rests_until:
            raise PublishError("the broker did not answer a moment ago")
        try:
            with _traced(push):
                self._send(push, limits)
        except (OperationalError, OSError) as error:
            if not isinstance(error.__cause__, ResponseError):  # a refusal costs no time, and other queues may be well
                self._rests_until = self._clock() + REST_SECONDS
            raise PublishError(str(error)) from error

    def _send(self, push: Push, limits: Limits) -> None:
        message = JobMessage(job_id=push.job_id, fence=push.fence)
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


def _traced(push: Push) -> AbstractContextManager[traces.Span]:
    """Trace a push for the job's sake; its message carries nothing of that, for the claim finds it in the row."""
    if not traces.is_on():
        return traces.UNRECORDED
    facts = {
        "messaging.system": "celery", "messaging.operation.type": "send", "messaging.message.id": message_id(push),
        "messaging.destination.name": push.queue.value, "pointsman.job.id": str(push.job_id),
        "pointsman.tenant": push.tenant,
    }  # fmt: skip
    return traces.of_job(f"send {push.queue.value}", push.trace, kind=traces.Kind.PRODUCER, facts=facts)
