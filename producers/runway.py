"""What stands on the broker's short lists: read, never changed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from redis import Redis

from routing.tiers import QueueName
from routing.topology import list_of

LONGEST_LIST = 1_000
"""Messages of one queue that are looked at: far above any runway."""


class BrokerLists:
    """A look at the queues' lists, for the dispatcher."""

    def __init__(self, url: str) -> None:
        self._redis: Redis = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)

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
