"""kombu's Redis transport with one client for each channel.

kombu makes a client for every message that it pushes, acknowledges or restores, and each begins with a table of how to
read 170 answers: more work than the message itself. A client has no connection of its own, it takes one from its pool
for each command; so threads may share it, and it serves for as long as the pool does.
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


class Transport(redis.Transport):
    """Takes the URLs that kombu's own does."""

    Channel = Channel
