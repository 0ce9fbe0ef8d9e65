"""Where a handler gets a box from: this process's pool, or nowhere, which is then said in words that help.

A module that every worker may import: what talks to an engine is loaded when the first box is wanted, so workers of the
other queues never load it (H-088, H-119).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from monitoring import traces
from sandbox.box import Box
from sandbox.errors import SandboxError, SandboxUnavailableError

logger = logging.getLogger(__name__)


class Boxes(Protocol):
    """Gives boxes."""

    def acquire(self) -> Box:
        """Return a box that nobody has used.

        Raises:
            SandboxUnavailableError: none can be had here (the operator's fault).
            SandboxStartupError: one could not be started as it has to be.
        """


class BoxPool(Boxes, Protocol):
    """Gives boxes, and keeps some ready until it is closed."""

    def close(self) -> None:
        """Destroy what is ready."""


class NoBoxes:
    """Of a worker whose queues need none."""

    def acquire(self) -> Box:
        """See `Boxes`; there never is one."""
        raise SandboxUnavailableError("not_configured", "this worker serves no queue that works in boxes")

    def prepare(self) -> None:
        """Nothing can be prepared."""

    def close(self) -> None:
        """Nothing is ready."""


class PoolOnDemand:
    """This process's pool, opened once the engine is there: one that is away must not stop a worker."""

    def __init__(self, open_pool: Callable[[], BoxPool]) -> None:
        self._open_pool = open_pool
        self._pool: BoxPool | None = None
        self._lock = threading.Lock()

    def acquire(self) -> Box:
        """See `Boxes`."""
        with traces.span("box open"):
            return self._opened().acquire()

    def prepare(self) -> None:
        """Open the pool in the background, so that the first job finds a box ready."""
        threading.Thread(target=self._try_to_open, name="box-pool-opener", daemon=True).start()

    def _try_to_open(self) -> None:
        try:
            self._opened()
        except SandboxError as error:  # the first job will say so to somebody
            logger.warning("boxes_unavailable", extra={"reason": getattr(error, "reason", type(error).__name__)})

    def _opened(self) -> BoxPool:
        with self._lock:
            if self._pool is None:
                self._pool = self._open_pool()
            return self._pool

    def close(self) -> None:
        """Destroy what is ready. May be called again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
