"""Forward a Celery message that has come to a cell which does not have its tenant.

A client may send to the broker of any cell, so that Celery needs no router. A message is put onto the other cell's
list before it is removed from this one: a crash in between makes it two messages of one job, as its id is the task's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from ledger.cells.directory import Directory
from producers.dispatch.redis_client import open_broker
from producers.errors import ElsewhereError

_REST_SECONDS = 10.0
"""How long a server that did not answer is left alone: only one message of so many waits for its timeout."""
_DIRECTORY = ""


class Forwarder:
    """Hands messages to the cells that the directory names; `celery_intake.Forward`."""

    def __init__(self, directory: Directory, *, cell: str, tls: Mapping[str, Any]) -> None:
        self._directory = directory
        self._cell = cell
        self._tls = tls
        self._brokers: dict[str, Redis] = {}
        self._rests_until: dict[str, float] = {}
        """By a broker's URL, in monotonic seconds."""

    def __call__(self, tenant: str, list_name: str, body: bytes) -> bool:
        """Put a message onto the same list of its tenant's cell; False where that is this one, or none."""
        server = _DIRECTORY
        try:
            self._check(server)
            place = self._directory.place_of(tenant)
            if place is None or place.cell == self._cell:
                return False
            server = url = self._directory.cell(place.cell).broker_url
            self._check(server)
            if url not in self._brokers:
                self._brokers[url] = open_broker(url, tls=self._tls if url.startswith("rediss:") else {})
            self._brokers[url].lpush(list_name, body)
        except (SQLAlchemyError, RedisError) as error:
            self._rests_until[server] = time.monotonic() + _REST_SECONDS
            raise ElsewhereError from error
        return True

    def _check(self, server: str) -> None:
        if time.monotonic() < self._rests_until.get(server, 0.0):
            raise ElsewhereError

    def close(self) -> None:
        """Close the connections to other cells' brokers."""
        for broker in self._brokers.values():
            broker.close()
