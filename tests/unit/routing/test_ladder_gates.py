"""Phase C: the three gates, each alone able to keep an answer of the model from executing."""

from __future__ import annotations

import inspect
from itertools import product
from typing import get_type_hints

import pytest

from routing.clarify import ladder
from routing.clarify.ladder import (
    AUTO_EXECUTE_ALLOWED_REASONS,
    AUTO_EXECUTE_CONFIDENCE,
    AUTO_EXECUTE_FLAG,
    CLARIFICATION_LLM_FLAG,
    LOW_CONFIDENCE_FLOOR,
    ArbiterReply,
    ArbiterRequest,
    Choice,
    Failure,
    HandledByTier,
    LadderFlags,
    LadderState,
    LastChance,
    Outcome,
    climb_ladder,
    is_llm_auto_execute_enabled,
    read_ladder_flags,
    try_llm_last_chance,
)
from routing.clarify.replies import AmbiguityReason
from tests.unit.routing.ladder_world import A2_FIRST, LINKS, WIDGET, Conversation, sure

TYPO = "ope panel d"


def last_chance(
    reply: ArbiterReply, *, reason: AmbiguityReason = AmbiguityReason.NO_DETERMINISTIC_MATCH, auto: bool = True
) -> LastChance:
    return try_llm_last_chance(
        ArbiterRequest(TYPO, LINKS.options, reason),
        LINKS,
        arbiter=lambda _: reply,
        flags=LadderFlags(llm_enabled=True, auto_execute_enabled=auto),
        key="key",
        cycle=None,
    )


@pytest.mark.req("L-020", "L-040", "L-122", "L-123", "L-124", "L-144")
@pytest.mark.parametrize(("switch", "is_sure", "is_allowed"), list(product([True, False], repeat=3)))
def test_only_all_three_gates_together_execute(switch: bool, is_sure: bool, is_allowed: bool) -> None:
    reason = AmbiguityReason.NO_DETERMINISTIC_MATCH if is_allowed else AmbiguityReason.CROSS_SOURCE_TIE
    chance = last_chance(sure("a2", 0.9 if is_sure else 0.6), reason=reason, auto=switch)
    assert chance.auto_execute is (switch and is_sure and is_allowed)
    assert chance.order == A2_FIRST


@pytest.mark.req("L-141", "L-124")
def test_with_all_gates_passed_the_option_is_executed_once() -> None:
    talk = Conversation(reply=sure("a2", 0.93), auto=True)
    result = talk.say(TYPO)
    assert (result.outcome, result.auto_execute, talk.executed) == (Outcome.AUTO_EXECUTE, True, ["a2"])


@pytest.mark.req("L-125", "L-139")
def test_the_kill_switch_is_on_for_exactly_true() -> None:
    assert is_llm_auto_execute_enabled({AUTO_EXECUTE_FLAG: "true"}) is True
    for value in ("", "false", "1", "True", "TRUE", " true", "true ", "yes", "on"):
        assert is_llm_auto_execute_enabled({AUTO_EXECUTE_FLAG: value}) is False
    assert is_llm_auto_execute_enabled({}) is False
    assert AUTO_EXECUTE_FLAG == "NEXT_PUBLIC_LLM_AUTO_EXECUTE_ENABLED"
    assert LadderFlags() == read_ladder_flags({}) == LadderFlags(llm_enabled=False, auto_execute_enabled=False)
    assert read_ladder_flags({CLARIFICATION_LLM_FLAG: "true"}) == LadderFlags(llm_enabled=True)


@pytest.mark.req("L-140", "L-147", "L-128")
def test_with_the_switch_off_a_certain_answer_only_re_orders() -> None:
    talk = Conversation(reply=sure("a2", 1.0), auto=False)
    result = talk.say(TYPO)
    assert (result.outcome, result.order, talk.executed) == (Outcome.CLARIFY, A2_FIRST, [])


@pytest.mark.req("L-142")
def test_the_flags_are_read_for_every_decision() -> None:
    environment = {CLARIFICATION_LLM_FLAG: "true", AUTO_EXECUTE_FLAG: "true"}

    def decide() -> Outcome:
        return climb_ladder(
            TYPO,
            LadderState(active=LINKS),
            arbiter=lambda _: sure("a2"),
            read_flags=lambda: read_ladder_flags(environment),
        ).outcome

    assert decide() is Outcome.AUTO_EXECUTE
    environment[AUTO_EXECUTE_FLAG] = "false"
    assert decide() is Outcome.CLARIFY
    environment[AUTO_EXECUTE_FLAG] = "true"
    assert decide() is Outcome.AUTO_EXECUTE


