"""What an applied diff leaves behind: the new contents, how sure each place was, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

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


@dataclass(frozen=True)
class HunkReceipt:
    """Where a hunk went."""

    line: int
    """First line of the file before the change that the hunk covers, counted from 1."""
    fuzz: Fuzz
    is_already_applied: bool = False
    """The file had this change before: the hunk did nothing."""


@dataclass(frozen=True)
class FileReceipt:
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


@dataclass(frozen=True)
class Applied:
    """A diff that was applied as a whole."""

    changed: Mapping[str, bytes | None]
    """New content by path, by path in order; None for a file that is gone."""
    receipts: tuple[FileReceipt, ...]
    """One for each file of the diff, in its order."""
    canonical: bytes
    """The change as our own unified diff, made from what changed and not from what was sent: for the reviewer."""
    reverse: bytes
    """A unified diff that turns the new files into the old ones, byte for byte."""

    @property
    def fuzz(self) -> Fuzz:
        """The worst of all hunks."""
        return max((receipt.fuzz for receipt in self.receipts), default=Fuzz.EXACT)

    def onto(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the whole set of files after the change."""
        kept = {path: data for path, data in files.items() if path not in self.changed}
        return kept | {path: data for path, data in self.changed.items() if data is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return the receipt as plain values, for the ledger and for `--json`."""
        return {
            "fuzz": int(self.fuzz),
            "fuzz_name": self.fuzz.name.lower(),
            "needs_approval": self.fuzz.needs_approval,
            "files": [
                {
                    "path": receipt.path,
                    "kind": receipt.kind.value,
                    "source": receipt.source,
                    "fuzz": int(receipt.fuzz),
                    "hunks": [
                        {"line": hunk.line, "fuzz": int(hunk.fuzz), "already_applied": hunk.is_already_applied}
                        for hunk in receipt.hunks
                    ],
                }
                for receipt in self.receipts
            ],
        }
