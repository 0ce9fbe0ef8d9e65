"""The ladder as a whole: rungs, rules A to I, scope cues, exits, and the seed's integration cases to the letter."""

from __future__ import annotations

import ast
import inspect
import string
from itertools import product
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
    CycleBoundary,
    Failure,
    HandledByTier,
    LadderFlags,
    LadderResult,
    LadderState,
    LastChance,
    Outcome,
    climb_ladder,
    end_cycle,
    guard_key,
    is_llm_auto_execute_enabled,
    read_ladder_flags,
    try_llm_last_chance,
)
from routing.clarify.replies import AmbiguityReason, DownstreamTier, OptionSet, Source
from routing.jobs import Option
from tests.unit.routing.clarify.conversation import (
    A2_FIRST,
    COMMANDS,
    INVOICES,
    LINKS,
    RECENT,
    WIDGET,
    Conversation,
    event_names,
    options_of,
    sure,
)

TYPO = "can you ope panel d pls"
MIXED = OptionSet(id="mixed", source=Source.CHAT, options=(*WIDGET.options, *LINKS.options))


# --- rungs -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("L-002", "L-065", "L-028")
@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("Links Panel D", "a2"),
        ("links panels", "a1"),
        ("first", "a1"),
        ("2", "a2"),
        ("the second one", "a2"),
        ("last", "a3"),
        ("the last one please", "a3"),
        ("2nd", "a2"),
        ("#3", "a3"),
        ("option 2", "a2"),
        ("panel e", "a3"),
    ],
)
def test_an_exact_label_a_place_and_distinctive_words_execute_without_the_model(said: str, wanted: str) -> None:
    talk = Conversation(reply=sure("a1"))
    result = talk.say(said)
    assert result.outcome is Outcome.DETERMINISTIC_EXECUTE
    assert (talk.executed, talk.asked, result.llm_called, result.auto_execute) == ([wanted], [], False, False)


@pytest.mark.req("L-002", "L-065")
@pytest.mark.parametrize("said", ["invoice march", "Invoice March please", "open the invoice march"])
def test_an_exact_label_wins_over_a_longer_one_that_begins_with_it(said: str) -> None:
    talk = Conversation(INVOICES, reply=sure("b3"))
    assert (talk.say(said).option, talk.asked) == (INVOICES.options[0], [])


@pytest.mark.req("L-065")
@pytest.mark.parametrize(("said", "wanted"), [("2", 0), ("first", 1), ("second", 1)])
def test_an_exact_label_wins_over_a_place(said: str, wanted: int) -> None:
    options = options_of("2", "First", "Other")
    assert Conversation(options).say(said).option == options.options[wanted]


@pytest.mark.req("L-006", "L-024", "L-050", "L-102")
@pytest.mark.parametrize("said", ["ope panel d", "cancel", "first", "make the header blue", "delete it all in chat"])
def test_with_no_open_clarification_every_message_passes_through(said: str) -> None:
    talk = Conversation(None, reply=sure("a1"), auto=True)
    result = talk.say(said)
    assert (result.outcome, result.handled, result.handled_by_tier) == (Outcome.ESCAPE, False, None)
    assert talk.asked == []


@pytest.mark.req("L-016", "L-019", "L-072", "L-115", "L-140", "L-147", "L-125", "L-128", "L-123")
def test_a_suggestion_puts_its_option_first_keeps_the_set_and_executes_nothing_by_default() -> None:
    talk = Conversation(reply=sure("a3", 0.99), other=WIDGET)
    result = talk.say(TYPO)
    assert (result.order, result.auto_execute, talk.executed) == (("a3", "a1", "a2"), False, [])
    assert (set(result.order), talk.pools) == (set(LINKS.ids), [set(LINKS.ids)])
    assert LadderFlags() == read_ladder_flags({}) == LadderFlags(llm_enabled=False, auto_execute_enabled=False)


# --- pre-gate and escape ---------------------------------------------------------------------------------------------


