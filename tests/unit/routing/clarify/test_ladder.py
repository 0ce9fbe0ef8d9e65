"""The ladder as a whole: rungs, rules A to I, scope cues, exits, and the seed's integration cases to the letter."""

from __future__ import annotations

import pytest

from routing.clarify.ladder import (
    ArbiterReply,
    Failure,
    HandledByTier,
    LadderFlags,
    LadderState,
    Outcome,
    read_ladder_flags,
    show_options,
)
from routing.clarify.replies import AmbiguityReason, DownstreamTier, OptionSet, Source
from tests.unit.routing.ladder_world import (
    A2_FIRST,
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


@pytest.mark.req("L-003", "L-069", "L-070")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ope panel d", AmbiguityReason.NO_DETERMINISTIC_MATCH),
        ("panel", AmbiguityReason.MULTI_MATCH_NO_EXACT_WINNER),
    ],
)
def test_no_match_and_many_matches_ask_the_model_once(said: str, reason: AmbiguityReason) -> None:
    talk = Conversation(reply=sure("a2"))
    result = talk.say(said)
    assert (len(talk.asked), talk.asked[0].reason, result.reason) == (1, reason, reason)
    assert result.outcome is Outcome.CLARIFY


@pytest.mark.req("L-004", "L-021", "L-087", "L-089", "L-090", "L-151")
@pytest.mark.parametrize("failure", list(Failure))
def test_whatever_fails_shows_the_same_options_in_the_same_order_and_executes_nothing(failure: Failure) -> None:
    talk = Conversation(reply=failure, auto=True)
    result = talk.say(TYPO)
    assert result.outcome is Outcome.CLARIFY
    assert (result.order, talk.executed, result.handled) == (LINKS.ids, [], True)
    assert talk.state.active == LINKS


@pytest.mark.req("L-006", "L-050")
@pytest.mark.parametrize("said", ["ope panel d", "cancel", "first", "make the header blue", "delete it all in chat"])
def test_with_no_open_clarification_every_message_passes_through(said: str) -> None:
    talk = Conversation(None, reply=sure("a1"), auto=True)
    result = talk.say(said)
    assert (result.outcome, result.handled, result.handled_by_tier) == (Outcome.ESCAPE, False, None)
    assert talk.asked == []


@pytest.mark.req("L-016", "L-019", "L-072", "L-115")
def test_a_suggestion_puts_its_option_first_keeps_the_set_and_executes_nothing_by_default() -> None:
    talk = Conversation(reply=sure("a3", 0.99))
    result = talk.say(TYPO)
    assert (result.order, result.auto_execute, talk.executed) == (("a3", "a1", "a2"), False, [])
    assert set(result.order) == set(LINKS.ids)
    assert LadderFlags() == read_ladder_flags({}) == LadderFlags(llm_enabled=False, auto_execute_enabled=False)


# --- pre-gate and escape ---------------------------------------------------------------------------------------------


@pytest.mark.req("L-024", "L-060", "L-138", "L-152", "L-102")
@pytest.mark.parametrize(
    "said", ["what is panel d?", "How do I find panel d", "explain panel d", "should I choose panel d"]
)
def test_a_question_falls_through_before_the_model(said: str) -> None:
    talk = Conversation(reply=sure("a2"), auto=True)
    result = talk.say(said)
    assert (result.outcome, result.handled, talk.asked, talk.executed) == (Outcome.ESCAPE, False, [], [])


def test_the_label_of_an_option_is_no_question_and_no_exit() -> None:
    options = options_of("What is new", "Cancel", "From chat")
    for number, label in enumerate(("what is new", "Cancel", "from chat"), start=1):
        assert Conversation(options).say(label).option == options.options[number - 1]


