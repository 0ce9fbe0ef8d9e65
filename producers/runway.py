"""The broker as it is without Celery: what stands on its short lists is read, never changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from redis import Redis

from routing.queues import QueueName
from routing.topology import list_of

LONGEST_LIST = 1_000
"""Messages of one queue that are looked at: far above any runway."""


def open_broker(url: str, *, tls: Mapping[str, Any] = MappingProxyType({}), timeout_seconds: float = 5) -> Redis:
    """Return a client of the broker, for what Celery has no words for.

    Args:
        url: where the broker is.
        tls: of the broker's settings.
        timeout_seconds: for connecting, and for each answer.
    """
    opened: Redis = Redis.from_url(
        url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds, **tls
    )  # fmt: skip
    return opened


class BrokerLists:
    """A look at the queues' lists, for the dispatcher."""

    def __init__(self, url: str, *, tls: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._redis = open_broker(url, tls=tls)

    def message_ids(self, queue: QueueName) -> frozenset[str]:
        """Return the ids of the messages that stand on a queue's list."""
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
