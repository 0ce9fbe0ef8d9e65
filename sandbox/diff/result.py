"""How sure each place of an applied diff was."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from sandbox.diff.model import Kind


class Fuzz(IntEnum):
    """How far a hunk was from the file, at its worst line. Each level still means exactly one place."""

    EXACT = 0
    """Byte for byte, where its numbers say."""
    OFFSET = 1
    """Byte for byte, elsewhere."""
    WHITESPACE = 2
    """But for line ends and white space at the end of lines."""
    MARKER = 3
    """But for lost markers: context lines without their leading space, empty lines without their plus."""
    PUNCTUATION = 4
    """But for typographic quotes, dashes and spaces."""
    INDENT = 5
    """But for indentation; added lines are indented as the file is."""
    SPLIT = 6
    """In parts: the hunk leaves out unchanged lines of the file."""
    TRIMMED = 7
    """Without outer context lines, which the file does not have."""

    @property
    def needs_approval(self) -> bool:
        """Whether a person must look at the change, whatever the site's policy says."""
        return self > Fuzz.PUNCTUATION


class HunkReceipt(NamedTuple):
    """Where a hunk went."""

    line: int
    """First line of the file before the change that the hunk covers, counted from 1."""
    fuzz: Fuzz
    is_already_applied: bool = False
    """The file had this change before: the hunk did nothing."""


class FileReceipt(NamedTuple):
    """What happened to one file."""

    path: str
    kind: Kind
    source: str | None = None
    mode: str | None = None
    """The new mode, when the diff changes it."""
    hunks: tuple[HunkReceipt, ...] = ()

    @property
    def fuzz(self) -> Fuzz:
        """The worst of its hunks."""
        return max((hunk.fuzz for hunk in self.hunks), default=Fuzz.EXACT)

    @property
    def is_already_applied(self) -> bool:
        """Whether the file had all of its changes before."""
        return bool(self.hunks) and all(hunk.is_already_applied for hunk in self.hunks)
