"""What holds for every message, every option list and every answer of a model."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.clarify.ladder import (
    ArbiterReply,
    ArbiterRequest,
    Choice,
    Failure,
    LadderFlags,
    LadderResult,
    LadderState,
    Outcome,
    climb_ladder,
)
from routing.clarify.replies import OptionSet, Source
from routing.jobs import Option
from tests.unit.routing.ladder_world import COMMANDS, WIDGET, Conversation, sure

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


@pytest.mark.req("L-029", "L-041", "L-043", "L-137")
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
