"""What the producing side can refuse."""

from __future__ import annotations

from routing.prices import BudgetExceeded


class ProducerError(Exception):
    """Base of all errors of this package."""


class PublishError(ProducerError, ConnectionError):
    """The broker did not take a message. The job is safe in the ledger; the dispatcher pushes it later."""


class AdmissionRefusedError(ProducerError):
    """There is no room for a job now (nobody's fault): nothing was accepted, and it is known when to come back.

    Args:
        what: the queue without a place, or the budget that has no room for even the cheapest call.
        retry_after_seconds: when to come back.
    """

    def __init__(self, what: str | BudgetExceeded, retry_after_seconds: int) -> None:
        super().__init__(what, retry_after_seconds)
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return f"{self.args[0]}; try again in {self.retry_after_seconds} s"


class QueueFullError(AdmissionRefusedError):
    """The queue that the job would wait on is full, or its tenant's part of it (nobody's fault)."""


class LedgerAwayError(ProducerError, ConnectionError):
    """The ledger went away while several jobs were taken in, and it is not sure that this one was (nobody's fault)."""

    def __str__(self) -> str:
        return "the ledger went away meanwhile; send it again, with its idempotency key if it has one"


class UnknownTenantError(ProducerError, LookupError):
    """No tenant of this name exists (the caller's or the operator's fault)."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant)

    def __str__(self) -> str:
        return f"no tenant {self.args[0]!r}; make one with `pointsman key create --tenant {self.args[0]}`"


class AuthenticationError(ProducerError, PermissionError):
    """The request carries no valid API key, or one without the scope it needs (the caller's fault)."""
