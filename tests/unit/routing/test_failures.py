"""The task failure counter, its flow to an answer, and the table of nested loop limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.failures import (
    SIGNATURE_LIMIT,
    FailureAction,
    FailureEvent,
    FailureHistory,
    advance,
    choose_failure_action,
    classify_end,
    error_signature,
)
from routing.jobs import ENDS, State

FAILED, REJECTED, SUCCEEDED = FailureEvent.FAILED, FailureEvent.REJECTED, FailureEvent.SUCCEEDED
NONE, DEBATE, PERSON = FailureAction.NONE, FailureAction.DEBATE_FAILURE, FailureAction.AUTO_ESCALATE


def walk(events: list[FailureEvent]) -> list[FailureAction]:
    """Return what each of a row of outcomes leads to, where every debate is held at once and lets its task go on."""
    now, actions = FailureHistory(), []
    for event in events:
        actions.append(choose_failure_action(now, event))
        now = advance(now, event)
        if actions[-1] is DEBATE:
            now = FailureHistory(now.consecutive_failures, now.rejections, is_debated=True)
    return actions


@pytest.mark.req("R-051")
def test_a_success_leaves_of_what_was_before_only_whether_it_is_about_security() -> None:
    debated = FailureHistory(2, 1, is_debated=True, is_security=True, same_error_elsewhere=True)
    assert advance(debated, SUCCEEDED) == FailureHistory(is_security=True)


@pytest.mark.req("R-052")
def test_an_error_that_another_task_had_is_debated_at_once() -> None:
    known = FailureHistory(same_error_elsewhere=True)
    assert choose_failure_action(known, FAILED) is DEBATE
    assert choose_failure_action(known, REJECTED) is NONE


@pytest.mark.req("R-053")
def test_the_second_rejection_is_debated_however_few_failures_were_in_a_row() -> None:
    assert choose_failure_action(FailureHistory(rejections=1), REJECTED) is DEBATE


@pytest.mark.req("R-054", "R-062")
def test_the_third_failure_without_a_debate_is_debated_first() -> None:
    assert choose_failure_action(FailureHistory(consecutive_failures=2), FAILED) is DEBATE
    assert choose_failure_action(FailureHistory(consecutive_failures=7), FAILED) is DEBATE


@pytest.mark.req("R-054", "R-059")
def test_a_task_is_not_debated_twice_before_it_goes_to_a_person() -> None:
    early = FailureHistory(consecutive_failures=1, is_debated=True)
    assert choose_failure_action(early, FAILED) is NONE
    assert choose_failure_action(advance(early, FAILED), FAILED) is PERSON
    assert choose_failure_action(FailureHistory(consecutive_failures=5, is_debated=True), FAILED) is PERSON


@pytest.mark.req("R-055")
@pytest.mark.parametrize(
    "known",
    [
        FailureHistory(is_security=True),
        FailureHistory(is_security=True, is_debated=True),
        FailureHistory(is_security=True, same_error_elsewhere=True),
        FailureHistory(is_security=True, consecutive_failures=1),
    ],
)
def test_one_failure_of_a_security_task_goes_to_a_person_at_once(known: FailureHistory) -> None:
    assert choose_failure_action(known, FAILED) is PERSON


@pytest.mark.req("R-055")
def test_a_security_task_that_a_person_rejected_was_before_a_person_already() -> None:
    assert choose_failure_action(FailureHistory(is_security=True), REJECTED) is NONE


@pytest.mark.req("R-051", "R-053", "R-054", "R-055", "R-061", "R-062")
def test_only_final_outcomes_count() -> None:
    counted = {state: classify_end(state) for state in State}
    assert all(counted[state] is None for state in State if state not in ENDS)
    assert {state for state, event in counted.items() if event is SUCCEEDED} == {State.ANSWERED, State.PUBLISHED}
    assert {state for state, event in counted.items() if event is REJECTED} == {State.REJECTED, State.EXPIRED}
    assert {state for state in ENDS if counted[state] is None} == {State.CANCELLED, State.ESCALATED}


# --- the flow of seed 002 after EXECUTE -------------------------------------------------------------------------------


@pytest.mark.req("R-051", "R-053", "R-054", "R-061", "R-062", "R-064")
@pytest.mark.parametrize(
    ("events", "actions"),
    [
        ([FAILED, SUCCEEDED, FAILED], [NONE, NONE, NONE]),
        ([REJECTED, SUCCEEDED, REJECTED], [NONE, NONE, NONE]),
        ([FAILED, FAILED, SUCCEEDED], [NONE, DEBATE, NONE]),
        ([FAILED, FAILED, FAILED], [NONE, DEBATE, PERSON]),
        ([REJECTED, REJECTED, REJECTED], [NONE, DEBATE, PERSON]),
        ([REJECTED, REJECTED, FAILED], [NONE, DEBATE, PERSON]),
    ],
)
def test_the_flow_after_execution(events: list[FailureEvent], actions: list[FailureAction]) -> None:
    assert walk(events) == actions


@pytest.mark.req("R-061")
@given(st.builds(FailureHistory, st.integers(0, 5), st.integers(0, 5), st.booleans(), st.booleans(), st.booleans()))
def test_a_success_only_answers_whatever_was_before(history: FailureHistory) -> None:
    assert choose_failure_action(history, SUCCEEDED) is NONE


@pytest.mark.req("R-064", "R-054")
@given(st.lists(st.sampled_from([FAILED, REJECTED]), min_size=3, max_size=3))
def test_the_third_failure_in_a_row_always_meets_a_person(bad: list[FailureEvent]) -> None:
    assert PERSON in walk(bad)


# --- what two errors have in common -----------------------------------------------------------------------------------


@pytest.mark.req("R-052")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("line 12: slot missing", "line 9,803: slot missing"),
        ("cannot read /srv/a/b.html", "cannot read /tmp/x/other.css"),
        ("cannot read pages/menu.html", "cannot read index.html"),
        ("cannot read C:\\site\\a.js", "cannot read ..\\b\\c.js"),
        ("job 7f9c24e5-1c2b-4f61-9b3e-0a1b2c3d4e5f lost", "job 00000000-0000-0000-0000-000000000000 lost"),
        ("element hero_2 unknown", "element card-17-b unknown"),
        ("got 0x7f3a at deadbeef01", "got 0x1 at 1234abcd"),
        ("GET https://a.example/x?y=1 failed", "GET http://b.example/z failed"),
        ("took 2.5 s", "took   14.25 S"),
    ],
)
def test_numbers_paths_and_ids_do_not_make_another_error(first: str, second: str) -> None:
    assert error_signature("spec_invalid", first) == error_signature("spec_invalid", second)


@pytest.mark.req("R-052")
def test_other_words_or_another_reason_make_another_error() -> None:
    signatures = {
        error_signature("spec_invalid", "slot `hero` is missing"),
        error_signature("spec_invalid", "slot `menu` is missing"),
        error_signature("spec_poor", "slot `hero` is missing"),
        error_signature("spec_invalid", ""),
    }
    assert len(signatures) == 4
    assert error_signature("spec_invalid", "Slot hero:  line 3") == "spec_invalid: slot hero: line <n>"


@given(st.text(max_size=300) | st.sampled_from(["/" * 9000, "a-1" * 900, "1:" * 900, "-" * 9000, "!" * 900 + "x"]))
def test_any_text_has_a_short_signature_on_one_line(detail: str) -> None:
    signature = error_signature("internal_error", detail)
    assert len(signature) <= SIGNATURE_LIMIT
    assert len(signature.splitlines()) == 1
    assert signature == error_signature("internal_error", detail)