@pytest.mark.req("L-024", "L-060", "L-138", "L-152", "L-102", "L-146")
@pytest.mark.parametrize(
    "said", ["what is panel d?", "How do I find panel d", "explain panel d", "should I choose panel d"]
)
def test_a_question_falls_through_before_the_model(said: str) -> None:
    talk = Conversation(reply=sure("a2"), auto=True)
    result = talk.say(said)
    assert (result.outcome, result.handled, talk.asked, talk.executed) == (Outcome.ESCAPE, False, [], [])
    assert (result.auto_execute, len(talk.dispatched)) == (False, 1)


def test_the_label_of_an_option_is_no_question_and_no_exit() -> None:
    options = options_of("What is new", "Cancel", "From chat")
    for number, label in enumerate(("what is new", "Cancel", "from chat"), start=1):
        assert Conversation(options).say(label).option == options.options[number - 1]


@pytest.mark.req("L-062", "L-114", "L-075", "L-024", "L-117", "L-146", "L-102")
def test_a_flag_that_is_off_asks_nobody_and_still_shows_the_options() -> None:
    talk = Conversation(reply=sure("a2"), llm=False, auto=True)
    result = talk.say(TYPO)
    assert (result.outcome, result.handled, result.order) == (Outcome.CLARIFY, True, LINKS.ids)
    assert (talk.asked, result.llm_called, result.events, talk.state.cycle) == ([], False, (), None)


@pytest.mark.req("L-066", "L-100")
def test_a_registered_command_escapes_only_when_it_shares_no_word_with_the_options() -> None:
    assert Conversation(LINKS).say("open recent").outcome is Outcome.ESCAPE
    talk = Conversation(RECENT, reply=sure("c1", 0.99), auto=True)
    kept = talk.say("open recent")
    assert (kept.outcome, kept.reason) == (Outcome.CLARIFY, AmbiguityReason.COMMAND_SELECTION_COLLISION)
    for said in ("close panel", "open recent files", "close sidebar"):
        assert Conversation(LINKS).say(said).outcome is Outcome.CLARIFY
    assert Conversation(LINKS, commands=("open last",)).say("open recent").outcome is Outcome.CLARIFY


def test_two_commands_that_read_the_same_are_no_certain_command() -> None:
    assert Conversation(commands=("open recent", "Open Recent!")).say("open recent").outcome is Outcome.CLARIFY


def test_a_strong_request_about_something_else_escapes_and_a_weak_one_stays() -> None:
    strong = "delete src/app.ts, run the tests and deploy https://acme.dev"
    assert Conversation().say(strong).outcome is Outcome.ESCAPE
    assert Conversation().say(strong + " for panel d").outcome is Outcome.CLARIFY
    assert Conversation().say("fix the typo").outcome is Outcome.CLARIFY


# --- exits (A30) -----------------------------------------------------------------------------------------------------


@pytest.mark.req("L-080", "L-146")
@pytest.mark.parametrize("said", ["none of these", "Cancel.", "never mind", "cancel please", "no thanks"])
def test_every_clarifier_can_be_left_and_the_exits_are_no_options(said: str) -> None:
    talk = Conversation(reply=sure("a1"), auto=True, other=WIDGET)
    talk.say("panel")
    assert talk.pools == [set(LINKS.ids)]
    result = talk.say(said)
    assert (result.outcome, result.handled, result.auto_execute, talk.executed) == (Outcome.EXIT, True, False, [])
    assert talk.state == LadderState()


# --- scope cues ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cue", ["from widget", "in the widget", "from the widgets"])
def test_a_widget_can_be_named_as_well(cue: str) -> None:
    talk = Conversation(LINKS, other=WIDGET, reply=sure("w3"))
    assert talk.say(f"opne calender {cue}").order == ("w3", "w1", "w2")
    assert talk.pools == [set(WIDGET.ids)]


@pytest.mark.req("L-026", "L-037", "L-045", "L-095", "L-112")
def test_the_pool_of_a_scope_holds_no_option_of_the_other_source() -> None:
    apart = Conversation(WIDGET, other=LINKS)
    apart.say("ope panel d from chat")
    mixed = Conversation(MIXED)
    mixed.say("ope panel d from chat")
    assert apart.pools == mixed.pools == [set(LINKS.ids)]
    assert mixed.state.other is not None
    assert mixed.state.other.ids == WIDGET.ids