@pytest.mark.req("L-062", "L-114", "L-075", "L-024")
def test_a_flag_that_is_off_asks_nobody_and_still_shows_the_options() -> None:
    talk = Conversation(reply=sure("a2"), llm=False, auto=True)
    result = talk.say(TYPO)
    assert (result.outcome, result.handled, result.order) == (Outcome.CLARIFY, True, LINKS.ids)
    assert (talk.asked, result.llm_called, result.events, talk.state.cycle) == ([], False, (), None)


@pytest.mark.req("L-018", "L-061", "L-067", "L-063", "L-099")
@pytest.mark.parametrize(
    "said", ["open panel", "close panel", "close panel d", "ope panel d", "oepn recnt", "show dashbord"]
)
def test_what_reads_like_a_command_stays_while_the_options_are_unresolved(said: str) -> None:
    talk = Conversation(reply=sure("a2"), auto=False)
    result = talk.say(said)
    assert (result.outcome, result.handled, len(talk.asked)) == (Outcome.CLARIFY, True, 1)
    assert talk.dispatched == []


@pytest.mark.req("L-066", "L-100")
def test_a_registered_command_escapes_only_when_it_shares_no_word_with_the_options() -> None:
    assert Conversation(LINKS).say("open recent").outcome is Outcome.ESCAPE
    talk = Conversation(RECENT, reply=sure("c1", 0.99), auto=True)
    kept = talk.say("open recent")
    assert (kept.outcome, kept.reason) == (Outcome.CLARIFY, AmbiguityReason.COMMAND_SELECTION_COLLISION)
    assert Conversation(LINKS, commands=("open last",)).say("open recent").outcome is Outcome.CLARIFY


def test_two_commands_that_read_the_same_are_no_certain_command() -> None:
    assert Conversation(commands=("open recent", "Open Recent!")).say("open recent").outcome is Outcome.CLARIFY


def test_a_strong_request_about_something_else_escapes_and_a_weak_one_stays() -> None:
    strong = "delete src/app.ts, run the tests and deploy https://acme.dev"
    assert Conversation().say(strong).outcome is Outcome.ESCAPE
    assert Conversation().say(strong + " for panel d").outcome is Outcome.CLARIFY
    assert Conversation().say("fix the typo").outcome is Outcome.CLARIFY


def test_the_verb_of_a_command_is_never_executed_as_a_choice() -> None:
    talk = Conversation(reply=sure("a2", 0.99), auto=True)
    assert talk.say("close panel d").reason is AmbiguityReason.COMMAND_SELECTION_COLLISION
    assert talk.executed == []


# --- exits (A30) -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["none of these", "Cancel.", "never mind", "cancel please", "no thanks"])
def test_every_clarifier_can_be_left_and_the_exits_are_no_options(said: str) -> None:
    talk = Conversation(reply=sure("a1"), auto=True, other=WIDGET)
    talk.say("panel")
    assert talk.pools == [set(LINKS.ids)]
    result = talk.say(said)
    assert (result.outcome, result.handled, talk.executed) == (Outcome.EXIT, True, [])
    assert talk.state == LadderState()


# --- scope cues ------------------------------------------------------------------------------------------------------


@pytest.mark.req("L-025", "L-036", "L-044", "L-094")
@pytest.mark.parametrize("cue", ["from chat", "in chat", "from the chat", "in the chat"])
def test_a_scope_cue_is_read_before_the_widget_on_the_screen(cue: str) -> None:
    talk = Conversation(WIDGET, other=LINKS)
    result = talk.say(f"panel d {cue}")
    assert (talk.executed, result.handled_by_tier) == (["a2"], HandledByTier.SCOPE_CUE)
    assert Conversation(WIDGET, other=LINKS).say("panel d").option == WIDGET.options[1]


@pytest.mark.parametrize("cue", ["from widget", "in the widget", "from the widgets"])
def test_a_widget_can_be_named_as_well(cue: str) -> None:
    talk = Conversation(LINKS, other=WIDGET, reply=sure("w3"))
    assert talk.say(f"opne calender {cue}").order == ("w3", "w1", "w2")
    assert talk.pools == [set(WIDGET.ids)]


