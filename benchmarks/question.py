"""What a question is: something with a name that can be asked. A `Race` is one kind, a `Survey` another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from benchmarks.answer import Answer


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
