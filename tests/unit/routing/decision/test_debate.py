"""Planning and failure debates: two voices, one rule, and a verdict whatever the models do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.decision.debate import (
    CASE_LIMIT,
    CONSTRAINT_LIMIT,
    FAILURES_SHOWN,
    DebateKind,
    DebateRecord,
    Failure,
    Subject,
    Verdict,
    debate_key,
    hold_debate,
    hold_failure_debate,
)
from routing.decision.router import Signals, SiteSignals, decide
from routing.decision.triggers import Stakes
from routing.errors import CallFailure
from routing.failures import FailureOutcome
from routing.model_call import request_digest, today_line
from routing.policy.platform import platform_policy
from routing.policy.prices import Usage, cost_nanousd
from routing.queues import QueueName
from routing.redaction import redact
from tests.unit.routing.model_replies import ANY_JSON, Stage, failing

POLICY = platform_policy()
TODAY = today_line(datetime(2026, 11, 28, tzinfo=UTC))
PROMPT = "Delete every page but the home page"


def subject(stakes: Stakes | None = Stakes.HIGH, *, prompt: str = PROMPT, summary: str = "home, menu") -> Subject:
    route = decide(Signals(prompt=prompt, site=SiteSignals(files=4)), POLICY)
    return Subject("session-1", prompt, route, stakes, TODAY, summary)


def says(recommendation: object, *, case: str = "There is a case.", constraint: str = "Keep the menu page.") -> Any:
    return {"recommendation": recommendation, "case": case, "constraint": constraint}


def planning(advocate: object, critic: object, stakes: Stakes | None = Stakes.HIGH) -> DebateRecord[Verdict]:
    return hold_debate(subject(stakes), Stage(advocate, critic), redact=redact)


def failure(*replies: object, stakes: Stakes | None = None, can_pivot: bool = True) -> DebateRecord[FailureOutcome]:
    failures = [Failure("spec_invalid", "slot `hero` is missing")]
    return hold_failure_debate(subject(stakes), Stage(*replies), failures=failures, can_pivot=can_pivot, redact=redact)


def test_the_advocate_speaks_first_and_the_critic_has_read_the_case() -> None:
    stage = Stage(says("proceed", case="A backup exists."), says("proceed"))
    hold_debate(subject(), stage, redact=redact)
    advocate, critic = (json.loads(call.question) for call in stage.calls)
    assert "advocate" not in advocate
    assert critic["advocate"]["case"] == "A backup exists."
    assert {name: critic[name] for name in advocate} == advocate
    assert stage.calls[0].system != stage.calls[1].system


def test_both_sides_are_shown_the_request_its_route_its_stakes_and_the_site() -> None:
    stage = Stage(says("proceed"), says("proceed"))
    debated = subject()
    hold_debate(debated, stage, redact=redact)
    shown = json.loads(stage.calls[0].question)
    assert shown["request"] == PROMPT
    assert (shown["stakes"], shown["workflow"], shown["tier"]) == ("high", "site", int(debated.route.tier or 0))
    assert (shown["why_routed"], shown["site"]) == (debated.route.reason, "home, menu")
    assert stage.calls[0].tool["name"] == "argue"


STEPS = ["proceed", "revise", "stop"]


@pytest.mark.parametrize(("advocate", "critic"), list(product(STEPS, STEPS)))
def test_at_high_stakes_the_more_careful_side_prevails(advocate: str, critic: str) -> None:
    expected = max(advocate, critic, key=STEPS.index)
    assert planning(says(advocate), says(critic)).verdict == expected


@pytest.mark.parametrize(
    ("advocate", "critic", "verdict"),
    [
        ("proceed", "proceed", "proceed"),
        ("proceed", "revise", "revise"),
        ("revise", "proceed", "revise"),
        ("proceed", "stop", "revise"),
        ("stop", "proceed", "revise"),
        ("revise", "stop", "revise"),
        ("stop", "stop", "stop"),
    ],
)
def test_at_medium_stakes_one_side_alone_cannot_stop_the_owner(advocate: str, critic: str, verdict: str) -> None:
    record = planning(says(advocate), says(critic), Stakes.MEDIUM)
    assert record.verdict == verdict
    assert (record.needs_person, record.calls_failed) == (False, ())
    said = f"The advocate said {advocate} and the critic {critic}: {verdict}."
    assert record.note == ("There is a case." if verdict == "stop" else said)


@pytest.mark.parametrize(
    ("advocate", "critic", "note"),
    [
        ("stop", "stop", "No house may say that. Ask for it once you are registered."),
        ("stop", "proceed", "The register lapsed."),
    ],
)
def test_an_owner_reads_why_their_request_was_stopped_in_the_words_of_who_stops_it(
    advocate: str, critic: str, note: str
) -> None:
    """An owner read only `The advocate said stop and the critic stop: stop.` (issue 20)."""
    stage = Stage(
        says(advocate, case="The register lapsed."),
        says(critic, case="No house may say that. Ask for it once you are registered."),
    )
    assert hold_debate(subject(), stage, redact=redact).note == note
    for call in stage.calls:
        assert "with `stop`, why not" in call.system


def test_a_person_who_has_to_decide_reads_why() -> None:
    assert failure(says("RETRY"), says("ESCALATE", case="Wen?"), stakes=Stakes.HIGH).note == "Wen?"
    note = failure(says("RETRY"), says("ESCALATE"), can_pivot=False).note
    assert note == "There is a case."
    assert failure(says("PIVOT"), says("PIVOT"), can_pivot=False).note.startswith("The advocate said PIVOT")


@pytest.mark.parametrize(
    ("advocate", "critic", "stakes", "verdict"),
    [
        ("proceed", "ask", Stakes.HIGH, "ask"),
        ("ask", "revise", Stakes.MEDIUM, "ask"),
        ("ask", "stop", Stakes.MEDIUM, "ask"),
        ("ask", "stop", Stakes.HIGH, "stop"),
    ],
)
def test_what_only_the_owner_can_say_is_asked_and_never_an_order(
    advocate: str, critic: str, stakes: Stakes, verdict: str
) -> None:
    sides = {"ask": "Which of the pages?", "revise": "Keep the menu.", "stop": "Nothing.", "proceed": ""}
    record = planning(*(says(side, constraint=sides[side]) for side in (advocate, critic)), stakes)
    assert record.verdict == verdict
    assert record.question == ("Which of the pages?" if verdict == "ask" else "")
    assert "Which" not in record.instruction


def test_an_owner_who_was_asked_often_enough_is_not_asked_again() -> None:
    asked = replace(subject(), may_ask=False)
    record = hold_debate(asked, Stage(says("proceed"), says("ask", constraint="Which?")), redact=redact)
    assert (record.verdict, record.question, record.instruction) == ("revise", "", "")


def test_a_revision_is_debated_together_with_what_was_asked_before() -> None:
    stage = Stage(says("proceed"), says("proceed"))
    hold_debate(replace(subject(), earlier=("Add a shop", "x" * 9000)), stage, redact=redact)
    first, second = json.loads(stage.calls[0].question)["work_so_far_was_made_for"]
    assert first == "Add a shop"
    assert len(second) < 400


def test_a_revision_is_one_line_with_what_both_sides_add() -> None:
    record = planning(says("revise", constraint="Keep the imprint."), says("revise", constraint="Keep the menu."))
    assert record.instruction == "Keep the menu. Keep the imprint."


def test_an_advocate_whose_case_holds_a_limit_is_told_to_name_it_as_a_revision() -> None:
    stage = Stage(says("proceed"), says("proceed"))
    hold_debate(subject(), stage, redact=redact)
    assert (
        "`revise` when it should run within a limit that the request does not state, even one that your case"
        in stage.calls[0].system
    )


def test_a_limit_that_says_no_more_than_the_other_is_told_once() -> None:
    wide = "Only colours, contrast and sizes in the style sheets change; no words, prices, links, ids or scripts."
    less = "Only colours, contrast and sizes change; no words, prices, links or scripts."
    for advocate, critic in ((wide, less), (less, wide), (wide, wide)):
        record = planning(says("revise", constraint=advocate), says("revise", constraint=critic))
        assert record.instruction == wide


def test_both_sides_know_the_day_and_another_day_is_the_same_question() -> None:
    stage = Stage(says("proceed"), says("proceed"))
    hold_debate(subject(), stage, redact=redact)
    assert [json.loads(call.question)["today"] for call in stage.calls] == ["Today is Saturday 2026-11-28."] * 2
    later = json.dumps(json.loads(stage.calls[0].question) | {"today": today_line(datetime(2027, 1, 2, tzinfo=UTC))})
    assert request_digest({"q": later}) == request_digest({"q": stage.calls[0].question})


def test_who_recommends_to_proceed_has_no_say_in_the_revision() -> None:
    record = planning(says("proceed", constraint="Also sell the domain."), says("revise", constraint="Keep the menu."))
    assert record.instruction == "Keep the menu."


@pytest.mark.parametrize("verdict", ["proceed", "stop"])
def test_no_verdict_but_revise_touches_the_prompt(verdict: str) -> None:
    record = planning(says(verdict), says(verdict))
    assert (record.verdict, record.instruction) == (verdict, "")


INVALID = [
    None,
    {},
    "stop",
    says("PROCEED"),
    says(None),
    says("revise", constraint=" "),
    says("stop", constraint=""),
    says("proceed", case=""),
    {"recommendation": "proceed", "case": "x", "verdict": "proceed"},
]


@pytest.mark.parametrize("stakes", [Stakes.HIGH, Stakes.MEDIUM])
@pytest.mark.parametrize("reason", get_args(CallFailure))
@pytest.mark.parametrize("side", ["advocate", "critic"])
def test_a_failed_call_lets_the_work_go_on_but_at_high_stakes_only_to_a_person(
    stakes: Stakes, reason: Any, side: str
) -> None:
    lost = failing(reason)
    record = planning(lost if side == "advocate" else says("revise"), lost, stakes)
    assert record.verdict is Verdict.PROCEED
    assert record.calls_failed == (f"{side}: {reason}",)
    assert f"{side}: {reason}" in record.note
    assert record.needs_person is (stakes is Stakes.HIGH)
    assert record.instruction == ""


@pytest.mark.parametrize("bad", INVALID)
def test_an_invalid_argument_is_a_failed_call(bad: object) -> None:
    assert planning(bad, says("proceed")).calls_failed == ("advocate: invalid",)
    assert planning(says("proceed"), bad).calls_failed == ("critic: invalid",)
    assert planning(bad, says("proceed")).needs_person


def test_unknown_stakes_count_as_high() -> None:
    assert planning(failing("timeout"), None, None).needs_person
    assert planning(says("proceed"), says("stop"), None).verdict is Verdict.STOP


def test_without_an_advocate_the_critic_is_not_paid_for() -> None:
    stage = Stage(failing("cost_cap"), says("proceed"))
    hold_debate(subject(), stage, redact=redact)
    assert len(stage.calls) == 1


def test_a_critic_s_call_that_fails_leaves_the_advocate_s_case_on_record() -> None:
    record = planning(says("revise", case="Careful."), failing("timeout"))
    assert record.advocate is not None
    assert (record.advocate.case, record.critic) == ("Careful.", None)


def test_another_error_than_a_failed_call_is_not_swallowed() -> None:
    def cancelled(call: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hold_debate(subject(), cancelled, redact=redact)


def test_what_is_kept_of_an_argument_is_redacted_short_and_on_one_line() -> None:
    secret = "sk-ant-api03-" + "a" * 40
    said = says("revise", case=f"First\nline {secret} " + "x " * 1000, constraint="a\u202eb " + "y " * 500)
    record = planning(said, says("proceed"))
    assert record.advocate is not None
    assert record.advocate.case.startswith("First line [redacted] x")
    assert len(record.advocate.case) <= CASE_LIMIT
    assert len(record.instruction) <= CONSTRAINT_LIMIT
    assert record.instruction.startswith("ab y")


def test_a_limit_that_is_too_long_ends_with_a_clause_and_is_told_once() -> None:
    """An edit was told `... leave both as they are; ever... ... leave both as they are; say...` (issue 20)."""
    limit = f"Take down only the portrait, in both {'very ' * 40}places, and ask which show is cancelled"
    both = [f"{limit}; {rest} {'so ' * 40}stays." for rest in ("every other picture", "say in the summary that it")]
    record = planning(*(says("revise", constraint=each) for each in both))
    assert record.instruction == f"{limit}."


def test_a_record_is_stored_as_plain_json() -> None:
    fields = json.loads(json.dumps(planning(says("proceed"), says("revise")).fields()))
    assert (fields["kind"], fields["verdict"], fields["stakes"]) == ("planning", "revise", "high")
    assert fields["critic"]["constraint"] == "Keep the menu page."


# --- what is one decision ---------------------------------------------------------------------------------------------


@pytest.mark.req("R-059")
def test_the_same_request_of_a_session_is_one_decision() -> None:
    key = debate_key("s", PROMPT, DebateKind.PLANNING)
    assert debate_key("s", f"  {PROMPT.upper()}\u200b\n", DebateKind.PLANNING) == key
    assert planning(says("proceed"), says("proceed")).key == debate_key("session-1", PROMPT, DebateKind.PLANNING)


@pytest.mark.req("R-059")
def test_another_session_another_request_and_another_kind_are_other_decisions() -> None:
    keys = {
        debate_key(session, prompt, kind)
        for session, prompt, kind in product(("s", "t"), (PROMPT, "Delete the blog"), DebateKind)
    }
    assert len(keys) == 8
    assert failure(says("RETRY"), says("RETRY")).key == debate_key("session-1", PROMPT, DebateKind.FAILURE)


@pytest.mark.req("R-059")
def test_long_requests_that_differ_in_the_middle_are_two_decisions() -> None:
    long = ["Delete " + "a " * 6000 + middle + " b" * 6000 for middle in ("menu", "blog")]
    assert debate_key("s", long[0], DebateKind.PLANNING) != debate_key("s", long[1], DebateKind.PLANNING)


# --- the failure debate -----------------------------------------------------------------------------------------------

WAYS = ["RETRY", "PIVOT", "ESCALATE"]


@pytest.mark.req("R-063")
@pytest.mark.parametrize("way", WAYS)
def test_a_failure_debate_that_agrees_ends_there(way: str) -> None:
    assert list(FailureOutcome) == WAYS, "there are these three"
    record = failure(says(way), says(way))
    assert (record.kind, record.verdict) == (DebateKind.FAILURE, way)
    assert record.needs_person is (way == "ESCALATE")
    assert bool(record.instruction) is (way == "PIVOT")


@pytest.mark.req("R-063")
@pytest.mark.parametrize(("advocate", "critic"), list(product(WAYS, WAYS)))
def test_a_failure_debate_at_high_stakes_ends_with_the_more_careful(advocate: str, critic: str) -> None:
    record = failure(says(advocate), says(critic), stakes=Stakes.HIGH)
    assert record.verdict == max(advocate, critic, key=WAYS.index)


@pytest.mark.req("R-063")
def test_below_high_stakes_one_side_alone_tries_another_way_before_a_person() -> None:
    assert failure(says("RETRY"), says("ESCALATE"), stakes=Stakes.MEDIUM).verdict is FailureOutcome.PIVOT
    assert failure(says("ESCALATE"), says("RETRY")).verdict is FailureOutcome.PIVOT


@pytest.mark.req("R-063")
@pytest.mark.parametrize("replies", [(says("PIVOT"), says("PIVOT")), (says("RETRY"), says("ESCALATE"))])
def test_where_there_is_no_other_way_a_person_decides(replies: tuple[object, ...]) -> None:
    record = failure(*replies, can_pivot=False)
    assert (record.verdict, record.needs_person, record.instruction) == (FailureOutcome.ESCALATE, True, "")


@pytest.mark.req("R-063")
@pytest.mark.parametrize("replies", [(failing("timeout"), None), (says("RETRY"), None), (says("RETRY"), says("retry"))])
def test_nothing_is_tried_again_on_one_voice(replies: tuple[object, ...]) -> None:
    record = failure(*replies, stakes=Stakes.MEDIUM)
    assert (record.verdict, record.needs_person) == (FailureOutcome.ESCALATE, True)
    assert record.note.endswith("a person has to decide.")


def test_a_failure_debate_is_shown_the_newest_failures() -> None:
    stage = Stage(says("RETRY"), says("RETRY"))
    failures = [Failure(f"reason_{number}", "x" * 9000) for number in range(9)]
    hold_failure_debate(subject(), stage, failures=failures, can_pivot=True, redact=redact)
    shown = json.loads(stage.calls[0].question)
    assert [item["reason"] for item in shown["failures"]] == ["reason_6", "reason_7", "reason_8"]
    assert len(shown["failures"]) == FAILURES_SHOWN
    assert (shown["can_pivot"], "planning" in stage.calls[0].system) == (True, False)


# --- hostile replies, and what a debate may cost ----------------------------------------------------------------------

_ARGUMENT = st.builds(says, ANY_JSON | st.sampled_from(STEPS + WAYS), case=st.text(), constraint=st.text())


@settings(max_examples=40, deadline=None)
@given(replies=st.tuples(ANY_JSON | _ARGUMENT, ANY_JSON | _ARGUMENT), stakes=st.sampled_from([*Stakes, None]))
def test_no_reply_raises_loses_the_request_or_lets_high_stakes_pass_unseen(
    replies: tuple[object, object], stakes: Stakes | None
) -> None:
    record = hold_debate(subject(stakes), Stage(*replies), redact=redact)
    assert record.needs_person is (bool(record.calls_failed) and stakes is not Stakes.MEDIUM)
    after = failure(*replies, stakes=stakes)
    assert after.verdict is FailureOutcome.ESCALATE or not after.calls_failed
    json.dumps([record.fields(), after.fields()])


@pytest.mark.parametrize("prompt", ["a" * 32_768, "\\" * 9000, "字" * 9000, "\x00\n" * 9000], ids=range(4))
def test_two_attempts_at_both_calls_fit_the_intake_queue_s_cap_whatever_the_prompt_is(prompt: str) -> None:
    stage = Stage(says("revise", case="字" * 3000, constraint="字" * 3000), says("proceed"))
    hold_debate(subject(prompt=prompt, summary=prompt), stage, redact=redact)
    bytes_per_token, added_by_provider, max_tokens = 3, 530, 400
    sent = [len((call.system + call.question + json.dumps(call.tool)).encode()) for call in stage.calls]
    cost = sum(
        cost_nanousd(
            POLICY.prices["claude-haiku-4-5-20251001"],
            Usage(input_tokens=size // bytes_per_token + added_by_provider, output_tokens=max_tokens),
        )
        for size in sent
    )
    assert 2 * cost <= POLICY.queues[QueueName.INTAKE].llm_nanousd
