"""What a task's failures lead to: its failure counter, and the one table of nested loop limits (R-051..R-064, A12).

The counter counts final outcomes only. An attempt that is tried again, a tier that hands on, a rework cycle: all of
that has a limit of its own in `LOOP_LIMITS`, and happens before an outcome is final.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from routing.jobs import FAILURES, Reason, State

DEBATE_FROM = 2
"""Consecutive failures, or rejections, from which a task is debated (R-051, R-053, R-062)."""
ESCALATE_FROM = 3
"""Consecutive failures from which a task that was debated goes to a person (R-054)."""


class FailureEvent(StrEnum):
    """A final outcome of a task."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    REJECTED = "rejected"
    """A person rejected the output, sent it back for revision, or let the preview expire."""


class FailureAction(StrEnum):
    """What a final outcome leads to at once."""

    NONE = "NONE"
    DEBATE_FAILURE = "DEBATE_FAILURE"
    AUTO_ESCALATE = "AUTO_ESCALATE"


class FailureOutcome(StrEnum):
    """What a failure debate can end in (R-063), the least careful first."""

    RETRY = "RETRY"
    PIVOT = "PIVOT"
    ESCALATE = "ESCALATE"


class NextStep(StrEnum):
    """What is done then. Whatever it is, the job that failed has ended, and its owner is told (R-064)."""

    RESPOND = "respond"
    """Nothing but telling the owner, who may try again."""
    DEBATE = "debate"
    SAME_LANE = "same_lane"
    """A new job, with the first as its parent, as it was (RETRY)."""
    OTHER_WAY = "other_way"
    """A new job in another tier, or planned anew (PIVOT)."""
    PERSON = "person"
    """A person decides; nothing runs until then."""


STEP_AFTER: Mapping[FailureAction | FailureOutcome, NextStep] = MappingProxyType(
    {
        FailureAction.NONE: NextStep.RESPOND,
        FailureAction.DEBATE_FAILURE: NextStep.DEBATE,
        FailureAction.AUTO_ESCALATE: NextStep.PERSON,
        FailureOutcome.RETRY: NextStep.SAME_LANE,
        FailureOutcome.PIVOT: NextStep.OTHER_WAY,
        FailureOutcome.ESCALATE: NextStep.PERSON,
    }
)
"""Where each action and each outcome of a debate leads."""


@dataclass(frozen=True)
class FailureHistory:
    """What is known about a task (a root job with its children) before its newest outcome."""

    consecutive_failures: int = 0
    """Final outcomes since the last success that were no success; rejections are among them."""
    rejections: int = 0
    is_debated: bool = False
    """Whether a failure debate was held since the last success; a planning debate does not count (A11)."""
    is_security: bool = False
    same_error_elsewhere: bool = False
    """Whether another task has failed with the newest error's signature."""


def event_of(state: State) -> FailureEvent | None:
    """Return what a job's state means for its task's counter; None for what does not count.

    A state that is no end never counts (A12). A cancelled job is its owner's will, and an escalated one is with a
    person already. A request refused at the door never became a task: its `rejected` is not for this function.
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
    """Return the history with an outcome counted; a success starts it anew."""
    if event is FailureEvent.SUCCEEDED:
        return FailureHistory(is_security=history.is_security)
    return replace(
        history,
        consecutive_failures=history.consecutive_failures + 1,
        rejections=history.rejections + (event is FailureEvent.REJECTED),
    )


def after_failure(history: FailureHistory, event: FailureEvent) -> FailureAction:
    """Return what an outcome leads to.

    Args:
        history: the task before this outcome.
        event: the outcome.
    """
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
    """Return what two errors of the same kind have in common: their text without numbers, paths and ids (A36).

    Args:
        reason: the reason code or the exception's class.
        detail: the message.
    """
    words = (_stand_in(word) for word in detail[:_READ_LIMIT].casefold().split())
    return f"{reason}: {' '.join(words)}"[:SIGNATURE_LIMIT].rstrip()


def is_dead_end(state: State, reason: str | None) -> bool:
    """Tell whether a job that ended so is a dead letter: nobody wanted that end, and nobody but a person cures it."""
    return state in FAILURES or (state is State.EXPIRED and reason == Reason.QUEUE_EXPIRED)


def dead_letter_signature(state: State, reason: Reason, detail: str) -> str | None:
    """Return what a dead letter has in common with others of its kind; None for an end that is none."""
    return error_signature(reason.value, detail) if is_dead_end(state, reason) else None


def _stand_in(word: str) -> str:
    """Return a word without what differs from case to case: a path or address, a number, an id, a digest."""
    rest = word.lstrip(_BEFORE)
    core = rest.rstrip(_AFTER)
    if "/" in core or "\\" in core or _FILE.search(core):
        kept = "<path>"
    elif any(letter.isdigit() for letter in core) or _HEX.fullmatch(core):
        kept = "<n>"
    else:
        return word
    return word[: len(word) - len(rest)] + kept + rest[len(core) :]


class LoopLimit(NamedTuple):
    """How often one of the nested loops goes round, and what follows when it may no more."""

    loop: str
    scope: str
    retries: int
    """Rounds after the first one."""
    then: str


LOOP_LIMITS: Mapping[str, LoopLimit] = MappingProxyType(
    {
        limit.loop: limit
        for limit in (
            LoopLimit("codex_401_restart", "one process, its flag on", 1, "the attempt fails"),
            LoopLimit("spec_retry", "one job of tier 1", 1, "tier 2"),
            LoopLimit("patch_repair", "one job of tier 2", 1, "tier 3"),
            LoopLimit("agent_retry", "one job of tier 3", 0, "the job fails and its owner is told"),
            LoopLimit("agent_step_retry", "one step of a run", 3, "the run halts"),
            LoopLimit("remediation", "one pass of a run", 2, "what is left needs rework, or is listed in the summary"),
            LoopLimit("rework", "one task of a run", 3, "a person, with the whole context"),
            LoopLimit("failure_debate", "one task, across jobs", ESCALATE_FROM - 1, "a person"),
        )
    }
)
"""Ruling A12 as DESIGN.md section 4 amends it: tier 2 repairs a patch once. Inner loops end before outer ones count."""
