"""What the rehearsal model can refuse: a scenario file at load, or a rule that cannot be played."""

from __future__ import annotations

from sandbox.errors import SandboxError


class ScenarioError(SandboxError, ValueError):
    """A scenario file or one of its rules is wrong (its author's fault); the message names file and line, or rule."""


class RequestError(SandboxError, ValueError):
    """A request is not one that the Messages API accepts (the caller's fault)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        """The `error.type` of the API."""
        self.message = message

    def __str__(self) -> str:
        return self.message
