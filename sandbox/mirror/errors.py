"""What the mirror says no with, and whose fault it is."""

from __future__ import annotations

from sandbox.errors import SandboxError


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