@pytest.mark.req("L-096", "L-097", "L-113")
@pytest.mark.parametrize(
    "chat", [None, LINKS.model_copy(update={"fresh": False}), LINKS.model_copy(update={"options": ()})]
)
def test_a_scope_whose_options_are_gone_asks_for_more_and_touches_no_widget(chat: OptionSet | None) -> None:
    talk = Conversation(WIDGET, other=chat, reply=sure("w2", 0.99), auto=True)
    result = talk.say("ope panel d from chat")
    assert (result.outcome, result.handled, result.handled_by_tier) == (
        Outcome.NEED_MORE_INFO,
        True,
        HandledByTier.SCOPE_CUE,
    )
    assert (talk.asked, talk.executed, result.order) == ([], [], ())


@pytest.mark.req("L-052", "L-091", "L-092")
@pytest.mark.parametrize(
    "said",
    ["panel d", "first", "last", "the second one", "panel", "ope panel d", "Links Panels", "budget", "plz opn it", "9"],
)
@pytest.mark.parametrize("reply", [sure("a2"), sure("a2", 0.5), Failure.TIMEOUT])
def test_a_scope_cue_decides_exactly_as_the_active_options_do(said: str, reply: ArbiterReply) -> None:
    plain, scoped = (
        Conversation(LINKS, reply=reply, auto=True),
        Conversation(WIDGET, other=LINKS, reply=reply, auto=True),
    )
    here, there = plain.say(said), scoped.say(f"{said} from chat")
    assert (here.outcome, here.option, here.order, here.reason, here.events) == (
        there.outcome,
        there.option,
        there.order,
        there.reason,
        there.events,
    )
    assert plain.pools == scoped.pools


@pytest.mark.req("L-093")
def test_after_a_re_order_a_place_means_the_displayed_order_in_either_scope() -> None:
    talk = Conversation(LINKS, reply=sure("a3", 0.6))
    talk.say("ope panel")
    assert talk.say("1").option == LINKS.options[2]
    widget = Conversation(WIDGET, other=LINKS, reply=sure("a3", 0.6))
    widget.say("ope panel from chat")
    assert widget.state.other == WIDGET
    assert widget.say("1").option == LINKS.options[2]


def test_a_question_with_a_scope_cue_stays_a_question() -> None:
    assert Conversation(WIDGET, other=LINKS).say("what is panel d from chat?").handled is False


def test_a_scope_cue_never_escapes_to_a_command() -> None:
    talk = Conversation(LINKS, reply=Failure.ABSTAIN)
    assert talk.say("open recent from chat").outcome is Outcome.CLARIFY
    assert Conversation(RECENT).say("open recent from chat").option == RECENT.options[0]


# --- the seed's integration cases ------------------------------------------------------------------------------------


@pytest.mark.req("L-005", "L-013", "L-105", "L-106")
def test_integration_1_typo_and_politeness_show_the_links_again_in_a_stable_order() -> None:
    talk = Conversation(reply=sure("a2", 0.9))
    first = talk.say(TYPO)
    again = talk.say(TYPO)
    assert (first.handled, again.handled, talk.dispatched) == (True, True, [])
    assert first.order == again.order == A2_FIRST
    assert Conversation().say("can you ope panel d").handled is True


@pytest.mark.req("L-097", "L-107", "L-108")
def test_integration_2_a_scope_cue_takes_the_chat_ladder_though_a_widget_is_active() -> None:
    talk = Conversation(WIDGET, other=LINKS, reply=sure("a2", 0.9))
    result = talk.say("can you ope panel d from chat pls")
    assert (result.handled_by_tier, result.order, talk.pools) == (HandledByTier.SCOPE_CUE, A2_FIRST, [set(LINKS.ids)])


@pytest.mark.req("L-109")
def test_integration_3_open_recent_executes_recent_when_it_is_meant() -> None:
    for options in (None, LINKS):
        talk = Conversation(options)
        talk.say("open recent")
        ((tier, command),) = talk.dispatched
        assert (tier, command) == (DownstreamTier.COMMAND, "open recent")
    chosen = Conversation(RECENT)
    chosen.say("recent")
    assert (chosen.executed, chosen.dispatched, chosen.asked) == (["c1"], [], [])


