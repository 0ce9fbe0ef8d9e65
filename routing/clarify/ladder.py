"""The ladder of seed 004: a reply to an open clarification is resolved by rule, or by a bounded model, or asked again.

A message with no open clarification, and a question, pass through. Everything else is handled here: what rules resolve
is executed; what is exactly a command and touches no option goes to the commands; the rest reaches one unresolved hook,
and whatever goes wrong there shows the same options again. Nothing is ever executed on a guess.
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

# What the ladder remembers between two messages of one conversation: a value that is stored and passed back in.
#
# The loop guard's memory lives for one cycle: the same input over the same options of the same set. Whatever ends the
# cycle ends the memory, so that a new cycle may ask the model again.

MAX_REPAIR = 4
"""Unresolved messages of a clarification that are kept."""
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
"""Boundaries after which no clarification is open."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class CycleMemory(_Value):
    """That the model was asked in this cycle, and the order that was shown after it."""

    key: str
    order: tuple[str, ...]


class LadderState(_Value):
    """The clarification of one conversation."""

    active: OptionSet | None = None
    """The options that a reply chooses from."""
    other: OptionSet | None = None
    """The snapshot of the other source's options, to which a scope cue can lead back."""
    cycle: CycleMemory | None = None
    repair: tuple[str, ...] = Field(default=(), max_length=MAX_REPAIR)
    """Messages that this clarification could not resolve, newest last: context for the model."""


def guard_key(normalized: str, candidate_ids: Iterable[str], *, option_set_id: str, scope: Source | None = None) -> str:
    """Return the loop guard's key: the input, the sorted candidates, the option set, and the scope that was named."""
    return json.dumps([normalized, sorted(candidate_ids), option_set_id, scope])


def end_cycle(state: LadderState, boundary: CycleBoundary) -> LadderState:
    """Forget the cycle, and with a closed clarification its options, snapshot and repair memory too."""
    if boundary in _CLOSING:
        return LadderState()
    return state.model_copy(update={"cycle": None})


def enter_cycle(state: LadderState, key: str) -> LadderState:
    """Keep the memory only while the key is the same: another input, candidate set or option set is a new cycle."""
    if state.cycle is None or state.cycle.key == key:
        return state
    return end_cycle(state, CycleBoundary.INPUT_CHANGED)


def show_options(state: LadderState, options: OptionSet) -> LadderState:
    """Open a clarification with new options; those of the other source stay within reach of a scope cue."""
    other = state.active if state.active is not None and state.active.source != options.source else state.other
    if other is not None and other.source == options.source:
        other = None
    return LadderState(active=options, other=other)


def re_anchor(state: LadderState, options: OptionSet, *, other: OptionSet | None, message: str) -> LadderState:
    """Make these options the active ones, in the order shown, and remember the message that they did not resolve."""
    repair = (*state.repair, message[:_MAX_REPAIR_CHARS])[-MAX_REPAIR:]
    return state.model_copy(update={"active": options, "other": other, "repair": repair})


# The last chance of an unresolved reply: one bounded question to a model, whose answer re-orders and seldom acts.
#
# Here, and nowhere else, the arbiter is called. An answer executes only when kill switch, confidence and reason all
# allow
# it (Phase C); whatever fails leaves the options as they are displayed.

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


class Outcome(StrEnum):
    """What becomes of a message."""

    DETERMINISTIC_EXECUTE = "deterministic_execute"
    AUTO_EXECUTE = "auto_execute"
    CLARIFY = "clarify"
    """The options are shown again."""
    NEED_MORE_INFO = "need_more_info"
    """The scope that was named has no options; the reader is asked to say more."""
    EXIT = "exit"
    """The clarification was dismissed (`none of these`, `cancel`)."""
    ESCAPE = "escape"
    """Not handled here."""


class HandledByTier(StrEnum):
    """Which part of the ladder handled a message."""

    ACTIVE_OPTIONS = "tier_1b3"
    SCOPE_CUE = "scope_cue"


class PreGate(StrEnum):
    """What the pre-gate may decide: two exclusions, and no more."""

    EXCLUDE_QUESTION = "exclude_question"
    EXCLUDE_NO_OPTIONS = "exclude_no_options"
    CONTINUE = "continue"


class LadderEventName(StrEnum):
    """The log events that are watched while the ladder is rolled out."""

    BYPASSED = "clarification_selection_bypassed_command_intent"
    LLM_CALLED = "llm_arbitration_called"
    LLM_FAILED = "llm_arbitration_failed_fallback_clarifier"
    MULTI_MATCH = "clarification_tier1b3_multi_match_reshow"


BYPASS_REASONS = ("exact_command", "strong_request")
"""Why a message is let go although a clarification is open."""


class LadderEvent(NamedTuple):
    """One event, for the caller to log and count. It never repeats what was written."""

    name: LadderEventName
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderResult:
    """A decision about one message, and the state for the next one."""

    outcome: Outcome
    state: LadderState
    option: Option | None = None
    """The option to execute."""
    order: tuple[str, ...] = ()
    """Ids of the options to show, in this order."""
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
    """The options of the other source, once these are the active ones."""
    insufficient: bool = False
    """A source was named that has no options to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A message with the options in its scope, and what the model may be asked with."""

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
    """Decide about one message.

    Args:
        message: as it was written.
        state: the clarification that is open, as the decision before left it.
        arbiter: asks the model; called at most once.
        read_flags: reads the flags; called for every decision that may need the model, so that a rollback is instant.
        commands: the registered commands.
        known: an ambiguity of this message that the caller sees and the options do not show.
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
    """Find the options that a message chooses from: those of the source that it names, or else the active ones.

    A source that is named is looked for first, whatever list is on the screen (rules H and I).
    """
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
    """Exclude what the ladder is not for. A question that is an option's own label is no question."""
    if text.is_question and not _is_label(text, scope.options):
        return PreGate.EXCLUDE_QUESTION
    if scope.options is None and not scope.insufficient:
        return PreGate.EXCLUDE_NO_OPTIONS
    return PreGate.CONTINUE


def _is_label(text: CommandInput, options: OptionSet | None) -> bool:
    """Tell whether the whole message is the label of an option."""
    return options is not None and any(text.words == canonicalize_label(option.label) for option in options.options)


def act_on_confidence(turn: Turn, confidence: ArbitrationConfidence) -> LadderResult:
    """Take the one branch that the shared classification allows."""
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
    """The one place where a reply that rules cannot resolve is taken to the model (rule E)."""
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
