"""A job's phases: cut where events say so, drawn so that hours of waiting for people do not hide seconds of work."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.events import EventKind
from producers.console.presentation import offset
from producers.console.waterfall import CUTS, waterfall_of
from producers.use_cases.jobs import EventView
from tests.unit.producers.console.test_job_page import call

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def event(moment: float, kind: str, **data: Any) -> EventView:
    return EventView(id=1, at=at(moment), kind=kind, data=data)


EDIT = [
    event(0, "accepted", state="queued", queue="spec", source="http"),
    event(0, "waiting", queue="spec"),
    event(1, "started", attempt=1, queue="spec"),
    event(3, "state", origin="queued", target="running"),
    event(5, "attempt_ended", attempt=1, outcome="escalated"),
    event(5, "waiting", queue="patch"),
    event(6, "started", attempt=2, queue="patch"),
    event(10, "state", origin="scanning", target="awaiting_approval"),
    event(10, "attempt_ended", attempt=2, outcome="awaiting_approval"),
    event(7210, "state", origin="awaiting_approval", target="publishing"),
    event(7210, "waiting", queue="control"),
    event(7211, "started", attempt=3, queue="control"),
    event(7212, "ended", state="published"),
]


def test_a_job_s_time_is_cut_into_what_waited_worked_and_asked() -> None:
    phases = waterfall_of(EDIT, until=at(7212)).spans
    told = [(phase.kind, phase.name, round(phase.seconds(at(7212)))) for phase in phases]
    assert told == [
        ("wait", "Waits", 1),
        ("work", "Attempt 1", 4),
        ("wait", "Waits", 1),
        ("work", "Attempt 2", 4),
        ("person", "Asks", 7200),
        ("wait", "Waits", 1),
        ("work", "Attempt 3", 1),
    ]
    assert phases[1].outcome == "escalated"


def test_an_approval_that_is_undone_is_a_wait_between_two_reviews() -> None:
    held = {"held_for": "time", "held_seconds": 10.0}
    undone = [
        *EDIT[:10],
        event(7210, "waiting", queue="control", **held),
        event(7214, "state", origin="publishing", target="awaiting_approval", left="control"),
        event(7300, "state", origin="awaiting_approval", target="publishing"),
        event(7300, "waiting", queue="control", **held),
    ]
    phases = waterfall_of(undone, until=at(7305)).spans[-4:]
    assert [(phase.kind, phase.note, round(phase.seconds(at(7305)))) for phase in phases] == [
        ("person", "a person's review", 7200),
        ("wait", "10 s before it goes on", 4),
        ("person", "a person's review", 86),
        ("wait", "10 s before it goes on", 5),
    ]


def test_two_hours_of_review_leave_the_seconds_of_work_most_of_the_width() -> None:
    phases = waterfall_of(EDIT, until=at(7212)).spans
    person = next(phase for phase in phases if phase.kind == "person")
    assert person.width == pytest.approx(12)
    assert sum(phase.width for phase in phases) == pytest.approx(100, abs=1)
    assert phases[-1].left + phases[-1].width == pytest.approx(100, abs=1)


def test_what_waits_for_its_site_waits_for_no_worker() -> None:
    assert waterfall_of(EDIT[:2], until=at(9)).spans[-1].note == "on queue spec"
    assert "another job holds" in waterfall_of(EDIT[:2], until=at(9), held_for="site").spans[-1].note


def test_what_has_not_ended_lasts_until_now() -> None:
    phases = waterfall_of(EDIT[:3], until=at(9)).spans
    assert [phase.seconds(at(9)) for phase in phases] == [1, 8]
    assert phases[-1].ended is None


def test_a_question_before_anything_else_is_told_as_one() -> None:
    phases = waterfall_of([event(0, "accepted", state="clarifying", queue="intake")], until=at(60)).spans
    assert [(phase.kind, phase.note, phase.width) for phase in phases] == [("person", "a person's question", 100)]


def test_of_a_long_life_the_last_phases_are_shown_and_it_is_told() -> None:
    tries = [event(seconds, "started", attempt=seconds, queue="agent") for seconds in range(100)]
    line = waterfall_of(tries, until=at(100))
    assert (line.is_cut, line.spans[-1].name, len(line.spans)) == (True, "Attempt 99", 40)
    assert not waterfall_of(tries[:40], until=at(40)).is_cut


def test_an_event_that_is_not_asked_for_would_cut_nothing() -> None:
    others = [event(1, kind.value, queue="spec", target="awaiting_approval") for kind in set(EventKind) - set(CUTS)]
    assert waterfall_of(others, until=at(2)).spans == ()


def test_no_events_make_no_phases() -> None:
    assert waterfall_of([], until=at(1)).spans == ()


@pytest.mark.parametrize(("seconds", "shown"), [(0, "+0.0 s"), (59.94, "+59.9 s"), (600, "+10 min"), (7200, "+2.0 h")])
def test_an_offset_is_as_short_as_it_can_be_told(seconds: float, shown: str) -> None:
    assert offset(BEGAN, at(seconds)) == shown


def test_the_steps_and_calls_of_an_attempt_stand_in_it_with_their_time_and_cost() -> None:
    events = [
        *EDIT[:3],
        event(2, "step", step="lock", seconds=0.5),
        event(4, "step", step="model:edit", seconds=1.5),
        event(4.5, "step", step="scan", seconds=0.25),
        *EDIT[4:5],
        event(9, "step", step="preview", seconds=0.1),
    ]
    asked = call("haiku", started_at=at(2.5), ended_at=at(4), cost_nanousd=7, input_tokens=1200, output_tokens=30)
    spans = waterfall_of(events, [asked], until=at(9)).spans
    told = [(span.kind, span.name, round(span.seconds(at(9)), 2), span.cost_nanousd, span.is_part) for span in spans]
    assert told == [
        ("wait", "Waits", 1, 0, False),
        ("work", "Attempt 1", 4, 7, False),
        ("wait", "Site lock", 0.5, 0, True),
        ("model", "haiku", 1.5, 7, True),
        ("check", "Scan", 0.25, 0, True),
    ], "a model's step is told by its call, and what lies outside of every attempt is not shown"
    attempt, lock, model = spans[1], spans[2], spans[3]
    assert model.note == "1,200 tokens in, 30 out"
    assert lock.left == pytest.approx(attempt.left + attempt.width / 8, abs=0.02)
    assert model.left + model.width <= attempt.left + attempt.width


def test_of_very_many_steps_the_longest_are_shown_and_the_others_counted() -> None:
    steps = [event(1 + number / 100, "step", step=f"s{number}", seconds=number / 1e5) for number in range(1, 51)]
    line = waterfall_of([*EDIT[:3], *steps], until=at(9))
    assert (sum(span.is_part for span in line.spans), line.hidden) == (30, 20)
    assert "S50" in {span.name for span in line.spans}


def test_a_call_tells_its_purpose_prompt_try_and_tokens_and_an_attempt_what_came_before_it_and_was_said() -> None:
    events = [
        *EDIT[:3],
        event(4, "step", step="model:patch_edit", seconds=2.5, prompt="0754e415"),
        *EDIT[4:7],
    ]
    times = [(1.6, 2.5), (3, 3.9)]
    calls = [
        call(
            "haiku", started_at=at(began), ended_at=at(ended), output_tokens=30, cache_read_tokens=9, finish="completed"
        )
        for began, ended in times
    ]
    said = [event(2, "progress", text="Edit index.html"), event(8, "progress", text="later")]
    spans = waterfall_of(events, calls, said, until=at(9)).spans
    first, _, second = [span for span in spans if span.kind != "wait"][:3]
    facts = dict(second.facts)
    assert (facts["Retry"], facts["Purpose"], facts["Prompt version"]) == (
        "try 2 of this request",
        "patch edit",
        "0754e415",
    )
    assert (facts["From the cache"], facts["Ended"], "Tokens in" in facts) == ("9", "completed", False)
    assert [one.data["text"] for one in first.said] == ["Edit index.html"]
    last = next(span for span in waterfall_of(events, until=at(9)).spans if span.name == "Attempt 2")
    assert dict(last.facts) == {"After": "Attempt 1, which ended escalated"}
    assert len({span.key for span in spans}) == len(spans)
