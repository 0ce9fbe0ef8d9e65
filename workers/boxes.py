"""Where a handler gets a box from: this process's pool, or nowhere, which is then said in words that help.

A module that every worker may import: what talks to an engine is loaded when the first box is wanted, so workers of the
other queues never load it (H-088, H-119).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sandbox.box import Box
from sandbox.errors import SandboxUnavailableError


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

    def close(self) -> None:
        """Nothing is ready."""


class PoolOnDemand:
    """This process's pool, opened when the first box is wanted: an engine that is away must not stop a worker."""

    def __init__(self, open_pool: Callable[[], BoxPool]) -> None:
        self._open_pool = open_pool
        self._pool: BoxPool | None = None

    def acquire(self) -> Box:
        """See `Boxes`."""
        if self._pool is None:
            self._pool = self._open_pool()
        return self._pool.acquire()

    def close(self) -> None:
        """Destroy what is ready. May be called again."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
