"""A worker's heartbeats: a row in the ledger for operators and autoscalers, and a file for `pointsman worker --check`.

Both come from the consumer's event loop while it is connected: a worker that answers but consumes nothing falls silent
(docs/pitfalls.md, 8). The parent process writes the row in a thread, so that a slow ledger delays no job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import Celery, bootsteps
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session

from ledger.events import EventKind, record
from ledger.operations.workers import BEAT_SECONDS, WorkerStatus, record_heartbeat, remove_worker
from ledger.store import Ledger
from monitoring.heartbeat import SILENT_SECONDS
from routing.queues import QueueName

logger = logging.getLogger(__name__)

_LEAVE_SECONDS = 2.0
"""How long a stopping worker waits for its last heartbeat."""


class WorkerHeartbeat:
    """One worker's row in the registry, maintained by its parent process."""

    def __init__(
        self, open_ledger: Callable[[], Ledger], sign: WorkerStatus, *, every_seconds: float = BEAT_SECONDS
    ) -> None:
        self._open_ledger = open_ledger
        self._sign = sign
        self._every_seconds = every_seconds
        self._pulsed_at = time.monotonic()
        self._dropped: deque[QueueName] = deque()
        """The queues of dropped messages that no event tells of yet."""
        self._is_known = False
        self._is_draining = False
        self._is_over = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def worker(self) -> str:
        """The worker's name."""
        return self._sign.id

    def pulse(self) -> None:
        """Note that the consumer is alive. Called by its event loop."""
        self._pulsed_at = time.monotonic()

    def on_ready(self, **_: Any) -> None:
        """Start. Called in the parent when the worker can consume; its pool has been forked by then."""
        self.pulse()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def on_shutting_down(self, **_: Any) -> None:
        """Report at once that the worker drains. Called when a signal tells it to stop."""
        self._is_draining = True
        self._wake.set()

    def on_dropped(self, queue: QueueName, **_: Any) -> None:
        """Count a message that is none of the fleet's, with the next heartbeat: there may be thousands of them."""
        self._dropped.append(queue)

    def leave(self) -> None:
        """Sign off, and wait for that. Called when the pool has ended, before the process does."""
        if self._thread is None:
            return
        self._is_over = True
        self._wake.set()
        self._thread.join(timeout=_LEAVE_SECONDS)

    def _run(self) -> None:
        while not self._is_over:
            if self._is_draining or time.monotonic() - self._pulsed_at <= SILENT_SECONDS:
                self._is_known |= self.tell(self._sign_in)
            self._tell_dropped()
            self._wake.wait(self._every_seconds)
            self._wake.clear()
        self._tell_dropped()
        self.tell(
            lambda session: remove_worker(session, self.worker)
        )  # after the last heartbeat, however long that took

    def _sign_in(self, session: Session) -> None:
        record_heartbeat(session, self._sign, is_first=not self._is_known, is_draining=self._is_draining)

    def _tell_dropped(self) -> None:
        counts = Counter(tuple(self._dropped))
        if counts and self.tell(partial(_record_dropped, counts=counts)):
            for _ in range(counts.total()):
                self._dropped.popleft()

    def tell(self, what: Callable[[Session], object]) -> bool:
        """Write to the ledger over a connection of its own; False when it is unreachable."""
        ledger = self._open_ledger()
        try:
            with ledger.begin() as session:
                what(session)
        except SQLAlchemyError:
            logger.warning("ledger_unreachable")  # the next heartbeat follows soon, and leases expire by themselves
            return False
        finally:
            ledger.close()
        return True


def _record_dropped(session: Session, *, counts: Counter[QueueName]) -> None:
    for queue, messages in counts.items():
        record(session, EventKind.DROPPED, queue=queue.value, messages=messages)


FILE_BEAT_SECONDS = 5.0


def install_heartbeat(app: Celery, *signs: Callable[[], None]) -> None:
    """Let the consumer of an application's worker call these functions every few seconds while it is connected."""

    class Heartbeat(bootsteps.StartStopStep):  # type: ignore[misc]
        requires = ("celery.worker.consumer.tasks:Tasks",)

        def __init__(self, parent: Any, **_: Any) -> None:
            super().__init__(parent)
            self.timer: Any = None

        def start(self, parent: Any) -> None:
            give_signs()
            self.timer = parent.timer.call_repeatedly(FILE_BEAT_SECONDS, give_signs)

        def stop(self, parent: Any) -> None:
            if self.timer is not None:
                self.timer.cancel()

    def give_signs() -> None:
        for sign in signs:
            sign()

    app.steps["consumer"].add(Heartbeat)
