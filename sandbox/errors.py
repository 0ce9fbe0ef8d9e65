"""What the sandbox can refuse, and whose fault it is.

Every refusal carries a short, stable reason code: receipts, metrics and tests compare codes, people read the text.
"""

from __future__ import annotations

from typing import Literal

_SHOWN_PATH_CHARS = 120


def show_path(path: str) -> str:
    """Return a path that is safe to print: escaped to ASCII and cut."""
    shown = ascii(path)
    return shown if len(shown) <= _SHOWN_PATH_CHARS else shown[: _SHOWN_PATH_CHARS - 1] + "…"


class SandboxError(Exception):
    """Base of all errors of this package."""


class PathRefusedError(SandboxError, ValueError):
    """A file name from outside breaks a rule of names (the fault of whoever named the file)."""

    def __init__(self, reason: str, path: str) -> None:
        super().__init__(reason, path[:_SHOWN_PATH_CHARS])
        self.reason = reason
        self.shown = show_path(path)

    def __str__(self) -> str:
        return f"path {self.shown} is refused: {self.reason}"


class TreeRefusedError(SandboxError, ValueError):
    """A set of files breaks a rule: a collision, a cap, a kind of file (the fault of whoever sent the files)."""

    def __init__(self, reason: str, path: str, detail: str) -> None:
        super().__init__(reason, path[:_SHOWN_PATH_CHARS], detail)
        self.reason = reason
        self.shown = show_path(path)
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.shown} is refused: {self.reason}: {self.detail}"


class BlobMissingError(SandboxError, LookupError):
    """The store holds no blob of this digest (our fault, or a lost disk)."""


class DenAwayError(SandboxError, OSError):
    """The whole store is not there: not mounted, or not made yet (the surroundings' fault): a later try may find it."""


class BlobCorruptError(SandboxError):
    """A stored blob no longer has the digest it is stored under (the disk's fault)."""


class ReleaseAlteredError(SandboxError, ValueError):
    """A release on record is not what its scan judged (the fault of whoever changed the record)."""


class ManifestError(SandboxError, ValueError):
    """A stored manifest cannot be read (our fault)."""


class PreviewRefusedError(SandboxError, ValueError):
    """A preview token is not accepted (the bearer's fault)."""

    def __init__(self, reason: Literal["expired", "tampered"]) -> None:
        super().__init__(reason)
        self.reason: Literal["expired", "tampered"] = reason

    def __str__(self) -> str:
        return f"the preview link is {self.reason}"


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


class BudgetExceededError(SandboxError):
    """A budget has no room for a model call, or an open call was cut at it (nobody's fault); the message says which."""


class FencedCallError(SandboxError):
    """The attempt that makes a model call no longer holds its job: nothing it does counts (nobody's fault)."""


class CancelledCallError(SandboxError):
    """The job was cancelled: it makes no more model calls (nobody's fault)."""


class CallTimeoutError(SandboxError, TimeoutError):
    """A model call was broken off because its caller's time was over (nobody's fault)."""


class NoProviderKeyError(SandboxError):
    """The tenant has no model provider, or the provider refuses its key (the tenant's fault)."""


class GatewayUnreachableError(SandboxError, ConnectionError):
    """The gateway cannot be reached or cannot reach the ledger (the operator's fault, or a passing one)."""


class ProviderBusyError(SandboxError):
    """The provider has no room at the moment (nobody's fault): try later."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after)
        self.retry_after = retry_after
        """Seconds that the provider asks to wait; None when it did not say."""

    def __str__(self) -> str:
        return str(self.args[0])


class ProviderDownError(ProviderBusyError):
    """The provider cannot answer at the moment (its fault): try later."""


class ProviderError(SandboxError):
    """A request was refused, or a reply broke off or cannot be used (the provider's fault, or ours)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status

    def __str__(self) -> str:
        return f"{self.args[1]} (HTTP {self.status})"
