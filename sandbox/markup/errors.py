"""What the edits of plain HTML raise."""

from __future__ import annotations

from sandbox.errors import SandboxError


class NotEditableError(SandboxError, ValueError):
    """A page, or the part of it that is meant, cannot be changed without touching anything else (nobody's fault)."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)

    def __str__(self) -> str:
        return str(self.args[0])
