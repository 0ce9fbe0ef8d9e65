"""Publish jobs by task name, without worker code and with ids only, and read the broker's lists."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from celery import Celery
from celery.utils.nodenames import anon_nodename
from kombu.exceptions import OperationalError
from redis import Redis
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from ledger.dispatch_window import Push
from monitoring import traces
from producers.dispatch.redis_client import open_broker
from producers.errors import PublishError
from routing.broker import PUBLISH_RETRY, list_of
from routing.jobs import MESSAGE_VERSION
from routing.queues import QUEUES, Limits, QueueName

REST_SECONDS = 2.0
"""How long nothing is sent after the broker did not answer: only the first caller waits for its timeout."""


def message_id(push: Push) -> str:
    """Return the message id: a job pushed twice with one fence is the same message."""
    return f"{push.job_id}/{push.fence}"


_MOST_TRIES = Retry(ConstantBackoff(0.1), 1)
"""Of a list's messages: one that arrives twice is refused at the claim, because its fence is used up."""
_MARKS = {"id": "%(id)s", "job_id": "%(job_id)s", "body": "%(body)s", "tag": "%(tag)s"}
_BODY = json.dumps(
    [
        [{"schema_version": MESSAGE_VERSION, "job_id": _MARKS["job_id"], "fence": "%(fence)d"}],
        {},
        {"callbacks": None, "errbacks": None, "chain": None, "chord": None},
    ]
).replace('"%(fence)d"', "%(fence)d")


@lru_cache(maxsize=256)
def _envelope(queue: QueueName, soft_seconds: float, hard_seconds: float) -> str:
    """Return a message as kombu writes what Celery's `send_task` sends, without results and events.

    Body, ids and tag are left to be filled in.
    """
    headers = {
        "lang": "py",
        "task": QUEUES[queue].task,
        "id": _MARKS["id"],
        **dict.fromkeys(("shadow", "eta", "expires", "group", "group_index")),
        "retries": 0,
        "timelimit": [hard_seconds, soft_seconds],
        "root_id": _MARKS["id"],
        "parent_id": None,
        "argsrepr": "-",
        "kwargsrepr": "-",
        "origin": anon_nodename(),
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    properties = {
        "correlation_id": _MARKS["id"],
        "reply_to": "",
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": list_of(queue)},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": _MARKS["tag"],
    }
    encoding = {"content-encoding": "utf-8", "content-type": "application/json"}
    return json.dumps({"body": _MARKS["body"], **encoding, "headers": headers, "properties": properties})


def encode_message(push: Push, limits: Limits) -> str:
    """Return the message that goes to the broker, with its tenant's time limits."""
    body = _BODY % {"job_id": push.job_id, "fence": push.fence}
    return _envelope(push.queue, limits.soft_seconds, limits.hard_seconds) % {
        "id": message_id(push),
        "body": b64encode(body.encode()).decode(),
        "tag": uuid4(),
    }


class Publisher:
    """Publishes with bounded waits: a dead broker costs seconds, never a hang (docs/pitfalls.md, 18)."""

    def __init__(self, app: Celery, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._clock = clock
        self._rests_until = float("-inf")

    def push_all(self, pushes: Sequence[tuple[Push, Limits]]) -> None:
        """Send jobs' messages, those of a queue in one command, each with its tenant's time limits.

        Raises:
            PublishError: nobody's fault: the broker is away, was so a moment ago, or refused a message. It may have
                taken some of them.
        """
        if self._clock() < self._rests_until:
            raise PublishError("the broker did not answer a moment ago")
        lists: dict[str, list[str]] = {}
        for push, limits in pushes:
            lists.setdefault(list_of(push.queue), []).append(encode_message(push, limits))
        refusals: list[ResponseError] = []
        try:
            with ExitStack() as spans:
                if traces.is_on():
                    for push, _ in pushes:
                        spans.enter_context(_traced(push))
                for name, messages in lists.items():
                    try:
                        _MOST_TRIES.call_with_retry(partial(self._send, name, messages), lambda _: None)
                    except ResponseError as refusal:  # it costs no time and concerns one queue
                        refusals.append(refusal)
        except (OperationalError, RedisError, OSError) as error:
            self._rests_until = self._clock() + REST_SECONDS
            raise PublishError(str(error)) from error
        if refusals:
            raise PublishError(str(refusals[0])) from refusals[0]

    def _send(self, name: str, messages: Sequence[str]) -> None:
        self._client.lpush(name, *messages)

    @cached_property
    def _client(self) -> Redis:
        """The client of Celery's own connection, with its TLS and its time-outs; threads share it."""
        connection = self._app.connection_for_write()
        connection.ensure_connection(**PUBLISH_RETRY)
        client: Redis = connection.default_channel.client
        return client


def _traced(push: Push) -> AbstractContextManager[traces.Span]:
    """Trace a push within its job's trace; the message carries no trace, the claim reads it from the row."""
    facts = {
        "messaging.system": "celery",
        "messaging.operation.type": "send",
        "messaging.message.id": message_id(push),
        "messaging.destination.name": push.queue.value,
        "pointsman.job.id": str(push.job_id),
        "pointsman.tenant": push.tenant,
    }
    return traces.of_job(f"send {push.queue.value}", push.trace, kind=traces.Kind.PRODUCER, facts=facts)


SHORT_LIST = 1_000
"""Messages that are read of one queue however narrow its window: copies may stand before them."""


class BrokerLists:
    """Reads the queues' lists."""

    def __init__(self, url: str, *, tls: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._redis = open_broker(url, tls=tls)

    def message_ids(self, queue: QueueName, *, window: int) -> frozenset[str]:
        """Return the ids of the messages on a queue's list, the newest where it has far more than its window."""
        bodies = self._redis.lrange(list_of(queue), 0, max(SHORT_LIST, 2 * window))
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