# --- events ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("L-117", "L-118", "L-088")
@pytest.mark.parametrize("failure", list(Failure))
def test_each_attempt_is_told_and_each_failure_with_its_reason(failure: Failure) -> None:
    result = Conversation(reply=failure).say(TYPO)
    assert [tuple(event) for event in result.events] == [
        ("llm_arbitration_called", "no_deterministic_match"),
        ("llm_arbitration_failed_fallback_clarifier", failure.value),
    ]


@pytest.mark.req("L-119")
def test_many_matches_that_are_shown_again_are_told() -> None:
    many, none = Conversation(reply=sure("a2")), Conversation(reply=sure("a2"))
    assert event_names(many.say("panel")) == ["llm_arbitration_called", "clarification_tier1b3_multi_match_reshow"]
    assert event_names(many.say("panel")) == ["clarification_tier1b3_multi_match_reshow"]
    assert event_names(none.say(TYPO)) == ["llm_arbitration_called"]


def test_no_event_repeats_what_was_written() -> None:
    for said in ("xyzzy hunter2", "panel hunter2", "links", "open recent", "close panel d"):
        result = Conversation(reply=Failure.TIMEOUT).say(said)
        told = " ".join(event.reason for event in result.events)
        assert not {"xyzzy", "hunter2", "links", "recent", "close"} & set(told.replace("_", " ").split())


# Phase C: the three gates, each alone able to keep an answer of the model from executing.

MISSPELT = "ope panel d"


def last_chance(
    reply: ArbiterReply, *, reason: AmbiguityReason = AmbiguityReason.NO_DETERMINISTIC_MATCH, auto: bool = True
) -> LastChance:
    return try_llm_last_chance(
        ArbiterRequest(MISSPELT, LINKS.options, reason),
        LINKS,
        arbiter=lambda _: reply,
        flags=LadderFlags(llm_enabled=True, auto_execute_enabled=auto),
        key="key",
        cycle=None,
    )


@pytest.mark.req("L-020", "L-040", "L-122", "L-123", "L-124", "L-144", "L-128")
@pytest.mark.parametrize(("switch", "is_sure", "is_allowed"), list(product([True, False], repeat=3)))
def test_only_all_three_gates_together_execute(switch: bool, is_sure: bool, is_allowed: bool) -> None:
    reason = AmbiguityReason.NO_DETERMINISTIC_MATCH if is_allowed else AmbiguityReason.CROSS_SOURCE_TIE
    chance = last_chance(sure("a2", 0.9 if is_sure else 0.6), reason=reason, auto=switch)
    assert chance.auto_execute is (switch and is_sure and is_allowed)
    assert chance.order == A2_FIRST
    talk = Conversation(reply=sure("a2", 0.9 if is_sure else 0.6), auto=switch)
    result = talk.say(MISSPELT, known=None if is_allowed else reason)
    if chance.auto_execute:
        assert (result.outcome, talk.executed) == (Outcome.AUTO_EXECUTE, ["a2"])
    else:
        assert (result.outcome, result.order, talk.executed) == (Outcome.CLARIFY, A2_FIRST, [])


@pytest.mark.req("L-114", "L-125", "L-139")
def test_the_kill_switch_is_on_for_exactly_true() -> None:
    assert is_llm_auto_execute_enabled({AUTO_EXECUTE_FLAG: "true"}) is True
    for value in ("", "false", "1", "True", "TRUE", " true", "true ", "yes", "on"):
        assert is_llm_auto_execute_enabled({AUTO_EXECUTE_FLAG: value}) is False
    assert is_llm_auto_execute_enabled({}) is False
    assert AUTO_EXECUTE_FLAG == "NEXT_PUBLIC_LLM_AUTO_EXECUTE_ENABLED"
    assert LadderFlags() == read_ladder_flags({}) == LadderFlags(llm_enabled=False, auto_execute_enabled=False)
    assert read_ladder_flags({CLARIFICATION_LLM_FLAG: "true"}) == LadderFlags(llm_enabled=True)


