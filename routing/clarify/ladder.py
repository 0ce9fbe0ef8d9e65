"""The clarification ladder of seed 004: a reply is resolved by rules, by one bounded model call, or asked again.

Questions, and messages without an open clarification, pass through. A reply that the rules resolve is executed. One
that is exactly a command and matches no option goes to the commands. The rest reaches one hook for unresolved replies,
where every failure shows the same options again. Nothing is executed on a guess.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from routing.clarify.replies import (
    AmbiguityReason,
    ArbitrationConfidence,
    CommandInput,
    OptionSet,
    Signal,
    Source,
    canonicalize_command_input,
    canonicalize_label,
    classify_arbitration_confidence,
    match_command,
    match_options,
)
from routing.jobs import Option

# The loop guard's memory lasts for one cycle: the same input over the same options of the same set. A new cycle may ask
# the model again.

MAX_REPAIR = 4
"""Unresolved messages kept per clarification."""
_MAX_REPAIR_CHARS = 500


class CycleBoundary(StrEnum):
    """What ends a cycle of the loop guard (seed 004, step 3)."""

    INPUT_CHANGED = "input_changed"
    CANDIDATES_CHANGED = "candidates_changed"
    OPTION_SET_CHANGED = "option_set_changed"
    SELECTION_EXECUTED = "selection_executed"
    CLARIFICATION_CLEARED = "clarification_cleared"
    COMMAND_ESCAPE = "command_escape"
    CHAT_RESET = "chat_reset"


_CLOSING = frozenset({CycleBoundary.SELECTION_EXECUTED, CycleBoundary.CLARIFICATION_CLEARED, CycleBoundary.CHAT_RESET})
"""Boundaries that close the clarification."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CycleMemory(_Value):
    """The cycle in which the model was called, and the order shown after it."""

    key: str
    order: tuple[str, ...]


class LadderState(_Value):
    """State of a conversation's clarification between two messages."""

    active: OptionSet | None = None
    """The options to choose from."""
    other: OptionSet | None = None
    """The other source's options, which a scope cue can select."""
    cycle: CycleMemory | None = None
    repair: tuple[str, ...] = Field(default=(), max_length=MAX_REPAIR)
    """Unresolved messages, newest last: context for the model."""


def guard_key(normalized: str, candidate_ids: Iterable[str], *, option_set_id: str, scope: Source | None = None) -> str:
    """Return the loop guard's key: input, sorted candidates, option set and named scope."""
    return json.dumps([normalized, sorted(candidate_ids), option_set_id, scope])


def end_cycle(state: LadderState, boundary: CycleBoundary) -> LadderState:
    """End the cycle; a boundary that closes the clarification resets the whole state."""
    if boundary in _CLOSING:
        return LadderState()
    return state.model_copy(update={"cycle": None})


def enter_cycle(state: LadderState, key: str) -> LadderState:
    """End the cycle unless the key is the same."""
    if state.cycle is None or state.cycle.key == key:
        return state
    return end_cycle(state, CycleBoundary.INPUT_CHANGED)


def re_anchor(state: LadderState, options: OptionSet, *, other: OptionSet | None, message: str) -> LadderState:
    """Activate options in the order shown, and record the unresolved message."""
    repair = (*state.repair, message[:_MAX_REPAIR_CHARS])[-MAX_REPAIR:]
    return state.model_copy(update={"active": options, "other": other, "repair": repair})


# The model call of an unresolved reply. Its answer re-orders the options; it executes one only if kill switch,
# confidence and reason all allow it (Phase C).

AUTO_EXECUTE_CONFIDENCE = 0.85
AUTO_EXECUTE_ALLOWED_REASONS: frozenset[AmbiguityReason] = frozenset({AmbiguityReason.NO_DETERMINISTIC_MATCH})
LOW_CONFIDENCE_FLOOR = 0.40
"""Answers below it are `low_confidence` (ruling A36)."""
AUTO_EXECUTE_FLAG = "NEXT_PUBLIC_LLM_AUTO_EXECUTE_ENABLED"
CLARIFICATION_LLM_FLAG = "NEXT_PUBLIC_CLARIFICATION_LLM_ENABLED"
"""Seed 004 assumes this flag without naming it (ruling A36)."""


def is_llm_auto_execute_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether the flag is exactly `true`."""
    return environment.get(AUTO_EXECUTE_FLAG) == "true"


@dataclass(frozen=True, slots=True)
class LadderFlags:
    """Feature flags, read for every decision so that a rollback needs no restart."""

    llm_enabled: bool = False
    auto_execute_enabled: bool = False


def read_ladder_flags(environment: Mapping[str, str]) -> LadderFlags:
    """Return the flags in `environment`."""
    is_enabled = environment.get(CLARIFICATION_LLM_FLAG) == "true"
    return LadderFlags(llm_enabled=is_enabled, auto_execute_enabled=is_llm_auto_execute_enabled(environment))


class ArbiterRequest(NamedTuple):
    """The question to the model; only options in scope are candidates."""

    message: str
    candidates: tuple[Option, ...]
    """In displayed order."""
    reason: AmbiguityReason
    earlier: tuple[str, ...] = ()
    """Earlier unresolved messages, oldest first."""


class Choice(NamedTuple):
    """The model's untrusted answer."""

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
    """Result of the model call."""

    order: tuple[str, ...]
    """The candidates in display order."""
    suggested: str | None = None
    auto_execute: bool = False
    llm_called: bool = False
    failure: Failure | None = None
    cycle: CycleMemory | None = None
    """The loop guard's memory after this message."""


