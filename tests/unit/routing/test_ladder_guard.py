"""The loop guard: one call per cycle, what the key is made of, what ends a cycle, and the order that stays."""

from __future__ import annotations

import pytest

from routing.clarify.ladder import CycleBoundary, Failure, LadderState, Outcome, end_cycle, guard_key
from routing.clarify.replies import Source
from tests.unit.routing.ladder_world import A2_FIRST, LINKS, WIDGET, Conversation, sure

SAID = "ope panel d"


@pytest.mark.req("L-023", "L-034", "L-084", "L-085", "L-103", "L-104", "L-032")
def test_the_same_message_in_one_cycle_asks_once_and_keeps_the_order() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    first = talk.say(SAID)
    talk.reply = sure("a3", 0.99)
    later = [talk.say("Can you OPE panel d, please?"), talk.say(SAID)]
    assert len(talk.asked) == 1
    assert [result.order for result in (first, *later)] == [A2_FIRST] * 3
    assert [result.llm_called for result in (first, *later)] == [True, False, False]


@pytest.mark.req("L-136", "L-150")
def test_a_repeated_message_never_auto_executes() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.reply = sure("a3", 0.99)
    talk.flags = Conversation(auto=True).flags
    again = talk.say(SAID)
    assert (again.outcome, again.auto_execute, again.order, talk.executed) == (Outcome.CLARIFY, False, A2_FIRST, [])


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


@pytest.mark.req("L-075")
def test_the_guard_is_set_by_an_attempt_failed_or_not_and_by_nothing_else() -> None:
    failed = Conversation(reply=Failure.TIMEOUT)
    failed.say(SAID)
    failed.say(SAID)
    assert len(failed.asked) == 1
    for said in ("what is panel d?", "open recent", "none of these", "panel d"):
        talk = Conversation()
        talk.say(said)
        assert talk.state.cycle is None


@pytest.mark.req("L-075", "L-103")
def test_a_cycle_that_began_with_the_flag_off_may_still_ask() -> None:
    talk = Conversation(llm=False, reply=sure("a2"))
    talk.say(SAID)
    talk.flags = Conversation(llm=True).flags
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-076", "L-083")
def test_another_input_is_another_cycle_and_so_is_the_return_to_the_first() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    for said in (SAID, "ope panel e", SAID):
        assert talk.say(said).llm_called is True
    assert len(talk.asked) == 3


@pytest.mark.req("L-076")
def test_a_question_in_between_is_another_input() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.say("what is panel d?")
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-077")
def test_other_candidates_are_another_cycle() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    fewer = LINKS.model_copy(update={"options": LINKS.options[:2]})
    talk.state = talk.state.model_copy(update={"active": fewer})
    assert talk.say(SAID).llm_called is True


@pytest.mark.req("L-078")
def test_another_option_set_is_another_cycle_though_its_options_are_the_same() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.state = talk.state.model_copy(update={"active": LINKS.model_copy(update={"id": "set-2"})})
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


@pytest.mark.req("L-080", "L-082")
@pytest.mark.parametrize("boundary", [CycleBoundary.CLARIFICATION_CLEARED, CycleBoundary.CHAT_RESET])
def test_a_cleared_clarification_and_a_reset_chat_end_the_cycle(boundary: CycleBoundary) -> None:
    talk = Conversation(reply=sure("a2", 0.8), other=WIDGET)
    talk.say(SAID)
    assert end_cycle(talk.state, boundary) == LadderState()


@pytest.mark.req("L-081")
def test_an_escape_to_a_command_ends_the_cycle_and_keeps_the_options() -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    talk.say("open recent")
    assert talk.state.cycle is None
    assert talk.state.active is not None
    assert talk.say(SAID).llm_called is True


@pytest.mark.parametrize("boundary", list(CycleBoundary))
def test_every_boundary_ends_the_cycle(boundary: CycleBoundary) -> None:
    talk = Conversation(reply=sure("a2", 0.8))
    talk.say(SAID)
    assert talk.state.cycle is not None
    assert end_cycle(talk.state, boundary).cycle is None


def test_there_are_the_seven_boundaries_of_the_seed() -> None:
    assert len(CycleBoundary) == 7


@pytest.mark.req("L-074")
def test_the_same_message_in_another_scope_is_another_cycle() -> None:
    talk = Conversation(LINKS, other=WIDGET, reply=Failure.ABSTAIN)
    talk.say(SAID)
    talk.say(f"{SAID} from widget")
    assert talk.pools == [set(LINKS.ids), set(WIDGET.ids)]


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
