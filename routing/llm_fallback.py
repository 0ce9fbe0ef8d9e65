"""The last chance of an unresolved reply: one bounded question to a model, whose answer re-orders and seldom acts.

Here, and nowhere else, the arbiter is called. An answer executes only when kill switch, confidence and reason all allow
it (Phase C); whatever fails leaves the options as they are displayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from routing.jobs import Option
from routing.ladder_state import CycleMemory
from routing.option_match import AmbiguityReason
from routing.options import OptionSet

AUTO_EXECUTE_CONFIDENCE = 0.85
AUTO_EXECUTE_ALLOWED_REASONS: frozenset[AmbiguityReason] = frozenset({AmbiguityReason.NO_DETERMINISTIC_MATCH})
LOW_CONFIDENCE_FLOOR = 0.40
"""Below it an answer counts as `low_confidence` (the product's own figure, ruling A36)."""
AUTO_EXECUTE_FLAG = "NEXT_PUBLIC_LLM_AUTO_EXECUTE_ENABLED"
CLARIFICATION_LLM_FLAG = "NEXT_PUBLIC_CLARIFICATION_LLM_ENABLED"
"""Seed 004 takes this flag for granted and does not name it; the name is the product's own (ruling A36)."""


def is_llm_auto_execute_enabled(environment: Mapping[str, str]) -> bool:
    """Tell whether the kill switch is on: exactly `true`, anything else is off."""
    return environment.get(AUTO_EXECUTE_FLAG) == "true"


@dataclass(frozen=True, slots=True)
class LadderFlags:
    """The two flags, both off by default. Read them for every decision: a rollback then needs no restart."""

    llm_enabled: bool = False
    auto_execute_enabled: bool = False


def read_ladder_flags(environment: Mapping[str, str]) -> LadderFlags:
    """Read both flags as they are now."""
    is_enabled = environment.get(CLARIFICATION_LLM_FLAG) == "true"
    return LadderFlags(llm_enabled=is_enabled, auto_execute_enabled=is_llm_auto_execute_enabled(environment))


class ArbiterRequest(NamedTuple):
    """What the model is asked. The candidates are the options in scope and nothing else."""

    message: str
    candidates: tuple[Option, ...]
    """In displayed order."""
    reason: AmbiguityReason
    earlier: tuple[str, ...] = ()
    """Messages that this clarification could not resolve before, oldest first."""


class Choice(NamedTuple):
    """The model's answer; neither field is to be trusted."""

    option_id: str
    confidence: float


class Failure(StrEnum):
    """Why there is no usable answer."""

    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    TRANSPORT_ERROR = "transport_error"
    ABSTAIN = "abstain"
    LOW_CONFIDENCE = "low_confidence"


ArbiterReply = Choice | Failure
Arbiter = Callable[[ArbiterRequest], ArbiterReply]


class LastChance(NamedTuple):
    """What came of it."""

    order: tuple[str, ...]
    """The candidates in the order in which they are to be shown."""
    suggested: str | None = None
    auto_execute: bool = False
    llm_called: bool = False
    failure: Failure | None = None
    cycle: CycleMemory | None = None
    """The loop guard after this message."""


def try_llm_last_chance(
    request: ArbiterRequest,
    options: OptionSet,
    *,
    arbiter: Arbiter,
    flags: LadderFlags,
    key: str,
    cycle: CycleMemory | None,
) -> LastChance:
    """Ask the model once per cycle.

    Args:
        request: the question; its candidates are the options.
        options: the options in displayed order.
        arbiter: makes the call. It returns a `Failure` for what goes wrong and raises nothing of its own.
        flags: as they are at this decision.
        key: the loop guard's key of this message.
        cycle: the loop guard's memory, if the cycle is the same as at the message before.
    """
    if not flags.llm_enabled:
        return LastChance(options.ids, cycle=cycle)
    if cycle is not None and cycle.key == key:
        return LastChance(options.in_order(cycle.order).ids, cycle=cycle)
    answer = _within_bounds(arbiter(request), options)
    if isinstance(answer, Failure):
        return LastChance(options.ids, llm_called=True, failure=answer, cycle=CycleMemory(key=key, order=options.ids))
    order = options.in_order((answer.option_id,)).ids
    return LastChance(
        order,
        suggested=answer.option_id,
        auto_execute=_may_execute(answer, request.reason, flags),
        llm_called=True,
        cycle=CycleMemory(key=key, order=order),
    )


def _within_bounds(answer: ArbiterReply, options: OptionSet) -> ArbiterReply:
    """An answer outside the options, or with a confidence that is none, is no answer."""
    if isinstance(answer, Failure):
        return answer
    if options.get(answer.option_id) is None or not 0 <= answer.confidence <= 1:
        return Failure.ABSTAIN
    return answer if answer.confidence >= LOW_CONFIDENCE_FLOOR else Failure.LOW_CONFIDENCE


def _may_execute(answer: Choice, reason: AmbiguityReason, flags: LadderFlags) -> bool:
    """The three gates of Phase C."""
    return (
        flags.auto_execute_enabled
        and answer.confidence >= AUTO_EXECUTE_CONFIDENCE
        and reason in AUTO_EXECUTE_ALLOWED_REASONS
    )