@pytest.mark.req("L-142", "L-125")
def test_the_flags_are_read_for_every_decision() -> None:
    environment = {CLARIFICATION_LLM_FLAG: "true", AUTO_EXECUTE_FLAG: "true"}

    def decide() -> Outcome:
        return climb_ladder(
            MISSPELT,
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
    talk = Conversation(reply=sure("a2", confidence), auto=True)
    assert talk.say(MISSPELT).order == (() if executes else A2_FIRST)
    assert talk.executed == (["a2"] if executes else [])


@pytest.mark.req("L-126")
@pytest.mark.parametrize("confidence", [float("nan"), float("inf"), float("-inf"), -0.01, -1, 1.0001, 85])
def test_a_confidence_that_is_no_probability_is_no_answer(confidence: float) -> None:
    chance = last_chance(Choice("a2", confidence))
    assert (chance.failure, chance.order, chance.auto_execute) == (Failure.ABSTAIN, LINKS.ids, False)


@pytest.mark.req("L-004")
def test_below_the_floor_an_answer_counts_as_low_confidence() -> None:
    assert LOW_CONFIDENCE_FLOOR == 0.40
    assert last_chance(sure("a2", 0.399)).failure is Failure.LOW_CONFIDENCE
    assert last_chance(sure("a2", 0.399)).order == LINKS.ids
    assert last_chance(sure("a2", 0.40)).order == A2_FIRST


@pytest.mark.req("L-127", "L-129", "L-135")
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


@pytest.mark.req("L-143")
def test_what_allows_execution_is_defined_in_the_module_of_the_model_s_last_chance() -> None:
    named: set[str] = set()
    for node in ast.parse(inspect.getsource(ladder)).body:
        if isinstance(node, ast.FunctionDef):
            named.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named |= {target.id for target in targets if isinstance(target, ast.Name)}
    gates = {"AUTO_EXECUTE_CONFIDENCE", "AUTO_EXECUTE_ALLOWED_REASONS", "is_llm_auto_execute_enabled"}
    assert gates | {"try_llm_last_chance"} <= named


@pytest.mark.req("L-014", "L-130", "L-131", "L-132", "L-133", "L-134", "L-149", "L-127", "L-129")
@pytest.mark.parametrize("reason", sorted(set(AmbiguityReason) - {AmbiguityReason.NO_DETERMINISTIC_MATCH}))
def test_every_other_reason_keeps_a_certain_answer_from_executing(reason: AmbiguityReason) -> None:
    talk = Conversation(reply=sure("a2", 0.99), auto=True, other=WIDGET)
    result = talk.say("panel d", known=reason)
    assert (result.outcome, result.reason, result.order, talk.executed) == (Outcome.CLARIFY, reason, A2_FIRST, [])
    assert last_chance(sure("a2", 0.99), reason=reason).auto_execute is False


@pytest.mark.req("L-130", "L-131", "L-133", "L-134", "L-003", "L-051", "L-069", "L-070", "L-022", "L-033")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("close panel", AmbiguityReason.COMMAND_SELECTION_COLLISION),
        ("close panel d", AmbiguityReason.COMMAND_SELECTION_COLLISION),
        ("close panel now or never", AmbiguityReason.COMMAND_SELECTION_COLLISION),
        ("open links", AmbiguityReason.COMMAND_SELECTION_COLLISION),
        ("panel", AmbiguityReason.MULTI_MATCH_NO_EXACT_WINNER),
        ("panle", AmbiguityReason.TYPO_AMBIGUOUS),
        ("the 9th", AmbiguityReason.NO_CANDIDATE),
        ("ope panel d", AmbiguityReason.NO_DETERMINISTIC_MATCH),
    ],
)
def test_the_ladder_finds_these_reasons_by_itself(said: str, reason: AmbiguityReason) -> None:
    talk = Conversation(reply=sure("a2", 0.99), auto=True, other=WIDGET, commands=(*COMMANDS, "open links"))
    executed = ["a2"] if reason is AmbiguityReason.NO_DETERMINISTIC_MATCH else []
    assert (talk.say(said).reason, talk.executed) == (reason, executed)
    assert ([request.reason for request in talk.asked], talk.pools) == ([reason], [set(LINKS.ids)])


