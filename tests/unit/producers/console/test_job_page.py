"""A bill by model: every call once, the dearest first."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from ledger.events import EventKind
from ledger.tables import Call
from producers.console.job_page import CUTS, bill_lines, timeline_of
from producers.console.presentation import offset
from producers.use_cases.jobs import EventView

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def call(model: str, **fields: Any) -> Call:
    values = {"ended_at": NOW, "finish": "completed", "state": "settled"} | fields
    return Call(
        job_id=uuid4(),
        attempt_id=uuid4(),
        provider="fake",
        model=model,
        key_hash="h",
        gateway="g",
        lease_until=NOW,
        max_tokens=1,
        prices_as_of="2030-01-01",
        **values,
    )


def test_calls_of_one_model_are_one_line_and_cached_input_counts_as_input() -> None:
    (line,) = bill_lines(
        [
            call("haiku", input_tokens=10, cache_read_tokens=5, cache_write_tokens=3, output_tokens=2, cost_nanousd=7),
            call("haiku", input_tokens=1, output_tokens=1, cost_nanousd=3, finish="cut"),
            call("haiku", ended_at=None, finish=None, state="reserved"),
        ]
    )
    assert (line.calls, line.input_tokens, line.output_tokens, line.cost_nanousd, line.failed) == (3, 19, 3, 10, 1)


def test_the_dearest_model_comes_first_and_no_calls_make_no_lines() -> None:
    lines = bill_lines([call("haiku", cost_nanousd=1), call("opus", cost_nanousd=9)])
    assert [line.model for line in lines] == ["opus", "haiku"]
    assert bill_lines([]) == ()


# A job's phases: cut where events say so, drawn so that hours of waiting for people do not hide seconds of work.

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def event(seconds: float, kind: str, **data: Any) -> EventView:
    return EventView(id=1, at=at(seconds), kind=kind, data=data)


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
    phases = timeline_of(EDIT, until=at(7212)).phases
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


def test_two_hours_of_review_leave_the_seconds_of_work_most_of_the_width() -> None:
    phases = timeline_of(EDIT, until=at(7212)).phases
    person = next(phase for phase in phases if phase.kind == "person")
    assert person.width == pytest.approx(12)
    assert sum(phase.width for phase in phases) == pytest.approx(100, abs=1)
    assert phases[-1].left + phases[-1].width == pytest.approx(100, abs=1)


def test_what_waits_for_its_site_waits_for_no_worker() -> None:
    assert timeline_of(EDIT[:2], until=at(9)).phases[-1].note == "for a worker of spec"
    assert "another job holds" in timeline_of(EDIT[:2], until=at(9), held_for="site").phases[-1].note


def test_what_has_not_ended_lasts_until_now() -> None:
    phases = timeline_of(EDIT[:3], until=at(9)).phases
    assert [phase.seconds(at(9)) for phase in phases] == [1, 8]
    assert phases[-1].ended is None


def test_a_question_before_anything_else_is_told_as_one() -> None:
    phases = timeline_of([event(0, "accepted", state="clarifying", queue="intake")], until=at(60)).phases
    assert [(phase.kind, phase.note, phase.width) for phase in phases] == [("person", "a person's question", 100)]


def test_of_a_long_life_the_last_phases_are_shown_and_it_is_told() -> None:
    tries = [event(seconds, "started", attempt=seconds, queue="agent") for seconds in range(100)]
    line = timeline_of(tries, until=at(100))
    assert (line.is_cut, line.phases[-1].name, len(line.phases)) == (True, "Attempt 99", 60)
    assert not timeline_of(tries[:60], until=at(60)).is_cut


def test_an_event_that_is_not_asked_for_would_cut_nothing() -> None:
    others = [event(1, kind.value, queue="spec", target="awaiting_approval") for kind in set(EventKind) - set(CUTS)]
    assert timeline_of(others, until=at(2)).phases == ()


def test_no_events_make_no_phases() -> None:
    assert timeline_of([], until=at(1)).phases == ()


@pytest.mark.parametrize(("seconds", "shown"), [(0, "+0.0 s"), (59.94, "+59.9 s"), (600, "+10 min"), (7200, "+2.0 h")])
def test_an_offset_is_as_short_as_it_can_be_told(seconds: float, shown: str) -> None:
    assert offset(BEGAN, at(seconds)) == shown
