"""What the producing side can refuse."""

from __future__ import annotations


class ProducerError(Exception):
    """Base of all errors of this package."""


class PublishError(ProducerError, ConnectionError):
    """The broker did not take a message. The job is safe in the ledger; the dispatcher pushes it later."""


class UnknownTenantError(ProducerError, LookupError):
    """No tenant of this name exists (the caller's or the operator's fault)."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant)

    def __str__(self) -> str:
        return f"no tenant {self.args[0]!r}; make one with `pointsman key create --tenant {self.args[0]}`"


class AuthenticationError(ProducerError, PermissionError):
    """The request carries no valid API key, or one without the scope it needs (the caller's fault)."""