@pytest.mark.req("L-145")
@pytest.mark.parametrize("scoped", [False, True])
def test_after_an_execution_options_snapshot_repair_memory_and_guard_are_gone(scoped: bool) -> None:
    talk = Conversation(*((WIDGET,) if scoped else (LINKS,)), other=LINKS if scoped else WIDGET, reply=sure("a2", 0.6))
    cue = " from chat" if scoped else ""
    talk.say("xyzzy" + cue)
    assert talk.state.cycle is not None
    assert talk.state.repair
    talk.reply, talk.flags = sure("a2", 0.95), Conversation(auto=True).flags
    result = talk.say(MISSPELT + cue)
    assert result.outcome is Outcome.AUTO_EXECUTE
    assert result.handled_by_tier is (HandledByTier.SCOPE_CUE if scoped else HandledByTier.ACTIVE_OPTIONS)
    assert talk.state == LadderState()


@pytest.mark.req("L-144")
def test_the_last_chance_says_whether_to_execute() -> None:
    assert inspect.signature(try_llm_last_chance).return_annotation == "LastChance"
    assert get_type_hints(LastChance)["auto_execute"] is bool


# The loop guard: one call per cycle, what the key is made of, what ends a cycle, and the order that stays.

SAID = "ope panel d"


@pytest.mark.req("L-023", "L-034", "L-084", "L-085", "L-103", "L-104", "L-032", "L-083", "L-136", "L-150", "L-146")
def test_the_same_message_in_one_cycle_asks_once_keeps_the_order_and_executes_nothing() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    first = talk.say(SAID)
    talk.reply, talk.flags = sure("a3", 0.99), Conversation(auto=True).flags
    later = [talk.say("Can you OPE panel d, please?"), talk.say(SAID)]
    assert (len(talk.asked), talk.executed) == (1, [])
    assert [(result.outcome, result.auto_execute) for result in later] == [(Outcome.CLARIFY, False)] * 2
    assert [result.order for result in (first, *later)] == [A2_FIRST] * 3
    assert [result.llm_called for result in (first, *later)] == [True, False, False]


@pytest.mark.req("L-073", "L-074")
def test_the_key_sorts_the_candidates_and_holds_input_set_and_scope() -> None:
    key = guard_key("x", ("b", "a"), option_set_id="s", scope=None)
    assert key == guard_key("x", ("a", "b"), option_set_id="s", scope=None)
    others = {
        guard_key("y", ("a", "b"), option_set_id="s"),
        guard_key("x", ("a",), option_set_id="s"),
        guard_key("x", ("a", "b"), option_set_id="t"),
        guard_key("x", ("a", "b"), option_set_id="s", scope=Source.CHAT),
        guard_key("x", ("a", "b"), option_set_id="s", scope=Source.WIDGET),
    }
    assert key not in others
    assert len(others) == 5


@pytest.mark.req("L-073")
def test_the_parts_of_the_key_cannot_run_into_each_other() -> None:
    keys = {
        guard_key("x", ("a,b",), option_set_id="s"),
        guard_key("x", ("a", "b"), option_set_id="s"),
        guard_key('x", ["a"', ("b",), option_set_id="s"),
        guard_key("x", (), option_set_id='a", "b'),
    }
    assert len(keys) == 4


@pytest.mark.req("L-075", "L-103", "L-104", "L-032")
def test_the_guard_is_set_by_an_attempt_failed_or_not_and_by_nothing_else() -> None:
    for reply in (*Failure, sure("a2", 0.8)):
        attempted = Conversation(reply=reply)
        attempted.say(SAID)
        attempted.say(SAID)
        assert len(attempted.asked) == 1
    for said in ("what is panel d?", "open recent", "none of these", "panel d"):
        talk = Conversation()
        talk.say(said)
        assert talk.state.cycle is None


@pytest.mark.req("L-075", "L-103", "L-032")
def test_a_cycle_that_began_with_the_flag_off_may_still_ask() -> None:
    talk = Conversation(llm=False, reply=sure("a2"))
    talk.say(SAID)
    talk.flags = Conversation(llm=True).flags
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-076")
def test_a_question_in_between_is_another_input() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.say("what is panel d?")
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-073")
@pytest.mark.req("L-077", "L-103", "L-032", "L-078")
@pytest.mark.parametrize("change", [{"options": LINKS.options[:2]}, {"id": "set-2"}], ids=["candidates", "set"])
def test_other_candidates_and_another_set_of_the_same_are_another_cycle(change: dict[str, Any]) -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.state = talk.state.model_copy(update={"active": LINKS.model_copy(update=change)})
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-073")
def test_the_same_options_in_another_order_are_the_same_cycle() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.state = talk.state.model_copy(update={"active": LINKS.in_order(("a3", "a1"))})
    assert talk.say(SAID).order == A2_FIRST
    assert len(talk.asked) == 1


