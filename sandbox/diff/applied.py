"""What an applied diff leaves behind: the new contents, how sure each place was, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sandbox.diff.canonical import unified
from sandbox.diff.result import FileReceipt, Fuzz


@dataclass(frozen=True)
class Applied:
    """A diff that was applied as a whole."""

    changed: Mapping[str, bytes | None]
    """New content by path, by path in order; None for a file that is gone."""
    receipts: tuple[FileReceipt, ...]
    """One for each file of the diff, in its order."""
    before: Mapping[str, bytes | None]
    """Their old content, likewise; None for a file that is new."""

    @cached_property
    def canonical(self) -> bytes:
        """The change as our own unified diff, made from what changed and not from what was sent: for the reviewer."""
        return unified(self.before, self.changed)

    @cached_property
    def reverse(self) -> bytes:
        """A unified diff that turns the new files into the old ones, byte for byte."""
        return unified(self.changed, self.before)

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
