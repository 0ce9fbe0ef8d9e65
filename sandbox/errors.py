"""The errors of boxes and of the package mirror, and whose fault each is."""

from __future__ import annotations


class SandboxError(Exception):
    """Base of all errors of this package."""


class SandboxUnavailableError(SandboxError, ConnectionError):
    """The engine or the image is missing (the operator's fault); `pointsman doctor` says more."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"no box can be made: {self.reason}: {self.hint}"


class SandboxStartupError(SandboxError):
    """A box could not be started with its required posture, so it was not started (the engine's fault, or ours)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"the box was not started: {self.reason}: {self.detail}"


class BoxLostError(SandboxError, ConnectionError):
    """A box, or the engine that runs it, is gone (the operator's fault, or transient)."""


class BoxFrozenError(SandboxError):
    """A frozen box was used (our fault)."""


class UncontainedSessionError(SandboxError):
    """A program without permission checks would have run outside a container (our fault, or the operator's)."""


class RegistryConfigError(SandboxError, ValueError):
    """The package manager's configuration is unreadable or names no usable registry (the operator's fault)."""


class MirrorRefusedError(SandboxError):
    """The mirror refused a request (below 500 the caller's fault, else the registry's)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message