def try_llm_last_chance(
    request: ArbiterRequest,
    options: OptionSet,
    *,
    arbiter: Arbiter,
    flags: LadderFlags,
    key: str,
    cycle: CycleMemory | None,
) -> LastChance:
    """Call the model once per cycle.

    Args:
        request: the question; its candidates are the options.
        options: the options in display order.
        arbiter: makes the call; returns a `Failure` instead of raising.
        flags: the flags of this decision.
        key: the loop guard's key of this message.
        cycle: the loop guard's memory, if this cycle has one.
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
    """Return the answer, or a failure if its option or confidence is invalid or too low."""
    if isinstance(answer, Failure):
        return answer
    if options.get(answer.option_id) is None or not 0 <= answer.confidence <= 1:
        return Failure.ABSTAIN
    return answer if answer.confidence >= LOW_CONFIDENCE_FLOOR else Failure.LOW_CONFIDENCE


def _may_execute(answer: Choice, reason: AmbiguityReason, flags: LadderFlags) -> bool:
    """Return whether the three gates of Phase C allow execution."""
    return (
        flags.auto_execute_enabled
        and answer.confidence >= AUTO_EXECUTE_CONFIDENCE
        and reason in AUTO_EXECUTE_ALLOWED_REASONS
    )


class Outcome(StrEnum):
    """What happens with a message."""

    DETERMINISTIC_EXECUTE = "deterministic_execute"
    AUTO_EXECUTE = "auto_execute"
    CLARIFY = "clarify"
    """The options are shown again."""
    NEED_MORE_INFO = "need_more_info"
    """The named scope has no options."""
    EXIT = "exit"
    """Dismissed (`none of these`, `cancel`)."""
    ESCAPE = "escape"
    """Not handled here."""


class HandledByTier(StrEnum):
    """Which part of the ladder handled a message."""

    ACTIVE_OPTIONS = "tier_1b3"
    SCOPE_CUE = "scope_cue"


class PreGate(StrEnum):
    """Decision of the pre-gate, which has only two exclusions."""

    EXCLUDE_QUESTION = "exclude_question"
    EXCLUDE_NO_OPTIONS = "exclude_no_options"
    CONTINUE = "continue"


class LadderEventName(StrEnum):
    """Log events to watch during the rollout."""

    BYPASSED = "clarification_selection_bypassed_command_intent"
    LLM_CALLED = "llm_arbitration_called"
    LLM_FAILED = "llm_arbitration_failed_fallback_clarifier"
    MULTI_MATCH = "clarification_tier1b3_multi_match_reshow"


BYPASS_REASONS = ("exact_command", "strong_request")
"""Why a message bypasses an open clarification."""


class LadderEvent(NamedTuple):
    """An event for the caller to log and count; it never quotes the message."""

    name: LadderEventName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderResult:
    """The decision about a message, and the state for the next."""

    outcome: Outcome
    state: LadderState
    option: Option | None = None
    """The option to execute."""
    order: tuple[str, ...] = ()
    """Ids of the options to show."""
    handled: bool = True
    handled_by_tier: HandledByTier | None = None
    auto_execute: bool = False
    llm_called: bool = False
    reason: AmbiguityReason | None = None
    events: tuple[LadderEvent, ...] = ()


class Scope(NamedTuple):
    """The options that a message chooses from."""

    tier: HandledByTier
    options: OptionSet | None
    rest: OptionSet | None = None
    """The other source's options if these become active."""
    insufficient: bool = False
    """The named source has no options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message with the options in its scope and access to the model."""

    message: str
    text: CommandInput
    tier: HandledByTier
    options: OptionSet
    rest: OptionSet | None
    state: LadderState
    arbiter: Arbiter
    read_flags: Callable[[], LadderFlags]


def climb_ladder(
    message: str,
    state: LadderState,
    *,
    arbiter: Arbiter,
    read_flags: Callable[[], LadderFlags],
    commands: Iterable[str] = (),
    known: AmbiguityReason | None = None,
) -> LadderResult:
    """Decide about a message.

    Args:
        message: the original text.
        state: the state after the previous message.
        arbiter: calls the model, at most once.
        read_flags: reads the flags for each decision that may need the model, so that a rollback is instant.
        commands: the registered commands.
        known: an ambiguity that the options do not show but the caller sees.
    """
    text = canonicalize_command_input(message)
    scope = resolve_scope(text, state)
    if pre_gate(text, scope) is not PreGate.CONTINUE:
        ended = end_cycle(state, CycleBoundary.INPUT_CHANGED)
        return LadderResult(outcome=Outcome.ESCAPE, state=ended, handled=False)
    if text.is_exit and not _is_label(text, scope.options):
        closed = end_cycle(state, CycleBoundary.CLARIFICATION_CLEARED)
        return LadderResult(outcome=Outcome.EXIT, state=closed, handled_by_tier=scope.tier)
    if scope.options is None:
        ended, why = end_cycle(state, CycleBoundary.CANDIDATES_CHANGED), AmbiguityReason.NO_CANDIDATE
        return LadderResult(outcome=Outcome.NEED_MORE_INFO, state=ended, handled_by_tier=scope.tier, reason=why)
    match = match_options(text, scope.options)
    command = match_command(text, commands)
    confidence = classify_arbitration_confidence(text, match, command=command, known=known)
    turn = Turn(
        message=message,
        text=text,
        tier=scope.tier,
        options=scope.options,
        rest=scope.rest,
        state=state,
        arbiter=arbiter,
        read_flags=read_flags,
    )
    return act_on_confidence(turn, confidence)