@pytest.mark.req("L-026", "L-037", "L-045", "L-095")
def test_the_pool_of_a_scope_holds_no_option_of_the_other_source() -> None:
    apart = Conversation(WIDGET, other=LINKS)
    apart.say("ope panel d from chat")
    mixed = Conversation(MIXED)
    mixed.say("ope panel d from chat")
    assert apart.pools == mixed.pools == [set(LINKS.ids)]
    assert mixed.state.other is not None
    assert mixed.state.other.ids == WIDGET.ids


@pytest.mark.req("L-096", "L-097")
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


def test_options_of_the_other_source_stay_within_reach_of_a_cue() -> None:
    state = show_options(LadderState(active=LINKS), WIDGET)
    assert (state.active, state.other) == (WIDGET, LINKS)
    assert show_options(state, INVOICES) == LadderState(active=INVOICES, other=WIDGET)


# --- the seed's integration cases ------------------------------------------------------------------------------------


@pytest.mark.req("L-005", "L-013", "L-105", "L-106")
def test_integration_1_typo_and_politeness_show_the_links_again_in_a_stable_order() -> None:
    talk = Conversation(reply=sure("a2", 0.9))
    first = talk.say(TYPO)
    again = talk.say(TYPO)
    assert (first.handled, again.handled, talk.dispatched) == (True, True, [])
    assert first.order == again.order == A2_FIRST
    assert Conversation().say("can you ope panel d").handled is True


@pytest.mark.req("L-107", "L-108")
def test_integration_2_a_scope_cue_takes_the_chat_ladder_though_a_widget_is_active() -> None:
    talk = Conversation(WIDGET, other=LINKS, reply=sure("a2", 0.9))
    result = talk.say("can you ope panel d from chat pls")
    assert (result.handled_by_tier, result.order, talk.pools) == (HandledByTier.SCOPE_CUE, A2_FIRST, [set(LINKS.ids)])


@pytest.mark.req("L-109")
def test_integration_3_open_recent_executes_recent_when_it_is_meant() -> None:
    talk = Conversation(None)
    talk.say("open recent")
    assert [(one.handled_by_tier, one.command) for one in talk.dispatched] == [(DownstreamTier.COMMAND, "open recent")]


@pytest.mark.req("L-110", "L-047", "L-116")
def test_integration_4_a_command_beside_the_options_is_resolved_by_the_command_tier() -> None:
    talk = Conversation(LINKS, reply=sure("a1", 0.99), auto=True)
    result = talk.say("open recent")
    assert (result.handled, result.handled_by_tier) == (False, None)
    assert [one.handled_by_tier for one in talk.dispatched] == [DownstreamTier.COMMAND]
    assert event_names(result) == ["clarification_selection_bypassed_command_intent"]


@pytest.mark.req("L-111", "L-049")
@pytest.mark.parametrize("llm", [True, False])
def test_integration_5_unresolved_before_escape_tries_the_model_or_shows_the_options(llm: bool) -> None:
    talk = Conversation(LINKS, reply=Failure.ABSTAIN, llm=llm)
    result = talk.say("ope panl")
    assert (len(talk.asked), result.outcome, talk.dispatched) == (int(llm), Outcome.CLARIFY, [])
    assert result.handled_by_tier is HandledByTier.ACTIVE_OPTIONS


@pytest.mark.req("L-112")
def test_integration_6_from_chat_hands_no_widget_candidate_to_the_model() -> None:
    talk = Conversation(WIDGET, other=LINKS)
    talk.say("wether from chat")
    assert talk.pools == [set(LINKS.ids)]


@pytest.mark.req("L-113")
def test_integration_7_too_few_candidates_in_a_scope_need_more_information() -> None:
    talk = Conversation(WIDGET, reply=sure("w2", 0.99), auto=True)
    assert talk.say("ope panel d from chat").outcome is Outcome.NEED_MORE_INFO
    assert (talk.executed, talk.dispatched) == ([], [])


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
