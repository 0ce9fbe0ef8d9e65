"""kombu's Redis transport with one client for each channel, and queues that give their messages away for good.

kombu makes a client for every message that it pushes, acknowledges or restores, and each begins with a table of how to
read 170 answers: more work than the message itself. A client has no connection of its own, it takes one from its pool
for each command; so threads may share it, and it serves for as long as the pool does.

Nor does it leave out acknowledging where a queue wants none: what was never noted as delivered is dropped from that
note all the same, in a transaction of its own for each message.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis


class Channel(redis.Channel):
    """A channel whose commands go through the client that it made first for its pool."""

    _kept: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:  # for waiting: its pool tells the poller, and kombu keeps this one itself
            return redis.Channel._create_client(self, asynchronous=True)
        if self._kept is None or self._kept.connection_pool is not self.pool:
            self._kept = redis.Channel._create_client(self)
        return self._kept

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message, if its queue waits for that."""
        if self._is_awaited(delivery_tag):
            redis.Channel.basic_ack(self, delivery_tag, multiple=multiple)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Reject a message, if its queue waits for that."""
        if self._is_awaited(delivery_tag):
            redis.Channel.basic_reject(self, delivery_tag, requeue=requeue)

    def _is_awaited(self, delivery_tag: str) -> bool:
        try:
            self.qos.get(delivery_tag)
        except KeyError:
            return False
        return True


class Transport(redis.Transport):
    """Takes the URLs that kombu's own does."""

    Channel = Channel
