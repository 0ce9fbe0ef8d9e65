"""The soft time limit as an interrupt that no handler can swallow by accident.

billiard raises its SoftTimeLimitExceeded, an ordinary Exception, from a SIGUSR1 handler; model clients that catch
Exception and retry would eat it. Pool children therefore install this handler instead. It raises only inside a task's
body, so a late signal cannot hit the pool's own code.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from workers.errors import SoftTimeLimit


class _SoftLimit:
    is_armed = False

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.is_armed:
            self.is_armed = False
            raise SoftTimeLimit


_soft_limit = _SoftLimit()


def install_soft_limit() -> None:
    """Take over the signal that billiard sends at the soft limit. Called in each pool child after its start."""
    signal.signal(signal.SIGUSR1, _soft_limit.on_signal)


@contextmanager
def soft_limit_armed() -> Iterator[None]:
    """Let the soft limit interrupt this block, once."""
    _soft_limit.is_armed = True
    try:
        yield
    finally:
        _soft_limit.is_armed = False
