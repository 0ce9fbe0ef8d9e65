"""The ladder of seed 004: a reply to an open clarification is resolved by rule, or by a bounded model, or asked again.

A message with no open clarification, and a question, pass through. Everything else is handled here: what rules resolve
is executed; what is exactly a command and touches no option goes to the commands; the rest reaches one unresolved hook,
and whatever goes wrong there shows the same options again. Nothing is ever executed on a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from routing.command_input import CommandInput, canonicalize_command_input, canonicalize_label
from routing.command_matcher import match_command
from routing.jobs import Option
from routing.ladder_state import CycleBoundary, LadderState, end_cycle, enter_cycle, guard_key, re_anchor
from routing.llm_fallback import Arbiter, ArbiterRequest, LadderFlags, try_llm_last_chance
from routing.option_match import (
    AmbiguityReason,
    ArbitrationConfidence,
    Signal,
    classify_arbitration_confidence,
    match_options,
)
from routing.options import OptionSet


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
        message=message, text=text, tier=scope.tier, options=scope.options, rest=scope.rest, state=state,
        arbiter=arbiter, read_flags=read_flags,
    )  # fmt: skip
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
            turn, chance.suggested, Outcome.AUTO_EXECUTE, auto_execute=True, llm_called=True, reason=reason,
            events=tuple(events),
        )  # fmt: skip
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
