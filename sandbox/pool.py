"""Keeps a few boxes ready, so that a job does not wait for one to start.

A spare stands on its own network from birth, holds nothing of anybody's, serves one job and never comes back. Where
there is none, or it is not what it was, a cold start takes its place: the pool can make a job faster, never fail it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from sandbox.box import Box, BoxSpec
from sandbox.errors import SandboxError

logger = logging.getLogger(__name__)


class PooledBox(Box, Protocol):
    """A box that can wait."""

    is_warm: bool

    def is_usable(self) -> bool:
        """Return whether it is still what it was when it was made."""


class PooledMaker(Protocol):
    """Makes boxes that can wait."""

    @property
    def spec(self) -> BoxSpec:
        """What they are made from."""

    def create(self) -> PooledBox:
        """Make and start a box; see `BoxMaker.create`."""


Prepare = Callable[[PooledBox], None]
"""Has a new spare do what any job would have it do first; a SandboxError means that it cannot be used."""


class _Spare(NamedTuple):
    box: PooledBox
    digest: str
    born: float


class Pool:
    """Spare boxes of one process; made after the fork, closed before the end."""

    def __init__(
        self,
        maker: PooledMaker,
        *,
        size: int = 1,
        spare_seconds: float = 1800,
        prepare: Prepare = lambda box: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._maker = maker
        self._size = size
        self._spare_seconds = spare_seconds
        self._prepare = prepare
        self._now = now
        self._spares: deque[_Spare] = deque()
        self._lock = threading.Lock()
        self._filler: threading.Thread | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many spares are ready."""
        with self._lock:
            return len(self._spares)

    def acquire(self) -> Box:
        """Return a box that nobody has used, warm if one is ready, and have the next one made meanwhile.

        Raises:
            SandboxUnavailableError: see `BoxMaker.create`.
            SandboxStartupError: see `BoxMaker.create`.
        """
        while (spare := self._take()) is not None:
            is_good = False
            try:
                is_good = self._is_good(spare)
            finally:  # a time limit may strike meanwhile
                if not is_good:
                    spare.box.close()
            if is_good:
                self.fill()
                return spare.box
        box = self._maker.create()
        self.fill()
        return box

    def _take(self) -> _Spare | None:
        with self._lock:
            return self._spares.popleft() if self._spares else None

    def _is_good(self, spare: _Spare) -> bool:
        is_young = self._now() - spare.born < self._spare_seconds
        return is_young and spare.digest == self._maker.spec.digest and spare.box.is_usable()

    def renew(self) -> None:
        """Destroy spares that are not what they were, as after their engine died, and have others made."""
        with self._lock:
            waiting = tuple(self._spares)
        for spare in waiting:
            if not self._is_good(spare) and self._withdraw(spare):
                spare.box.close()
        self.fill()

    def _withdraw(self, spare: _Spare) -> bool:
        """Take a spare out; False when somebody else has."""
        with self._lock:
            if spare not in self._spares:
                return False
            self._spares.remove(spare)
            return True

    def fill(self) -> None:
        """Have missing spares made in the background; returns at once."""
        with self._lock:
            is_busy = self._filler is not None and self._filler.is_alive()
            if self._is_closed or is_busy or len(self._spares) >= self._size:
                return
            self._filler = threading.Thread(target=self._fill, name="box-pool", daemon=True)
            self._filler.start()

    def _fill(self) -> None:
        while self._is_wanted():
            try:
                box = self._make()
            except SandboxError as error:  # the next cold start will say the same to somebody who can act on it
                logger.warning("spare_box_failed", extra={"reason": getattr(error, "reason", "")})
                return
            spare = _Spare(box, self._maker.spec.digest, self._now())
            with self._lock:
                if not self._is_closed:
                    self._spares.append(spare)
                    continue
            box.close()

    def _make(self) -> PooledBox:
        box = self._maker.create()
        try:
            self._prepare(box)
        except BaseException:
            box.close()
            raise
        box.is_warm = True
        return box

    def _is_wanted(self) -> bool:
        with self._lock:
            return not self._is_closed and len(self._spares) < self._size

    def wait_until_filled(self, *, seconds: float) -> bool:
        """Wait until the spares that are being made are there; False when that takes longer."""
        filler = self._filler
        if filler is not None:
            filler.join(seconds)
        return self.waiting >= self._size

    def close(self) -> None:
        """Destroy the spares and make no more. May be called again."""
        with self._lock:
            self._is_closed = True
            spares, self._spares = list(self._spares), deque()
            filler = self._filler
        for spare in spares:
            spare.box.close()
        if filler is not None:
            filler.join()
