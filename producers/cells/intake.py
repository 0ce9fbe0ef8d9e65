"""Forward Celery messages that have come to a cell which does not have their tenant.

A client may send to the broker of any cell, so that Celery needs no router. A message is set aside, one list for each
cell, until that cell has taken it in, as a broker that dies may lose what it has been given. A crash at any point makes
it two messages of one job, as its id is the task's.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from redis import Redis
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from ledger.cells.directory import Directory
from producers.dispatch.containment import surviving
from producers.dispatch.redis_client import open_broker
from producers.errors import ElsewhereError

logger = logging.getLogger(__name__)

REST_SECONDS = 10.0
"""How long a server that did not answer is left alone: only one message of so many waits for its timeout."""
WINDOW = 100
"""So many messages at most lie in another cell's broker without being taken in."""
_TICK_SECONDS = 0.25
_FORWARDED = "pointsman:intake:forwarded:"
_KEEP_SECONDS = 86_400

_HAND_OVER = """
if redis.call('SET', KEYS[2], '1', 'NX', 'EX', ARGV[2]) then
  redis.call('LPUSH', KEYS[1], ARGV[1])
elseif not redis.call('LPOS', KEYS[1], ARGV[1], 'RANK', -1) then
  return redis.call('DEL', KEYS[2])
end
return 0
"""
"""Puts a message onto a list, once; returns 1 when it has been taken from there. A broker that has lost the message has
lost its mark with it, and gets both again."""


def _waiting_for(cell: str) -> str:
    return f"pointsman:intake:for:{cell}"


class Forwarder:
    """Hands messages to the cells that the directory names; `celery_intake.Forward`."""

    def __init__(self, directory: Directory, *, cell: str, broker_url: str, tls: Mapping[str, Any]) -> None:
        self._directory = directory
        self._cell = cell
        self._tls = tls
        self._own = open_broker(broker_url, tls=tls)
        self._brokers: dict[str, Redis] = {}
        self._rests_until: dict[str, float] = {}
        """By a cell's name, the own one for the directory, in monotonic seconds."""
        self._cells: set[str] = set()
        """Those for which messages may have been set aside."""
        self._has_asked = False
        """Whether those are among them for which an earlier process may have done it."""

    def __call__(self, tenant: str, list_name: str, body: bytes) -> bool:
        """Set a message of a list aside for its tenant's cell; False where that is this one, or none."""
        if self._rests(self._cell):
            raise ElsewhereError
        try:
            place = self._directory.place_of(tenant)
        except SQLAlchemyError as error:
            self._let_rest(self._cell, error)
            raise ElsewhereError from error
        if place is None or place.cell == self._cell:
            return False
        self._own.lpush(_waiting_for(place.cell), b"\n".join((list_name.encode(), body)))
        self._cells.add(place.cell)
        return True

    def serve(self, stopping: threading.Event) -> None:
        """Hand over what has been set aside, until stopped."""
        while not stopping.wait(_TICK_SECONDS):
            with surviving("forwarding"):
                self.hand_over()

    def hand_over(self) -> None:
        """Hand the oldest messages over, and remove what the other cells have taken in."""
        if not self._has_asked and not self._rests(self._cell):
            try:
                self._cells |= self._directory.look_up().cells.keys()
                self._has_asked = True
            except SQLAlchemyError as error:
                self._let_rest(self._cell, error)
        for cell in tuple(self._cells):
            while not self._rests(cell) and self._hand_over(cell):
                pass

    def _hand_over(self, cell: str) -> bool:
        """Whether there may be more to do at once."""
        try:
            waiting: list[bytes] = self._own.lrange(_waiting_for(cell), -WINDOW, -1)  # type: ignore[assignment]
            if not waiting:
                return False
            with self._broker(cell).pipeline(transaction=False) as pipe:
                for each in waiting:
                    list_name, _, body = each.partition(b"\n")
                    mark = _FORWARDED + hashlib.sha256(each).hexdigest()
                    pipe.eval(_HAND_OVER, 2, list_name, mark, body, _KEEP_SECONDS)
                taken = pipe.execute()
            for each, is_taken in zip(waiting, taken, strict=True):
                if is_taken:
                    self._own.lrem(_waiting_for(cell), -1, each)  # type: ignore[arg-type]
        except (SQLAlchemyError, RedisError) as error:
            self._let_rest(cell, error)
            return False
        return any(taken)

    def _broker(self, cell: str) -> Redis:
        url = self._directory.cell(cell).broker_url
        if url not in self._brokers:
            self._brokers[url] = open_broker(url, tls=self._tls if url.startswith("rediss:") else {})
        return self._brokers[url]

    def _rests(self, cell: str) -> bool:
        return time.monotonic() < self._rests_until.get(cell, 0.0)

    def _let_rest(self, cell: str, error: Exception) -> None:
        logger.warning("forwarding_waits", extra={"cell": cell, "error": type(error).__name__})
        self._rests_until[cell] = time.monotonic() + REST_SECONDS

    def close(self) -> None:
        """Close the connections to brokers."""
        for broker in (self._own, *self._brokers.values()):
            broker.close()
