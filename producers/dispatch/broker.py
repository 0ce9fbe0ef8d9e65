"""Publish jobs by task name, without worker code and with ids only, and read the broker's lists."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import MappingProxyType
from typing import Any

from celery import Celery
from kombu.exceptions import BatchPublishError, OperationalError
from kombu.messaging import Producer
from redis.exceptions import ConnectionError as LostConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as SlowBrokerError

from ledger.dispatch_window import Push
from monitoring import traces
from producers.dispatch.redis_client import open_broker
from producers.errors import PublishError
from routing.broker import PUBLISH_RETRY, list_of
from routing.jobs import JobMessage
from routing.queues import QUEUES, Limits, QueueName

REST_SECONDS = 2.0
"""How long nothing is sent after the broker did not answer: only the first caller waits for its timeout."""


def message_id(push: Push) -> str:
    """Return the message id: a job pushed twice with one fence is the same message."""
    return f"{push.job_id}/{push.fence}"


class Publisher:
    """Publishes with bounded waits: a dead broker costs seconds, never a hang (docs/pitfalls.md, 18)."""

    def __init__(self, app: Celery, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._rests_until = float("-inf")

    def push(self, push: Push, *, limits: Limits) -> None:
        """Send one job's message, as `push_all` does."""
        self.push_all([(push, limits)])

    def push_all(self, pushes: Sequence[tuple[Push, Limits]]) -> None:
        """Send jobs' messages in one batch, each with its tenant's time limits.

        Raises:
            PublishError: nobody's fault: the broker is away, was so a moment ago, or refused a message. It may have
                taken some of them.
        """
        if self._clock() < self._rests_until:
            raise PublishError("the broker did not answer a moment ago")
        try:
            with ExitStack() as spans, self._app.producer_or_acquire() as producer:
                for push, _ in pushes:
                    spans.enter_context(_traced(push))
                # A message sent twice is refused at the claim: its fence is used up.
                producer.connection.ensure(producer, self._send, **PUBLISH_RETRY)(producer, pushes)
        except (OperationalError, BatchPublishError, OSError) as error:
            if not isinstance(error.__cause__, ResponseError):  # a refusal costs no time and concerns one queue
                self._rests_until = self._clock() + REST_SECONDS
            raise PublishError(str(error)) from error

    def _send(self, producer: Producer, pushes: Sequence[tuple[Push, Limits]]) -> None:
        producer.connection.ensure_connection(**PUBLISH_RETRY)
        try:
            with producer.batch():
                for push, limits in pushes:
                    headers, properties, body, _ = self._message(push, limits)
                    producer.publish(
                        body,
                        exchange="",
                        routing_key=list_of(push.queue),
                        serializer="json",
                        headers=headers,
                        **properties,
                    )
        except BatchPublishError as error:
            if isinstance(error.__cause__, LostConnectionError | SlowBrokerError):
                raise error.__cause__ from None  # kombu retries a lost connection
            raise

    def _message(self, push: Push, limits: Limits) -> Any:
        """Return what Celery's `send_task` would send, without results and events, which nothing here uses."""
        message = JobMessage(job_id=push.job_id, fence=push.fence)
        return self._app.amqp.create_task_message(
            message_id(push),
            QUEUES[push.queue].task,
            [message.model_dump(mode="json")],
            soft_time_limit=limits.soft_seconds,
            time_limit=limits.hard_seconds,
            ignore_result=True,
            argsrepr="-",
            kwargsrepr="-",
        )


def _traced(push: Push) -> AbstractContextManager[traces.Span]:
    """Trace a push within its job's trace; the message carries no trace, the claim reads it from the row."""
    if not traces.is_on():
        return traces.UNRECORDED
    facts = {
        "messaging.system": "celery",
        "messaging.operation.type": "send",
        "messaging.message.id": message_id(push),
        "messaging.destination.name": push.queue.value,
        "pointsman.job.id": str(push.job_id),
        "pointsman.tenant": push.tenant,
    }
    return traces.of_job(f"send {push.queue.value}", push.trace, kind=traces.Kind.PRODUCER, facts=facts)


LONGEST_LIST = 1_000
"""Messages read of one queue: far more than any dispatch window holds."""


class BrokerLists:
    """Reads the queues' lists."""

    def __init__(self, url: str, *, tls: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._redis = open_broker(url, tls=tls)

    def message_ids(self, queue: QueueName) -> frozenset[str]:
        """Return the ids of the messages on a queue's list."""
        bodies = self._redis.lrange(list_of(queue), 0, LONGEST_LIST)
        assert isinstance(bodies, Sequence)
        return frozenset(_id_of(body) for body in bodies)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


def _id_of(body: bytes | str) -> str:
    try:
        return str(json.loads(body)["headers"]["id"])
    except (ValueError, KeyError, TypeError):
        return ""
