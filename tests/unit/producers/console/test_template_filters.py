"""Every kind of event is told in words, and nothing in an event can break its line."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ledger.events import EventKind
from producers.console.template_filters import FILTERS, cents, duration, event_line, notice, plural, share
from producers.use_cases.jobs import EventView


def event(kind: str, **data: Any) -> EventView:
    return EventView(id=1, at=datetime(2030, 1, 1, tzinfo=UTC), kind=kind, data=data)


@pytest.mark.parametrize("kind", list(EventKind))
def test_an_event_without_any_data_still_makes_a_line(kind: EventKind) -> None:
    line = event_line(event(kind.value))
    assert line.title
    assert "None" not in line.title


def test_a_call_tells_its_model_tokens_and_cost() -> None:
    line = event_line(event("call", model="haiku", input_tokens=1200, output_tokens=30, cost_nanousd=1_500_000))
    assert line == ("Model call", "haiku · 1,200 in, 30 out tokens · $0.0015")


def test_a_long_text_is_one_line_of_bounded_length() -> None:
    line = event_line(event("progress", text="many\nlines " * 100))
    assert len(line.text) == 240
    assert "\n" not in line.text


def test_a_kind_that_is_not_known_yet_is_told_by_its_name() -> None:
    assert event_line(event("new_thing", size=3, text="x", nested={})) == ("New thing", "size 3 · text x")


@pytest.mark.parametrize(
    ("nanousd", "shown"),
    [(0, "$0.00"), (1_500_000, "$0.0015"), (100_000_000, "$0.10"), (1_234_560_000_000, "$1,234.56")],
)
def test_small_amounts_keep_the_digits_that_model_calls_need(nanousd: int, shown: str) -> None:
    assert cents(nanousd) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (0.25, "250 ms"), (3.14159, "3.1 s"), (90, "90 s"), (600, "10 min"), (90_000, "25 h")],
)
def test_spans_of_time_are_as_short_as_they_can_be_told(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_shares_stay_between_nothing_and_all() -> None:
    assert [share(1, 0), share(-1, 4), share(1, 4), share(9, 4)] == [0, 0, 25, 100]


def test_counts_and_notices_are_told() -> None:
    assert (plural(1, "job"), plural(2000, "job")) == ("1 job", "2,000 jobs")
    assert notice("") is None
    told = notice("%21No")
    assert told is not None
    assert (told.text, told.is_error) == ("No", True)
    assert all(callable(one) for one in FILTERS.values())
