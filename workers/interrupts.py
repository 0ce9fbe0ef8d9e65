"""The soft time limit and the end of a worker's grace, as interrupts that no handler can swallow by accident.

billiard raises its SoftTimeLimitExceeded, an ordinary Exception, from a SIGUSR1 handler; model clients that catch
Exception and retry would eat it. Pool children therefore install these handlers instead. They raise only inside a
task's body, so a late signal cannot hit the pool's own code.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from workers.errors import HandBack, SoftTimeLimit

SOFT_LIMIT_SIGNAL = signal.SIGUSR1
"""What billiard sends to a pool child at the soft limit."""
HAND_BACK_SIGNAL = signal.SIGUSR2
"""What a stopping worker sends to its pool children when their grace is over."""
_RAISES: dict[int, type[BaseException]] = {SOFT_LIMIT_SIGNAL: SoftTimeLimit, HAND_BACK_SIGNAL: HandBack}


class _Interrupts:
    is_armed = False

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.is_armed:
            self.is_armed = False
            raise _RAISES[signum]


_interrupts = _Interrupts()


def install_interrupts() -> None:
    """Take over the signals. Called in each pool child after its start, and again when billiard has set its own."""
    for signum in _RAISES:
        signal.signal(signum, _interrupts.on_signal)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal interrupt this block, once."""
    _interrupts.is_armed = True
    try:
        yield
    finally:
        _interrupts.is_armed = False