@pytest.mark.req("L-126", "L-148")
@pytest.mark.parametrize(("confidence", "executes"), [(0.849, False), (0.85, True), (1.0, True), (0.8499999, False)])
def test_the_threshold_is_085(confidence: float, executes: bool) -> None:
    assert AUTO_EXECUTE_CONFIDENCE == 0.85
    chance = last_chance(sure("a2", confidence))
    assert (chance.auto_execute, chance.order) == (executes, A2_FIRST)


@pytest.mark.req("L-126")
@pytest.mark.parametrize("confidence", [float("nan"), float("inf"), float("-inf"), -0.01, -1, 1.0001, 85])
def test_a_confidence_that_is_no_probability_is_no_answer(confidence: float) -> None:
    chance = last_chance(Choice("a2", confidence))
    assert (chance.failure, chance.order, chance.auto_execute) == (Failure.ABSTAIN, LINKS.ids, False)


def test_below_the_floor_an_answer_counts_as_low_confidence() -> None:
    assert LOW_CONFIDENCE_FLOOR == 0.40
    assert last_chance(sure("a2", 0.399)).failure is Failure.LOW_CONFIDENCE
    assert last_chance(sure("a2", 0.399)).order == LINKS.ids
    assert last_chance(sure("a2", 0.40)).order == A2_FIRST


@pytest.mark.req("L-127", "L-129", "L-135", "L-143")
def test_the_allowlist_holds_one_of_six_reasons() -> None:
    assert [reason.value for reason in AmbiguityReason] == [
        "no_deterministic_match",
        "command_selection_collision",
        "multi_match_no_exact_winner",
        "cross_source_tie",
        "typo_ambiguous",
        "no_candidate",
    ]
    assert frozenset({AmbiguityReason.NO_DETERMINISTIC_MATCH}) == AUTO_EXECUTE_ALLOWED_REASONS
    assert isinstance(AUTO_EXECUTE_ALLOWED_REASONS, frozenset)
    assert all(hasattr(ladder, name) for name in ("AUTO_EXECUTE_CONFIDENCE", "is_llm_auto_execute_enabled"))


@pytest.mark.req("L-014", "L-130", "L-131", "L-132", "L-133", "L-134", "L-149")
@pytest.mark.parametrize("reason", sorted(set(AmbiguityReason) - {AmbiguityReason.NO_DETERMINISTIC_MATCH}))
def test_every_other_reason_keeps_a_certain_answer_from_executing(reason: AmbiguityReason) -> None:
    talk = Conversation(reply=sure("a2", 0.99), auto=True, other=WIDGET)
    result = talk.say("panel d", known=reason)
    assert (result.outcome, result.reason, result.order, talk.executed) == (Outcome.CLARIFY, reason, A2_FIRST, [])
    assert last_chance(sure("a2", 0.99), reason=reason).auto_execute is False


@pytest.mark.req("L-130", "L-131", "L-133", "L-134")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("close panel", AmbiguityReason.COMMAND_SELECTION_COLLISION),
        ("panel", AmbiguityReason.MULTI_MATCH_NO_EXACT_WINNER),
        ("panle", AmbiguityReason.TYPO_AMBIGUOUS),
        ("the 9th", AmbiguityReason.NO_CANDIDATE),
    ],
)
def test_the_ladder_finds_these_reasons_by_itself(said: str, reason: AmbiguityReason) -> None:
    talk = Conversation(reply=sure("a2", 0.99), auto=True)
    assert (talk.say(said).reason, talk.executed) == (reason, [])


@pytest.mark.req("L-137", "L-146")
@pytest.mark.parametrize("failure", list(Failure))
def test_no_failure_executes_though_every_gate_is_open(failure: Failure) -> None:
    talk = Conversation(reply=failure, auto=True)
    result = talk.say(TYPO)
    assert (result.auto_execute, talk.executed, last_chance(failure).auto_execute) == (False, [], False)


@pytest.mark.req("L-145")
@pytest.mark.parametrize("scoped", [False, True])
def test_after_an_execution_options_snapshot_repair_memory_and_guard_are_gone(scoped: bool) -> None:
    talk = Conversation(*((WIDGET,) if scoped else (LINKS,)), other=LINKS if scoped else WIDGET, reply=sure("a2", 0.6))
    cue = " from chat" if scoped else ""
    talk.say("xyzzy" + cue)
    assert talk.state.cycle is not None
    assert talk.state.repair
    talk.reply, talk.flags = sure("a2", 0.95), Conversation(auto=True).flags
    result = talk.say(TYPO + cue)
    assert result.outcome is Outcome.AUTO_EXECUTE
    assert result.handled_by_tier is (HandledByTier.SCOPE_CUE if scoped else HandledByTier.ACTIVE_OPTIONS)
    assert talk.state == LadderState()


@pytest.mark.req("L-144")
def test_the_last_chance_says_whether_to_execute() -> None:
    assert inspect.signature(try_llm_last_chance).return_annotation == "LastChance"
    assert get_type_hints(LastChance)["auto_execute"] is bool
