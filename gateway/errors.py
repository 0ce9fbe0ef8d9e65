"""The errors that a model call can end with, and whose fault each is."""

from __future__ import annotations


class GatewayError(Exception):
    """Base of all errors of this package."""


class BudgetExceededError(GatewayError):
    """A budget cannot cover a model call, or cut an open one (nobody's fault); the message names the budget."""


class FencedCallError(GatewayError):
    """The calling attempt no longer holds its job, so nothing it does counts (nobody's fault)."""


class CancelledCallError(GatewayError):
    """The job was cancelled and makes no more model calls (nobody's fault)."""


class CallTimeoutError(GatewayError, TimeoutError):
    """A model call was broken off because its caller ran out of time (nobody's fault)."""


class NoProviderKeyError(GatewayError):
    """The tenant has no model provider, or the provider refuses its key (the tenant's fault)."""


class GatewayUnreachableError(GatewayError, ConnectionError):
    """The gateway cannot be reached, or cannot reach the ledger (the operator's fault, or transient)."""


class LedgerUnreachableError(GatewayError):
    """The ledger does not answer the gateway (the operator's fault, or transient), so no call is made."""


class ProviderBusyError(GatewayError):
    """The provider is at capacity (nobody's fault): try later."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after
        """Seconds the provider asks callers to wait; None when it did not say."""

    def __str__(self) -> str:
        return str(self.args[0])


class ProviderDownError(ProviderBusyError):
    """The provider is failing (its fault): try later."""


class ProviderError(GatewayError):
    """A request was refused, or a reply is unusable (the provider's fault, or ours)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status

    def __str__(self) -> str:
        return f"{self.args[1]} (HTTP {self.status})"


class AddressRefusedError(GatewayError, OSError):
    """A host led to an address that is not public (the fault of whoever named the host)."""


class ForgeError(GatewayError):
    """A forge or tracker refused or failed.

    Attributes:
        is_passing: whether a retry may succeed (its fault); otherwise the account or the project is wrong.
    """

    def __init__(self, message: str, is_passing: bool) -> None:
        super().__init__(message, is_passing)
        self.is_passing = is_passing

    def __str__(self) -> str:
        return str(self.args[0])
