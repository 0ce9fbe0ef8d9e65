"""Keep the newest head of the audit chain outside the ledger: only so does a cut-off tail show.

Whoever can write to the database can delete its newest rows together with their seals, and what is left is a sound
chain. The sealer therefore tells each head to two places that the database's owner need not reach: its log, and a file.
"""

from __future__ import annotations

from pathlib import Path

from monitoring.durable import replace_file

FILE_NAME = "audit-head"


class HeadFile:
    """A file with the newest head, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, head: str) -> None:
        """Put a head in place of the one before it; it is on the disk when this returns.

        Raises:
            OSError: the operator's fault: the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, f"{head}\n".encode())

    def newest(self) -> str | None:
        """Return the head that was kept last; None where none was."""
        try:
            return self.path.read_text().strip() or None
        except FileNotFoundError:
            return None
