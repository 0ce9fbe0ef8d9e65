"""Errors of the producers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from routing.policy.prices import BudgetExceeded

MAX_SHOWN_FINDINGS = 50
"""In the error's text; the error itself has all."""


class ProducerError(Exception):
    """Base of the errors of this package."""


class PublishError(ProducerError, ConnectionError):
    """The broker did not accept a message. The job is safe in the ledger; the dispatcher pushes it later."""


class FileLeaseLostError(ProducerError):
    """The turn of a sweep or a backup ended before it did (nobody's fault); `role` says whose."""

    def __init__(self, role: str) -> None:
        super().__init__(role)
        self.role = role

    def __str__(self) -> str:
        if self.role == "backup":
            return "the lease of the backup could not be renewed, and a sweep may have begun meanwhile; back up again"
        return "the lease of the sweep could not be renewed; what is left is removed by the next one"


class AdmissionRefusedError(ProducerError):
    """A queue is full or a budget is spent (nobody's fault): nothing was accepted.

    `what` is the full queue, or the budget that does not cover even the cheapest call.
    """

    def __init__(self, what: str | BudgetExceeded, retry_after_seconds: int) -> None:
        from routing.jobs import Reason  # commands by HTTP, which know only errors of their own, must start fast
        from routing.policy.prices import BudgetExceeded

        super().__init__(what, retry_after_seconds)
        self.reason = Reason.COST_CAP if isinstance(what, BudgetExceeded) else Reason.QUEUE_FULL
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return f"{self.args[0]}; try again in {self.retry_after_seconds} s"


class TooManyStreamsError(ProducerError):
    """A key, or the process, has as many event streams open as it may (the caller's fault, or nobody's)."""

    def __init__(self, whose: Literal["key", "process"], limit: int, retry_after_seconds: int) -> None:
        super().__init__(whose, limit, retry_after_seconds)
        self.whose = whose
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return f"this {self.whose} has {self.args[1]} event streams open, which is the limit"


class TooManyUploadsError(ProducerError):
    """This process takes as many archives at a time as it may, of all or of one tenant (nobody's fault)."""

    def __init__(self, limit: int, retry_after_seconds: int, whose: str = "") -> None:
        super().__init__(limit, retry_after_seconds, whose)
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        limit, seconds, whose = self.args
        of_whom = f" of tenant {whose}" if whose else ""
        return f"this server takes {limit} uploads{of_whom} at a time; try again in {seconds} s"


class UploadTooSlowError(ProducerError):
    """An archive did not arrive in time (the caller's fault)."""

    def __str__(self) -> str:
        return f"an archive must arrive within {self.args[0]} s"


class ForgeAwayError(ProducerError, ConnectionError):
    """The forge could not be asked what its user may do (nobody's fault, or the operator's)."""


class LedgerAwayError(ProducerError, ConnectionError):
    """The ledger became unreachable during a batch; this job may or may not be accepted (nobody's fault)."""

    def __str__(self) -> str:
        return "the ledger became unreachable; send it again, with its idempotency key if it has one"


class UnknownTenantError(ProducerError, LookupError):
    """There is no tenant of this name (the caller's or the operator's fault)."""

    def __init__(self, tenant: str) -> None:
        super().__init__(tenant)

    def __str__(self) -> str:
        return f"no tenant {self.args[0]!r}; create one with `pointsman key create --tenant {self.args[0]}`"


class AuthenticationError(ProducerError, PermissionError):
    """The request carries no valid API key, or one without the scope it needs (the caller's fault)."""


class TooManyTriesError(ProducerError):
    """Too many logins or wrong keys from here, or with this key (the caller's fault): the key was not looked at."""

    def __init__(self, retry_after_seconds: int) -> None:
        super().__init__(retry_after_seconds)
        self.retry_after_seconds = retry_after_seconds

    def __str__(self) -> str:
        return f"too many logins or wrong keys; try again in {self.retry_after_seconds} s"


class LeadLostError(ProducerError):
    """Another dispatcher leads now (nobody's fault); this one stops in the middle of its round."""


class PictureError(ProducerError):
    """A browser made no picture of a page (the page's fault, or the browser's)."""


class InvalidInputError(ProducerError, ValueError):
    """A site, tenant or key is invalid (the caller's fault); the message names field and rule."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(field, rule)
        self.field = field
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}"


class SiteConflictError(ProducerError):
    """The site's state does not allow this; nothing changed."""


class ImportRefusedError(ProducerError, ValueError):
    """The scan refused the content (its author's fault); nothing changed."""

    def __init__(self, findings: tuple[Mapping[str, Any], ...]) -> None:
        super().__init__(findings)
        self.findings = findings

    def __str__(self) -> str:
        listed = self.findings[:MAX_SHOWN_FINDINGS]
        lines = [f"{item['file']}:{item['line']}: {item['rule']}: {item['message']}; {item['fix']}" for item in listed]
        rest = [f"and {left} more"] if (left := len(self.findings) - len(listed)) else []
        return "\n  ".join([f"the scan refused it, and nothing changed; findings: {len(self.findings)}", *lines, *rest])


class InstallationError(ProducerError):
    """The installation cannot do this (the operator's fault, or the machine's)."""


class UnreadableMessageError(ProducerError, ValueError):
    """Not a readable Celery message (the sender's fault)."""


class BrokenBodyError(Exception):
    """The body is not JSON (the caller's fault)."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class BodyTooLargeError(Exception):
    """The body is too large (the caller's fault)."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self.max_bytes = max_bytes


class PreviewGoneError(Exception):
    """The link has expired, or its release is no longer offered (nobody's fault)."""


class PageNotFoundError(Exception):
    """There is no such page, or the link is not ours (the caller's fault)."""


class ElsewhereError(ProducerError):
    """The message's tenant is moving to another cell, or its cell cannot take it now (nobody's fault)."""


class NotLoggedInError(Exception):
    """Nobody is logged in, or the session has ended (nobody's fault); leads to the login page."""


class ForgedFormError(Exception):
    """The form does not belong to the session (the sender's fault); nothing was done."""


class ActionRefusedError(Exception):
    """What a form of the console asks for was refused (the caller's fault, or nobody's); nothing was done.

    `path` is the page of the console that says why.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why


class SignInRefusedError(AuthenticationError):
    """The identity provider's answer is no proof of who somebody is, or they may not enter (nobody's fault here)."""


class MissingScopeError(AuthenticationError):
    """The key is valid but does not allow this (the caller's fault)."""

    def __init__(self, scope: str) -> None:
        super().__init__(scope)
        self.scope = scope

    def __str__(self) -> str:
        return f"this needs a key with scope {self.scope}"


class ServerChoiceError(ProducerError, ValueError):
    """Environment, profile or options name no server that can be used (the user's fault)."""
