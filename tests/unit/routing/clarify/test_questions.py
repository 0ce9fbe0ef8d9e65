"""What is asked, and how a reply is taken, without any ledger."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.clarify.ladder import ArbiterRequest, LadderFlags, Outcome
from routing.clarify.questions import (
    ASK_OPTIONS,
    ASK_PLACE,
    ASK_SITE,
    MAX_SITES,
    Clarification,
    arbiter_call,
    choose,
    climb_by_rules,
    open_clarification,
)
from routing.clarify.replies import AmbiguityReason, Source
from routing.decision.router import Route, Signals, SiteSignals, decide, signals_of
from routing.errors import InvalidJobError
from routing.jobs import JobRequest, Option
from routing.policy.platform import platform_policy

ON = LadderFlags(llm_enabled=True)
SITES = ("bakery", "florist", "florist-old")
CHAT = Option(id="c", label="Links Panel D")
WIDGET = Option(id="w", label="Weather", source="widget")


def route(prompt: str, **signals: object) -> Route:
    return decide(Signals.model_validate({"prompt": prompt, **signals}), platform_policy())


def asked(*own: Option, sites: tuple[str, ...] = SITES) -> Clarification:
    found = open_clarification(route("Change the headline to 'Hi'"), own=own, sites=sites)
    assert found is not None
    return found


def test_the_caller_s_own_options_come_before_the_sites() -> None:
    assert (asked().question, [one.id for one in asked().options]) == (ASK_SITE, list(SITES))
    assert (asked(CHAT).question, asked(CHAT).options) == (ASK_OPTIONS, (CHAT,))
    assert len(asked(sites=tuple(f"s{number}" for number in range(30))).options) == MAX_SITES


@pytest.mark.parametrize(
    ("prompt", "signals"),
    [
        ("What is a proxy?", {}),
        ("pwd", {}),
        ("Change the headline to 'Hi'", {"site": SiteSignals(files=2)}),
        ("Change the headline to 'Hi'", {"new_site": True}),
        ("Change the headline to 'Hi'", {"project": True}),
        ("search for examples", {"site": SiteSignals(files=2)}),
        ("Change the headline to 'Hi'", {"tier": 2}),
    ],
)
def test_what_is_bound_or_needs_no_site_is_asked_nothing(prompt: str, signals: dict[str, object]) -> None:
    assert open_clarification(route(prompt, **signals), own=(CHAT,), sites=SITES) is None


@pytest.mark.req("R-041")
def test_a_weak_search_is_asked_where_and_a_place_binds_nothing() -> None:
    found = open_clarification(route("search for examples"), own=(), sites=SITES)
    assert found is not None
    assert (found.question, found.binds) == (ASK_PLACE, False)
    assert [one.id for one in found.options] == ["web", "codebase", "memory"]
    assert asked().binds


def test_options_of_two_sources_are_two_sets_and_the_first_one_s_is_active() -> None:
    state = asked(WIDGET, CHAT).state
    assert state.active is not None
    assert state.other is not None
    assert (state.active.source, state.active.ids, state.other.source, state.other.ids) == (
        Source.WIDGET,
        ("w",),
        Source.CHAT,
        ("c",),
    )
    assert asked(WIDGET, CHAT).options == (WIDGET, CHAT)
    assert asked(CHAT).state.other is None


def test_rules_decide_alone_what_they_can_and_leave_the_rest_to_a_model_that_may_be_asked() -> None:
    sure = climb_by_rules("the second one", asked(), flags=ON)
    assert sure is not None
    assert sure.option is not None
    assert sure.option.id == "florist"
    assert climb_by_rules("the flroist", asked(), flags=ON) is None
    off = climb_by_rules("the flroist", asked(), flags=LadderFlags())
    assert off is not None
    assert (off.outcome, off.llm_called, off.order) == (Outcome.CLARIFY, False, SITES)


@given(st.text(max_size=60))
def test_no_reply_is_decided_with_a_model_s_word_at_the_door(text: str) -> None:
    result = climb_by_rules(text, asked(), flags=LadderFlags(llm_enabled=True, auto_execute_enabled=True))
    assert result is None or (not result.llm_called and not result.auto_execute)


def test_an_id_chooses_its_option_and_an_unknown_one_none() -> None:
    result = choose("c", asked(WIDGET, CHAT))
    assert (result.outcome, result.option) == (Outcome.DETERMINISTIC_EXECUTE, CHAT)
    assert result.state.active is None
    with pytest.raises(InvalidJobError, match="is no option of this question"):
        choose("x", asked(CHAT))


def test_the_model_is_asked_with_the_candidates_and_one_tool() -> None:
    call = arbiter_call(ArbiterRequest("ope it", (CHAT,), AmbiguityReason.NO_DETERMINISTIC_MATCH))
    assert call.tool["input_schema"]["properties"]["choice"]["enum"] == ["c", "abstain"]
    assert "Links Panel D" in call.question
    assert "Links Panel D" not in call.system


def test_a_clarification_survives_the_ledger() -> None:
    stored = asked(WIDGET, CHAT).model_dump(mode="json")
    assert Clarification.model_validate(stored) == asked(WIDGET, CHAT)


def test_a_request_tells_the_router_everything_it_says() -> None:
    request = JobRequest.model_validate({"prompt": "Hi", "tier": "patch", "advanced_edit": True, "preference": "agent"})
    signals = signals_of(request, site=SiteSignals(files=3), debated=frozenset({"k"}))
    assert (signals.tier, signals.advanced_edit, signals.preference) == (2, True, "agent")
    assert (signals.site, signals.session_debated, signals.new_site) == (SiteSignals(files=3), {"k"}, False)
