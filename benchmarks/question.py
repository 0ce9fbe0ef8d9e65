"""What a question is: something with a name that can be asked. A `Race` is one kind, a `Survey` another.

What one is at it says on the standard error: the answers go to the standard output.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from benchmarks.answer import Answer

_BEGAN = time.monotonic()


def say(what: str) -> None:
    """Say it, and how many seconds the run has taken so far."""
    print(f"bench: {time.monotonic() - _BEGAN:4.0f} s: {what}", file=sys.stderr, flush=True)


class UnavailableError(Exception):
    """What a question needs is not here: a peer that cannot be installed or started, an engine, a program."""


class Question(Protocol):
    """What a module of this package offers as `QUESTION`."""

    @property
    def name(self) -> str:
        """What ONLY takes."""

    def ask(self, repetitions: int | None = None) -> Answer:
        """Measure everything so often; as often as the question thinks fit, if left out.

        Raises:
            UnavailableError: nothing of it can be asked here.
        """


@dataclass(frozen=True)
class Survey:
    """A question with a way of its own to measure."""

    name: str
    measure: Callable[[int], Answer]
    repetitions: int = 5

    def ask(self, repetitions: int | None = None) -> Answer:
        """Measure."""
        return self.measure(repetitions or self.repetitions)
