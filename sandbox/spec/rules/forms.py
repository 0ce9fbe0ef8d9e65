"""What a sentence orders, whatever its wording: few forms, which the rules then look up on the site.

"Change X to Y", "X should say Y", "I want X to be Y", "use Y as X" and "X: Y" are one form, so each kind of target
understands every wording. A sentence may fit several forms and be cut in several ways; all are returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Put(NamedTuple):
    """Make something be something: the phrases that name what, and what it becomes."""

    target: str
    value: str
    old: str | None = None
    """What it is said to be now."""


class Replace(NamedTuple):
    """Write one text where another one stands."""

    old: str
    new: str
    where: str | None = None
    is_everywhere: bool = False


class Remove(NamedTuple):
    """Take something away."""

    what: str
    where: str | None = None


class Move(NamedTuple):
    """Change the place of a section: before or after another, up or down by one, to the top or the bottom."""

    what: str
    way: str
    anchor: str | None = None


class Swap(NamedTuple):
    """Exchange the places of two sections."""

    first: str
    second: str


class Add(NamedTuple):
    """Put in something new; what follows the verb."""

    rest: str
    where: str | None = None


class Step(NamedTuple):
    """Make something more or less."""

    what: str
    is_more: bool


Form = Put | Replace | Remove | Move | Swap | Add | Step


Build = Callable[["re.Match[str]"], Iterator[Form]]


class Wordings:
    """Patterns that a whole sentence may fit, each with the forms that it then has."""

    def __init__(self) -> None:
        self._table: list[tuple[re.Pattern[str], Build]] = []

    def __call__(self, *patterns: str) -> Callable[[Build], Build]:
        """Return a decorator that gives some patterns their meaning."""

        def add(build: Build) -> Build:
            self._table.extend((re.compile(pattern, re.I), build) for pattern in patterns)
            return build

        return add

    def read(self, text: str) -> Iterator[Form]:
        """Yield the forms of every pattern that a sentence fits."""
        for pattern, build in self._table:
            if match := pattern.fullmatch(text):
                yield from build(match)
