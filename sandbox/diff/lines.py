"""A file as lines, and how alike two lines are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from io import BytesIO

from sandbox.diff.errors import DiffRefusedError, Reason
from sandbox.diff.result import Fuzz

_PUNCTUATION = str.maketrans(
    dict.fromkeys("‐‑‒–—―−﹘﹣－", "-")
    | dict.fromkeys("‘’‚‛′", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
    | dict.fromkeys("\u200b\u200c\u200d\ufeff\u2060", "")
    | {"…": "..."}
)
"""What models and editors replace without being asked. (Codes for what cannot be seen.)"""

MIN_KEPT_LINES = 2
MIN_KEPT_CHARS = 10
"""Without outer context a hunk must still have so much: two lines, ten characters that are not white space."""


def split_lines(data: bytes) -> list[bytes]:
    """Return the lines of a file, each with its line feed; a last one may have none."""
    return BytesIO(data).readlines()


def plain(line: bytes) -> bytes:
    """Return a line with plain quotes, dashes and spaces."""
    if line.isascii():
        return line
    return line.decode("utf-8", "surrogateescape").translate(_PUNCTUATION).encode("utf-8", "surrogateescape")


def key_of(line: bytes) -> bytes:
    """Return what two lines share that say the same: white space counts once, and not at the ends."""
    return b" ".join(plain(line).split())


def indent_of(line: bytes) -> bytes:
    """Return the white space that a line begins with; of a blank line, nothing."""
    text = line.lstrip(b" \t")
    return line[: len(line) - len(text)] if text.strip() else b""


def likeness(wanted: bytes, found: bytes, *, is_context: bool) -> Fuzz:
    """Return how far a line of a diff is from a line of the file with the same key."""
    if wanted == found:
        return Fuzz.EXACT
    one, other = wanted.rstrip(), found.rstrip()
    if one == other:
        return Fuzz.WHITESPACE
    if is_context and (b" " + one == other or one == b" " + other):
        return Fuzz.MARKER
    if plain(one).rstrip() == plain(other).rstrip():
        return Fuzz.PUNCTUATION
    return Fuzz.INDENT


class Budget:
    """How many comparisons are left: what bounds the time of a hostile diff."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int) -> None:
        """Count comparisons.

        Raises:
            DiffRefusedError: `too_complex` (the fault of whoever wrote the diff).
        """
        self._left -= steps
        if self._left < 0:
            raise DiffRefusedError(Reason.TOO_COMPLEX, "finding the places would take too long; change less at once")


class FileText:
    """The lines of a file, found by what they say."""

    def __init__(self, data: bytes, budget: Budget) -> None:
        self.data = data
        self.lines = split_lines(data)
        self.budget = budget
        self.is_shifted = False
        """Removed lines of the diff are indented otherwise than the file: whole hunks are, not only their context."""

    @cached_property
    def keys(self) -> list[bytes]:
        """The key of each line."""
        self.budget.spend(len(self.lines))
        return [key_of(line) for line in self.lines]

    @cached_property
    def places(self) -> dict[bytes, list[int]]:
        """Where each key stands, in order."""
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, key in enumerate(self.keys):
            found[key].append(place)
        return dict(found)

    def is_at(self, place: int, lines: list[bytes]) -> bool:
        """Return whether lines stand at a place byte for byte."""
        self.budget.spend(len(lines) + 1)
        return 0 <= place <= len(self.lines) - len(lines) and self.lines[place : place + len(lines)] == lines

    def starts_of(self, keys: Sequence[bytes]) -> list[int]:
        """Return all places where lines with these keys stand one below another."""
        if not keys or not any(keys):
            return []
        rarest = min(range(len(keys)), key=lambda index: (not keys[index], len(self.places.get(keys[index], ()))))
        found = []
        for place in self.places.get(keys[rarest], ()):
            start = place - rarest
            if start >= 0 and start + len(keys) <= len(self.lines) and self._has_keys(start, keys):
                found.append(start)
        return found

    def _has_keys(self, start: int, keys: Sequence[bytes]) -> bool:
        for index, key in enumerate(keys):
            if self.keys[start + index] != key:
                self.budget.spend(index + 1)
                return False
        self.budget.spend(len(keys))
        return True
