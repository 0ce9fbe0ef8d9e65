"""A worker that is told to stop takes no new work, lets running jobs end, and hands back what would take too long.

Celery's own warm shutdown does the first two and waits without limit; its soft and cold shutdowns know nothing of the
ledger, do not watch time limits meanwhile, and kill without a group (docs/pitfalls.md, 6). So SIGTERM stays warm, and
when the grace is over this module asks the pool children to let go of their jobs; what does not listen is killed.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import psutil

from workers.interrupts import HAND_BACK_SIGNAL

logger = logging.getLogger(__name__)

LET_GO_SECONDS = 10.0
"""How long a job may take to let go of what it holds, a box above all, once its worker's grace is over."""
_ASK_SECONDS = 0.25
"""Between two times of asking: a child that is just claiming a job hears it the next time."""


class Stopping:
    """The end of a worker's life, in its parent process."""

    def __init__(self, *, grace_seconds: float, hand_back: Callable[[], None]) -> None:
        self._grace_seconds = grace_seconds
        self._hand_back = hand_back
        self._at_once = threading.Event()
        self._is_grace_over = False
        self._thread: threading.Thread | None = None

    @property
    def is_grace_over(self) -> bool:
        """Whether pool children are being ended: one that dies before that died of its job."""
        return self._is_grace_over

    def finish(self) -> None:
        """Wait until what this worker held is given back: called when the pool has ended, before the process does."""
        if self._thread is not None and self._is_grace_over:
            self._thread.join(timeout=LET_GO_SECONDS)

    def on_ready(self, **_: Any) -> None:
        """Let SIGQUIT mean: without any grace. Called when Celery has installed its own handlers."""
        signal.signal(signal.SIGQUIT, self._stop_at_once)

    def on_shutting_down(self, **_: Any) -> None:
        """Start the grace. Called in the main thread, each time a signal tells the worker to stop."""
        for signum in (signal.SIGQUIT, signal.SIGINT):
            signal.signal(signum, self._stop_at_once)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stopping", daemon=True)
            self._thread.start()

    def _stop_at_once(self, signum: int, frame: FrameType | None) -> None:
        self._at_once.set()
        os.kill(os.getpid(), signal.SIGTERM)

    def _run(self) -> None:
        """End every pool child that is left after the grace. The process ends when they have, and this with it."""
        self._at_once.wait(self._grace_seconds)
        self._is_grace_over = True
        logger.warning("grace_is_over")
        deadline = time.monotonic() + LET_GO_SECONDS
        while (children := psutil.Process().children()) and time.monotonic() < deadline:
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.send_signal(HAND_BACK_SIGNAL)
            time.sleep(_ASK_SECONDS)
        for child in psutil.Process().children():
            logger.warning("pool_child_killed", extra={"pid": child.pid})
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        self._hand_back()
