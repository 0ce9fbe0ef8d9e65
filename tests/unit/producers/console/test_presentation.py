"""Values and events are told in words that fit, and what strangers wrote stays text."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger.events import EventKind
from producers.console.presentation import (
    FILTERS,
    ago,
    cents,
    column,
    diff_lines,
    duration,
    event_line,
    markdown,
    name_of,
    notice,
    plain,
    plural,
    sentence,
    share,
)
from producers.use_cases.jobs import EventView
from sites.diff.canonical import unified

HOSTILE = '"><script>alert(1)</script>'


def event(kind: str, **data: Any) -> EventView:
    return EventView(id=1, at=datetime(2030, 1, 1, tzinfo=UTC), kind=kind, data=data)


@pytest.mark.parametrize("kind", list(EventKind))
def test_an_event_without_any_data_still_makes_a_line(kind: EventKind) -> None:
    line = event_line(event(kind.value))
    assert line.title
    assert "None" not in line.title


def test_a_call_tells_its_model_tokens_and_cost() -> None:
    tokens = {"input_tokens": 200, "cache_write_tokens": 900, "cache_read_tokens": 100, "output_tokens": 30}
    line = event_line(event("call", model="haiku", cost_nanousd=1_500_000, **tokens))
    assert line == ("Model call", "haiku · 1,200 in, 30 out tokens · $0.0015")


def test_a_job_that_waits_says_for_what() -> None:
    assert event_line(event("waiting", queue="spec")).text == "on queue spec"
    held = {"queue": "spec", "held_seconds": 300.0, "reason": "provider_busy"}
    assert event_line(event("waiting", held_for="provider", **held)).text == "5 min for its provider · provider busy"
    assert event_line(event("waiting", held_for="time", **held)).text.startswith("5 min before it goes on")


def test_details_of_the_audit_trail_are_words_and_no_code() -> None:
    value = {"scopes": ["read", "submit"], "is_new": True, "limits": {"day_usd": 5, "none": None}}
    assert plain(value) == "scopes read, submit, is new yes, limits day usd 5"


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
    [
        (None, "–"),
        (0.25, "250 ms"),
        (3.14159, "3.1 s"),
        (90, "90 s"),
        (280, "4 min 40 s"),
        (300, "5 min"),
        (359.8, "6 min"),
        (600, "10 min"),
        (90_000, "25 h"),
    ],
)
def test_spans_of_time_are_as_short_as_they_can_be_told(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "just now"),
        (59.9, "59 s ago"),
        (102, "1 min ago"),
        (3599, "59 min ago"),
        (7100, "1 h ago"),
        (47 * 3600, "47 h ago"),
        (75 * 3600, "3 d ago"),
        (-86_399, "in 24 h"),
        (-259_100, "in 3 d"),
    ],
)
def test_a_moment_is_told_in_whole_units_that_have_passed_or_are_at_most_left(seconds: float, shown: str) -> None:
    assert ago(datetime.now(UTC) - timedelta(seconds=seconds)) == shown


def test_what_cost_nothing_is_a_dash_in_a_column_of_costs() -> None:
    assert (column("0.00"), column("0.0045"), column("12.3")) == ("–", "$0.0045", "$12.3000")


@pytest.mark.parametrize(
    ("actor", "name"),
    [("key:acme/ci", "ci"), ("tenant:acme", "acme"), ("policy:gates-passed", "gates-passed"), ("cli", "cli")],
)
def test_who_did_it_is_told_by_name(actor: str, name: str) -> None:
    assert name_of(actor) == name


def test_an_answer_has_emphasis_and_lists_and_nothing_that_leads_or_loads() -> None:
    shown = markdown(
        "# Hours\n\nOpen **daily**:\n\n- [here](https://evil.example)\n- <https://evil.example>\n- ![x](//e/x.png)"
    )
    assert "<h3>Hours</h3>" in shown
    assert "<strong>daily</strong>" in shown
    assert not {tag for tag in ("<a", "<img", "href=", "src=") if tag in shown}
    assert "&lt;script&gt;" in markdown("<script>alert(1)</script>")


def test_shares_stay_between_nothing_and_all() -> None:
    assert [share(1, 0), share(-1, 4), share(1, 4), share(9, 4)] == [0, 0, 25, 100]


def test_counts_and_notices_are_told() -> None:
    assert sentence("this needs a valid API key") == "This needs a valid API key"
    assert (plural(1, "job"), plural(2000, "job")) == ("1 job", "2,000 jobs")
    assert notice("") is None
    told = notice("%21No")
    assert told is not None
    assert (told.text, told.is_error) == ("No", True)
    assert all(callable(one) for one in FILTERS.values())


def test_a_diff_shows_every_line_whatever_it_begins_with_or_holds() -> None:
    old = b"a\n-- drop\nindex old\n"
    new = "a\n++ count; evil()\n// fine\u2028index = evil()\n\u202e// fine\tdone\r\n".encode()
    shown = diff_lines(unified({"a.js": old}, {"a.js": new}).decode())

    assert shown == [
        ("hunk", "@@ -1,3 +1,4 @@"),
        ("same", " a"),
        ("del", "--- drop"),
        ("del", "-index old"),
        ("add", "+++ count; evil()"),
        ("add", "+// fine\ufffdindex = evil()"),
        ("add", "+\ufffd// fine\tdone"),
    ]


def test_a_diff_without_hunks_has_no_lines() -> None:
    assert diff_lines(None) == diff_lines("") == diff_lines(unified({"a": None}, {"a": b""}).decode()) == []
