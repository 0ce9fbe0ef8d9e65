"""What boxes can refuse, and whose fault it is."""

from __future__ import annotations


class SandboxError(Exception):
    """Base of all errors of this package."""


class SandboxUnavailableError(SandboxError, ConnectionError):
    """There is no engine, or no image, to make a box with (the operator's fault); `pointsman doctor` says more."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"no box can be made: {self.reason}: {self.hint}"


class SandboxStartupError(SandboxError):
    """A box could not be started as it has to be; it was not started otherwise (the engine's fault, or ours)."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"the box was not started: {self.reason}: {self.detail}"


class BoxLostError(SandboxError, ConnectionError):
    """A box, or the engine that runs it, went away (the operator's fault, or a passing one)."""


class BoxFrozenError(SandboxError):
    """A box that was frozen for good was asked to work (our fault)."""


class UnwalledSessionError(SandboxError):
    """A program that asks for no permission would have run outside a container (ours, or the operator's fault)."""


class RegistryConfigError(SandboxError, ValueError):
    """The package manager's own configuration cannot be read or names no usable registry (the operator's fault)."""


class MirrorRefusedError(SandboxError):
    """A request is not served: below 500 the caller's fault, else the registry's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return self.message


class AddressRefusedError(SandboxError, OSError):
    """An address that a registry leads to is not the operator's registry and not public (the registry's fault)."""
