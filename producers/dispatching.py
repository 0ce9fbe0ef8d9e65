"""The dispatcher's process: rounds until it is told to stop, woken by the ledger; and what is delivered beside them."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Protocol

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy.exc import SQLAlchemyError

from monitoring.heartbeat import beat
from monitoring.ledger.events import WORK_CHANNEL
from monitoring.ledger.store import SILENCE
from producers.config import DispatcherConfig
from producers.dispatcher import Dispatcher, contained

logger = logging.getLogger(__name__)

_BEAT_SECONDS = 5.0


class DispatcherLoop:
    """Runs a dispatcher until it is told to stop; a failing ledger or broker is waited for."""

    def __init__(self, dispatcher: Dispatcher, *, ledger_url: str, config: DispatcherConfig) -> None:
        self._dispatcher = dispatcher
        self._ledger_url = ledger_url
        self._config = config
        self._stopping = threading.Event()
        self._shown_at = -math.inf

    def stop(self, signum: int = 0, frame: FrameType | None = None) -> None:
        """Stop after the current round."""
        self._stopping.set()

    def run(self) -> None:
        """Run until stopped by SIGTERM or SIGINT."""
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        while not self._stopping.is_set():
            try:
                self._listen()
            except (psycopg.Error, SQLAlchemyError):
                logger.warning("ledger_unreachable", exc_info=True)
                self._stopping.wait(self._config.tick_seconds)
        try:
            self._dispatcher.resign()
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")

    def _listen(self) -> None:
        with psycopg.connect(
            make_conninfo(self._ledger_url, **SILENCE), autocommit=True, connect_timeout=5
        ) as connection:
            connection.execute(f"LISTEN {WORK_CHANNEL}".encode())
            is_leader, tick_at = False, -math.inf
            while not self._stopping.is_set():
                began = time.monotonic()
                if is_leader and began < tick_at:
                    is_leader = self._dispatcher.run_woken()
                    self._stopping.wait(self._dispatcher.rest_seconds)
                else:
                    is_leader, tick_at = self._dispatcher.run_once(), began + self._config.tick_seconds
                self._show_life()
                if self._dispatcher.has_more:
                    tick_at = began
                # What came in during the round is read in one go; who does not lead has nothing to be woken for.
                pause = max(0.0, tick_at - time.monotonic())
                for _ in connection.notifies(timeout=pause, stop_after=1 if is_leader else None):
                    pass

    def _show_life(self) -> None:
        """Say that a round came to its end, as the leader or behind one; a disk that is full stops no round."""
        if self._config.heartbeat is None or time.monotonic() - self._shown_at < _BEAT_SECONDS:
            return
        self._shown_at = time.monotonic()
        with suppress(OSError):
            beat(self._config.heartbeat)


class Deliverer(Protocol):
    """Sends what the ledger owes somebody outside."""

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send what is due; returns how much was tried."""


def deliver(sender: Deliverer, stopping: threading.Event, *, tick_seconds: float) -> None:
    """Deliver what is owed until told to stop: in threads, since a slow receiver must hold up nothing.

    One at a time in each, so that a stop waits for one receiver at most.
    """
    while not stopping.wait(tick_seconds):
        try:
            with contained(type(sender).__name__):
                while not stopping.is_set() and sender.deliver_due(limit=1):
                    pass
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")