def resolve_scope(text: CommandInput, state: LadderState) -> Scope:
    """Return the options of the source that a message names, or else the active ones (rules H and I)."""
    active, other = state.active, state.other
    if text.scope is None or _is_label(text, active):
        return Scope(HandledByTier.ACTIVE_OPTIONS, active if active is not None and active.options else None, other)
    for found, rest in ((active, other), (other, active)):
        scoped = found.of_source(text.scope) if found is not None and found.fresh else None
        if found is not None and scoped is not None and scoped.options:
            return Scope(HandledByTier.SCOPE_CUE, scoped, found.without(scoped) or rest)
    is_open = active is not None or (other is not None and other.source == text.scope)
    return Scope(HandledByTier.SCOPE_CUE, None, other, insufficient=is_open)


def pre_gate(text: CommandInput, scope: Scope) -> PreGate:
    """Exclude what the ladder does not handle. The label of an option is never a question."""
    if text.is_question and not _is_label(text, scope.options):
        return PreGate.EXCLUDE_QUESTION
    if scope.options is None and not scope.insufficient:
        return PreGate.EXCLUDE_NO_OPTIONS
    return PreGate.CONTINUE


def _is_label(text: CommandInput, options: OptionSet | None) -> bool:
    """Return whether the whole message is the label of an option."""
    return options is not None and any(text.words == canonicalize_label(option.label) for option in options.options)


def act_on_confidence(turn: Turn, confidence: ArbitrationConfidence) -> LadderResult:
    """Take the branch that the shared classification prescribes."""
    if confidence.signal is Signal.UNRESOLVED:
        return _unresolved_hook(turn, confidence)
    if confidence.signal is Signal.DOWNSTREAM:
        why = BYPASS_REASONS[confidence.command is None]
        return LadderResult(
            outcome=Outcome.ESCAPE,
            state=end_cycle(turn.state, CycleBoundary.COMMAND_ESCAPE),
            handled=False,
            events=(LadderEvent(LadderEventName.BYPASSED, why),),
        )
    return _execute(turn, confidence.winner, Outcome.DETERMINISTIC_EXECUTE)


def _execute(turn: Turn, option_id: str | None, outcome: Outcome, **more: Any) -> LadderResult:
    option = turn.options.get(option_id or "")
    assert option is not None, "only an option in scope wins"
    done = end_cycle(turn.state, CycleBoundary.SELECTION_EXECUTED)
    return LadderResult(outcome=outcome, state=done, option=option, handled_by_tier=turn.tier, **more)


def _unresolved_hook(turn: Turn, confidence: ArbitrationConfidence) -> LadderResult:
    """Handle a reply that the rules cannot resolve; the only way to the model (rule E)."""
    reason = confidence.reason or AmbiguityReason.NO_DETERMINISTIC_MATCH
    key = guard_key(turn.text.normalized, turn.options.ids, option_set_id=turn.options.id, scope=turn.text.scope)
    state = enter_cycle(turn.state, key)
    request = ArbiterRequest(turn.message, turn.options.options, reason, state.repair)
    flags = turn.read_flags()
    chance = try_llm_last_chance(request, turn.options, arbiter=turn.arbiter, flags=flags, key=key, cycle=state.cycle)
    events = [LadderEvent(LadderEventName.LLM_CALLED, reason)] if chance.llm_called else []
    if chance.auto_execute:
        return _execute(
            turn,
            chance.suggested,
            Outcome.AUTO_EXECUTE,
            auto_execute=True,
            llm_called=True,
            reason=reason,
            events=tuple(events),
        )
    if chance.failure is not None:
        events.append(LadderEvent(LadderEventName.LLM_FAILED, chance.failure))
    if confidence.match_count > 1:
        events.append(LadderEvent(LadderEventName.MULTI_MATCH, reason))
    shown = turn.options.in_order(chance.order)
    state = re_anchor(state, shown, other=turn.rest, message=turn.message)
    return LadderResult(
        outcome=Outcome.CLARIFY,
        state=state.model_copy(update={"cycle": chance.cycle}),
        order=shown.ids,
        handled_by_tier=turn.tier,
        llm_called=chance.llm_called,
        reason=reason,
        events=tuple(events),
    )