@pytest.mark.req("L-079")
def test_an_executed_selection_ends_the_cycle() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.say("last")
    assert talk.state.cycle is None
    talk.state = talk.state.model_copy(update={"active": LINKS})
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-081")
def test_an_escape_to_a_command_ends_the_cycle_and_keeps_the_options() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.say("open recent")
    assert talk.state.cycle is None
    assert talk.state.active is not None
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-080", "L-082", "L-103", "L-032")
@pytest.mark.parametrize("boundary", list(CycleBoundary))
def test_every_boundary_ends_the_cycle_and_a_cleared_clarification_or_chat_leaves_nothing(
    boundary: CycleBoundary,
) -> None:
    talk = Conversation(reply=sure("a2", 0.8), other=WIDGET)
    talk.say(SAID)
    assert talk.state.cycle is not None
    ended = end_cycle(talk.state, boundary)
    assert ended.cycle is None
    if boundary in (CycleBoundary.CLARIFICATION_CLEARED, CycleBoundary.CHAT_RESET):
        assert ended == LadderState()


def test_there_are_the_seven_boundaries_of_the_seed() -> None:
    assert len(CycleBoundary) == 7


@pytest.mark.req("L-074")
def test_the_same_message_in_another_scope_is_another_cycle() -> None:
    talk = Conversation(LINKS, other=WIDGET, reply=Failure.ABSTAIN)
    for cue in ("", " from chat", " from widget"):
        talk.say(SAID + cue)
    assert talk.pools == [set(LINKS.ids), set(LINKS.ids), set(WIDGET.ids)]


def test_unresolved_messages_are_remembered_for_the_model_up_to_a_bound() -> None:
    talk = Conversation(reply=Failure.ABSTAIN)
    for number in range(6):
        talk.say(f"xyzzy {number} {'y' * 2000}")
    assert [len(request.earlier) for request in talk.asked] == [0, 1, 2, 3, 4, 4]
    assert all(len(message) <= 500 for message in talk.asked[-1].earlier)


def test_the_state_survives_storage() -> None:
    talk = Conversation(reply=sure("a2", 0.8), other=WIDGET)
    talk.say(SAID)
    assert LadderState.model_validate_json(talk.state.model_dump_json()) == talk.state


# What holds for every message, every option list and every answer of a model.

LABELS = st.sampled_from(
    ["Links Panels", "Links Panel D", "Recent", "Contact form", "Budget 2025", "2", "The Office", "Über uns", "🙂"]
)
WORDS = st.sampled_from(
    [
        *("open", "ope", "panel", "d", "first", "2", "the", "one", "from", "chat", "in", "widget", "please", "recent"),
        *("budget", "contakt", "none", "of", "these", "what", "is", "?", "not", "close"),
    ]
)
MESSAGES = st.one_of(st.text(max_size=40), st.lists(WORDS, max_size=7).map(" ".join))
CONFIDENCES = st.one_of(st.floats(), st.sampled_from([0.0, 0.4, 0.85, 1.0]))
REPLIES: st.SearchStrategy[ArbiterReply] = st.one_of(
    st.sampled_from(list(Failure)), st.builds(Choice, st.sampled_from(["o1", "o2", "o9", "", "x1"]), CONFIDENCES)
)
FLAGS = st.builds(LadderFlags, st.booleans(), st.booleans())


@st.composite
def option_sets(draw: st.DrawFn, prefix: str, source: Source) -> OptionSet:
    labels = draw(st.lists(LABELS, min_size=1, max_size=5))
    options = tuple(
        Option(id=f"{prefix}{at}", label=label, source=source.value) for at, label in enumerate(labels, start=1)
    )
    return OptionSet(id="s", source=source, options=options)


