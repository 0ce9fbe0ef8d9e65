"""The retry table: the one place that decides what a failure leads to.

Each known error has one reason code and one end, or a wait: a short one before the same call is made again within the
attempt, or a long one for which the job gives its worker back.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from gateway.errors import (
    BudgetExceededError,
    CallTimeoutError,
    CancelledCallError,
    FencedCallError,
    ForgeError,
    GatewayError,
    GatewayUnreachableError,
    NoProviderKeyError,
    ProviderBusyError,
    ProviderDownError,
    ProviderError,
)
from routing.errors import CallFailure
from routing.failures import OUTAGES
from routing.jobs import Reason, State
from routing.scheduling import retry_delay_seconds
from sandbox.errors import (
    BoxFrozenError,
    BoxLostError,
    SandboxStartupError,
    SandboxUnavailableError,
    ServiceFailedError,
    UncontainedSessionError,
)
from sites.errors import ObstructedError, RepositoryRefusedError, StoreUnavailableError, WorkspaceError
from workers.errors import CancelledByOwnerError, LeaseLostError, RemoteError, SoftTimeLimit
from workers.outcomes import Deferred, Ended

BUSY_RETRIES = 2
"""Retries of a call within one attempt when the provider or the gateway was busy."""
MAX_WAIT_SECONDS = 5.0
_MAX_TIME_SHARE = 0.25
"""A wait may take this share of the attempt's remaining time."""


_STORAGE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE})
"""Errors of a disk that is full, read-only or away; any other file error is a bug of ours."""


@dataclass(frozen=True)
class Retry:
    """Make the same call again after a pause."""

    delay_seconds: float


@dataclass(frozen=True)
class Abandon:
    """The job is no longer this attempt's: stop silently."""


def decide_call(error: GatewayError, *, tries: int, left_seconds: float = math.inf) -> Retry | None:
    """Return how to retry a failed model call; None when the attempt has to deal with the error."""
    if tries > BUSY_RETRIES:
        return None
    if not isinstance(error, ProviderBusyError | GatewayUnreachableError):
        return None
    asked = error.retry_after if isinstance(error, ProviderBusyError) else None
    wait = asked if asked is not None else 0.5 * 2**tries
    return Retry(wait) if wait <= min(MAX_WAIT_SECONDS, left_seconds * _MAX_TIME_SHARE) else None


def decide_call_failure(error: GatewayError) -> CallFailure | None:
    """Classify the failure of an advisory call; None for what ends the attempt all the same."""
    if isinstance(error, FencedCallError | CancelledCallError):
        return None
    if isinstance(error, BudgetExceededError):
        return "cost_cap"
    if isinstance(error, GatewayUnreachableError):
        return "transport_error"
    is_busy = isinstance(error, ProviderBusyError) and not isinstance(error, ProviderDownError)
    return "rate_limited" if is_busy else "invalid"


def is_storage_error(error: BaseException) -> TypeGuard[OSError]:
    """Whether a disk of ours, or the content store, is full, read-only or away."""
    return isinstance(error, OSError) and error.errno in _STORAGE_ERRORS


def is_passing(error: Exception) -> bool:
    """Whether failed control work may succeed later: a forge, a remote, storage or the disk was unavailable."""
    if isinstance(error, ForgeError):
        return error.is_passing
    if isinstance(error, WorkspaceError):
        return isinstance(error, RemoteError)
    return isinstance(error, OSError)


def unavailable_reason(error: Exception) -> Reason:
    """Return what control work found unavailable: an error that names a file, or a disk's errno, is local."""
    is_local = is_storage_error(error) or (isinstance(error, OSError) and error.filename is not None)
    return Reason.STORAGE_UNAVAILABLE if is_local else Reason.REMOTE_UNREACHABLE


def words_of(error: Exception) -> str:
    """Return an error as a tenant may read it: without this machine's paths, and what an object store's server said."""
    if isinstance(error, StoreUnavailableError):
        return "the content store cannot be reached or read"
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)


def step_pause(pauses: Sequence[float], *, tries: int, failure: str | None) -> float:
    """Return the pause before the next try of a step, in seconds: after an outage, until that may be over."""
    return retry_delay_seconds(pauses, tries=tries) if failure in OUTAGES else 0.0


_ENDS: tuple[tuple[tuple[type[BaseException], ...], State, Reason, str], ...] = (
    ((SoftTimeLimit,), State.TIMED_OUT, Reason.TIME_LIMIT, "the soft time limit ended it; {kept}"),
    ((CancelledCallError, CancelledByOwnerError), State.CANCELLED, Reason.CANCELLED, "cancelled while it ran"),
    ((BudgetExceededError,), State.BUDGET_EXCEEDED, Reason.COST_CAP, "{error}; {kept}"),
    ((CallTimeoutError,), State.TIMED_OUT, Reason.TIME_LIMIT, "a model call took longer than was left; {kept}"),
    ((NoProviderKeyError,), State.FAILED, Reason.NO_PROVIDER_KEY, "{error}"),
    ((ProviderError,), State.FAILED, Reason.PROVIDER_ERROR, "{error}"),
    (
        (SandboxUnavailableError,),
        State.FAILED,
        Reason.NOT_AVAILABLE,
        "not available in this installation: {error}; {kept}",
    ),
    ((ServiceFailedError,), State.FAILED, Reason.SERVICE_FAILED, "{error}"),
    ((SandboxStartupError, BoxLostError, BoxFrozenError), State.FAILED, Reason.BOX_FAILED, "{error}; {kept}"),
    ((RemoteError,), State.FAILED, Reason.REMOTE_UNREACHABLE, "{error}"),
    ((RepositoryRefusedError,), State.FAILED, Reason.INVALID_REQUEST, "{error}"),
    ((ObstructedError, UncontainedSessionError), State.FAILED, Reason.OUTPUT_REFUSED, "{error}"),
)
"""How errors end a job that nothing lets wait; any other is ours."""


def decide_end(
    error: BaseException, *, kept: str = "nothing was kept", was_gateway_away: bool = False
) -> Ended | Deferred | Abandon:
    """Turn what ended an attempt into the job's end, or into a wait without a worker.

    Time that passed while the gateway stood still is nobody's: slow is not dead.
    """
    if isinstance(error, FencedCallError | LeaseLostError):
        return Abandon()
    if isinstance(error, SoftTimeLimit) and was_gateway_away:
        return Deferred(Reason.GATEWAY_UNREACHABLE, "the gateway stood still until its time was over")
    if isinstance(error, ProviderBusyError):
        return Deferred(Reason.PROVIDER_BUSY, f"the model provider is busy: {error}", error.retry_after)
    if isinstance(error, GatewayUnreachableError):
        return Deferred(Reason.GATEWAY_UNREACHABLE, "the gateway could not be reached")
    if is_storage_error(error):
        return Deferred(Reason.STORAGE_UNAVAILABLE, f"its storage failed: {os.strerror(error.errno or 0)}")
    for kinds, state, reason, detail in _ENDS:
        if isinstance(error, kinds):
            return Ended(state, reason, detail.format(error=error, kept=kept))
    return Ended(State.FAILED, Reason.INTERNAL_ERROR, f"internal error: {type(error).__name__}")
