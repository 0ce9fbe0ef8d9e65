"""What follows a task's failures: its failure counter (R-051..R-064).

Only final outcomes count. Retried attempts, escalation to another tier and rework cycles come before that and have
their own limits, which are the policy's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from routing.jobs import FAILURES, Reason, State

DEBATE_FROM = 2
"""Consecutive failures, or rejections, that lead to a debate (R-051, R-053, R-062)."""
ESCALATE_FROM = 3
"""Consecutive failures after which a debated task goes to a person (R-054)."""


OUTAGES = frozenset(
    {
        Reason.PROVIDER_BUSY,
        Reason.PROVIDER_ERROR,
        Reason.GATEWAY_UNREACHABLE,
        Reason.REMOTE_UNREACHABLE,
        Reason.BOX_FAILED,
        Reason.WORKER_LOST,
        Reason.STORAGE_UNAVAILABLE,
    }
)
"""Something that the work needs was away or broke, and may be back soon."""
INFRASTRUCTURE = OUTAGES | {
    Reason.INVALID_REQUEST,
    Reason.UPLOAD_REFUSED,
    Reason.NOT_AVAILABLE,
    Reason.SERVICE_FAILED,
    Reason.NO_PROVIDER_KEY,
    Reason.PUBLISH_CONFLICT,
    Reason.PUBLISH_FAILED,
    Reason.INTERNAL_ERROR,
}
"""Failures that say nothing about the work and that no debate cures: they are none of its task."""
LIMITS = frozenset({Reason.TIME_LIMIT, Reason.COST_CAP})
"""Tasks that reach the same limit have no error in common (R-052)."""


class FailureEvent(StrEnum):
    """A final outcome of a task."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    """A person rejected the output, sent it back for revision, or let the preview expire."""


class FailureAction(StrEnum):
    """What follows a final outcome."""

    NONE = "NONE"
    DEBATE_FAILURE = "DEBATE_FAILURE"
    AUTO_ESCALATE = "AUTO_ESCALATE"


class FailureOutcome(StrEnum):
    """Result of a failure debate (R-063), the least careful first."""

    RETRY = "RETRY"
    PIVOT = "PIVOT"
    ESCALATE = "ESCALATE"


@dataclass(frozen=True)
class FailureHistory:
    """A task (a root job with its children) before its newest outcome."""

    consecutive_failures: int = 0
    """Failures and rejections since the last success."""
    rejections: int = 0
    is_debated: bool = False
    """Whether a failure debate, as opposed to a planning debate, was held since the last success (A11)."""
    is_security: bool = False
    same_error_elsewhere: bool = False
    """Whether another task has failed with the newest error's signature."""


def classify_end(state: State) -> FailureEvent | None:
    """Return the event that a job's state counts as, or None.

    States before the end never count (A12). The owner wanted a cancelled job, and a person already has an escalated
    one. Do not ask about a refused request: it never became a task.
    """
    return _EVENTS.get(state)


_EVENTS: Mapping[State, FailureEvent] = {
    State.ANSWERED: FailureEvent.SUCCEEDED,
    State.PUBLISHED: FailureEvent.SUCCEEDED,
    State.REJECTED: FailureEvent.REJECTED,
    State.EXPIRED: FailureEvent.REJECTED,
    State.FAILED: FailureEvent.FAILED,
    State.TIMED_OUT: FailureEvent.FAILED,
    State.BUDGET_EXCEEDED: FailureEvent.FAILED,
    State.OUTPUT_EXCEEDED: FailureEvent.FAILED,
}


def advance(history: FailureHistory, event: FailureEvent) -> FailureHistory:
    """Return the history with an outcome counted; a success resets it."""
    if event is FailureEvent.SUCCEEDED:
        return FailureHistory(is_security=history.is_security)
    return replace(
        history,
        consecutive_failures=history.consecutive_failures + 1,
        rejections=history.rejections + (event is FailureEvent.REJECTED),
    )


def choose_failure_action(history: FailureHistory, event: FailureEvent) -> FailureAction:
    """Return what follows an outcome, given the history before it."""
    now = advance(history, event)
    has_failed = event is FailureEvent.FAILED
    if now.is_security and has_failed:
        return FailureAction.AUTO_ESCALATE
    if now.is_debated:
        is_used_up = now.consecutive_failures >= ESCALATE_FROM
        return FailureAction.AUTO_ESCALATE if is_used_up else FailureAction.NONE
    is_repeated = now.consecutive_failures >= DEBATE_FROM or now.rejections >= DEBATE_FROM
    if is_repeated or (has_failed and now.same_error_elsewhere):
        return FailureAction.DEBATE_FAILURE
    return FailureAction.NONE


SIGNATURE_LIMIT = 200
_READ_LIMIT = 2000
_HEX = re.compile(r"[0-9a-f]{8,}")
_BEFORE = "\"'`([{<"
_AFTER = "\"'`)]}>,;:.!?"
_FILE = re.compile(r"\.(?:[cm]?[jt]sx?|json|html?|s?css|py|md|ya?ml|svg|png|jpe?g|webp)\Z")


def error_signature(reason: str, detail: str) -> str:
    """Return what errors of the same kind share: their reason and text without numbers, paths and ids (A36)."""
    words = (_placeholder(word) for word in detail[:_READ_LIMIT].casefold().split())
    return f"{reason}: {' '.join(words)}"[:SIGNATURE_LIMIT].rstrip()


def is_dead_end(state: State, reason: str | None) -> bool:
    """Return whether a job that ended so is a dead letter, which only a person can resolve.

    A refused upload is none: its sender mends it and uploads again, and the same one would be refused again.
    """
    if reason == Reason.UPLOAD_REFUSED:
        return False
    return state in FAILURES or (state is State.EXPIRED and reason == Reason.QUEUE_EXPIRED)


def dead_letter_signature(state: State, reason: Reason, detail: str) -> str | None:
    """Return the error signature of a dead letter; None for any other end."""
    return error_signature(reason.value, detail) if is_dead_end(state, reason) else None


def _placeholder(word: str) -> str:
    """Return a placeholder for a path, number, id or digest; any other word as it is."""
    rest = word.lstrip(_BEFORE)
    core = rest.rstrip(_AFTER)
    if "/" in core or "\\" in core or _FILE.search(core):
        placeholder = "<path>"
    elif any(letter.isdigit() for letter in core) or _HEX.fullmatch(core):
        placeholder = "<n>"
    else:
        return word
    return word[: len(word) - len(rest)] + placeholder + rest[len(core) :]
