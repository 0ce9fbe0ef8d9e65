"""What a model call can end with, and whose fault it is."""

from __future__ import annotations


class GatewayError(Exception):
    """Base of all errors of this package."""


class BudgetExceededError(GatewayError):
    """A budget has no room for a model call, or an open call was cut at it (nobody's fault); the message says which."""


class FencedCallError(GatewayError):
    """The attempt that makes a model call no longer holds its job: nothing it does counts (nobody's fault)."""


class CancelledCallError(GatewayError):
    """The job was cancelled: it makes no more model calls (nobody's fault)."""


class CallTimeoutError(GatewayError, TimeoutError):
    """A model call was broken off because its caller's time was over (nobody's fault)."""


class NoProviderKeyError(GatewayError):
    """The tenant has no model provider, or the provider refuses its key (the tenant's fault)."""


class GatewayUnreachableError(GatewayError, ConnectionError):
    """The gateway cannot be reached or cannot reach the ledger (the operator's fault, or a passing one)."""


class ProviderBusyError(GatewayError):
    """The provider has no room at the moment (nobody's fault): try later."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after
        """Seconds that the provider asks to wait; None when it did not say."""

    def __str__(self) -> str:
        return str(self.args[0])


class ProviderDownError(ProviderBusyError):
    """The provider cannot answer at the moment (its fault): try later."""


class ProviderError(GatewayError):
    """A request was refused, or a reply broke off or cannot be used (the provider's fault, or ours)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status

    def __str__(self) -> str:
        return f"{self.args[1]} (HTTP {self.status})"