def decide(
    message: str, state: LadderState, reply: ArbiterReply, flags: LadderFlags
) -> tuple[LadderResult, list[ArbiterRequest]]:
    asked: list[ArbiterRequest] = []

    def arbiter(request: ArbiterRequest) -> ArbiterReply:
        asked.append(request)
        return reply

    return climb_ladder(message, state, arbiter=arbiter, read_flags=lambda: flags, commands=COMMANDS), asked


@pytest.mark.req("L-029", "L-041", "L-043", "L-137", "L-146")
@settings(max_examples=70, deadline=None)
@given(MESSAGES, option_sets("o", Source.CHAT), option_sets("x", Source.WIDGET), REPLIES, FLAGS)
def test_pool_order_and_execution_stay_within_the_options_in_scope(
    message: str, active: OptionSet, other: OptionSet, reply: ArbiterReply, flags: LadderFlags
) -> None:
    result, asked = decide(message, LadderState(active=active, other=other), reply, flags)
    pools = [[option.id for option in request.candidates] for request in asked]
    assert len(asked) == int(result.llm_called) <= int(flags.llm_enabled)
    assert all(sorted(pool) in (sorted(active.ids), sorted(other.ids)) for pool in pools)
    if result.outcome is Outcome.CLARIFY:
        assert result.handled
        assert sorted(result.order) in (sorted(active.ids), sorted(other.ids))
        assert result.option is None
        assert result.state.active is not None
        assert result.state.active.ids == result.order
    if result.outcome is Outcome.AUTO_EXECUTE:
        assert isinstance(reply, Choice)
        assert flags.auto_execute_enabled
        assert 0.85 <= reply.confidence <= 1
        assert result.option is not None
        assert result.option.id == reply.option_id
    if isinstance(reply, Failure) and asked:
        assert result.option is None
    assert (result.option is None) == (result.outcome not in (Outcome.AUTO_EXECUTE, Outcome.DETERMINISTIC_EXECUTE))
    assert result.handled == (result.outcome is not Outcome.ESCAPE)
    assert result.auto_execute == (result.outcome is Outcome.AUTO_EXECUTE)


@pytest.mark.req("L-023")
@settings(max_examples=40, deadline=None)
@given(MESSAGES, REPLIES, REPLIES)
def test_a_message_that_is_repeated_keeps_its_order_and_asks_once(
    message: str, reply: ArbiterReply, later: ArbiterReply
) -> None:
    talk = Conversation(reply=reply)
    first = talk.say(message)
    talk.reply = later
    second = talk.say(message)
    if first.outcome is Outcome.CLARIFY:
        assert (second.outcome, second.order, len(talk.asked)) == (Outcome.CLARIFY, first.order, 1)


@pytest.mark.req("L-042", "L-059")
@settings(max_examples=40, deadline=None)
@given(st.text(string.ascii_lowercase, min_size=3, max_size=9), st.sampled_from(["panel d", "panel e", "links"]))
def test_an_unknown_verb_before_a_label_never_acts_by_rule_and_never_escapes(verb: str, rest: str) -> None:
    talk = Conversation(reply=sure("a2", 0.5), commands=())
    result = talk.say(f"{verb}q {rest}")
    assert (result.outcome, result.handled, len(talk.asked)) == (Outcome.CLARIFY, True, 1)


@settings(max_examples=40, deadline=None)
@given(MESSAGES, st.sampled_from(["{}", "  {} ", "please {}", "{} pls", "{}!", "ok, {}"]))
def test_politeness_blanks_and_case_change_no_decision(message: str, frame: str) -> None:
    plain, framed = Conversation(reply=Failure.ABSTAIN), Conversation(reply=Failure.ABSTAIN)
    if not any(word in message for word in ("panel", "recent", "first", "2")) or not message.isascii():
        message = "panel d"
    before, after = plain.say(message), framed.say(frame.format(message).upper())
    assert (before.outcome, before.option, before.reason) == (after.outcome, after.option, after.reason)


@pytest.mark.parametrize("message", ["panel " * 5000, "from chat " * 3000, "\u0301" * 30000, "please " * 4000])
def test_a_hostile_message_is_decided_like_any_other(message: str) -> None:
    result = Conversation(other=WIDGET).say(message)
    assert result.outcome in (Outcome.CLARIFY, Outcome.NEED_MORE_INFO)
    assert all(len(kept) <= 500 for kept in result.state.repair)
