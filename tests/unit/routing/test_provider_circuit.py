"""What trouble with a provider means: values in, values out."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from routing.provider_circuit import CircuitRules, Circuits, Trouble, job_pause, pauses, read_retry_after

NOW = datetime(2026, 11, 22, 10, 0, 0, tzinfo=UTC)
RULES = CircuitRules()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30.0),
        ("0", 0.0),
        (" 1.5 ", 1.5),
        ("Sun, 22 Nov 2026 10:00:20 GMT", 20.0),
        ("Sun, 22 Nov 2026 09:00:00 GMT", 0.0),
        ("Sun, 22 Nov 2026 10:00:20 -0000", 20.0),
        ("soon", None),
        ("", None),
        (None, None),
        ("-1", None),
        ("inf", None),
        ("nan", None),
        ("Sun, 99 Nov 2026 10:00:20 GMT", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value, now=NOW) == seconds


@given(st.text(max_size=40))
def test_no_retry_after_breaks_anything(value: str) -> None:
    found = read_retry_after(value, now=NOW)
    assert found is None or found >= 0


def test_a_busy_provider_is_believed_at_once_and_a_failing_one_after_some_calls() -> None:
    doubled = (2, 4, 8, 16, 32, 64, 120)
    assert pauses(Trouble.OVERLOADED, RULES, retry_after=None, is_probe=False) == doubled
    assert pauses(Trouble.RATE_LIMITED, RULES, retry_after=None, is_probe=False) == doubled
    assert pauses(Trouble.FAILING, RULES, retry_after=None, is_probe=False) == (0, 0, 0, 0, *doubled)
    assert pauses(Trouble.FAILING, RULES, retry_after=None, is_probe=True) == (2, 2, 2, 2, *doubled)


@pytest.mark.parametrize(("asked", "seconds"), [(30, 30), (0, 1), (0.2, 1), (600, 600), (86_400, 600)])
@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_named_time_is_honoured_within_bounds(trouble: Trouble, asked: float, seconds: float) -> None:
    assert pauses(trouble, RULES, retry_after=asked, is_probe=False) == (seconds,)


def test_the_nearest_rules_of_a_lane_win() -> None:
    own = {
        "*/opus": {"requests_per_minute": 10, "failures": 3},
        "acme/*": {"requests_per_minute": 20, "probe_seconds": 9},
        "acme/opus": {"requests_per_minute": 30},
    }
    circuits = Circuits.model_validate({"own": own})
    assert circuits.of("x", "haiku") == circuits
    assert circuits.of("x", "opus").requests_per_minute == 10
    assert circuits.of("acme", "haiku").requests_per_minute == 20
    both = circuits.of("acme", "opus")
    assert (both.requests_per_minute, both.failures, both.probe_seconds) == (30, 3, 9)


@pytest.mark.parametrize("name", ["opus", "a/b/c", "/x", "x/", "a b/c"])
def test_a_lane_is_named_by_provider_and_model(name: str) -> None:
    with pytest.raises(ValidationError):
        Circuits.model_validate({"own": {name: {}}})


def test_a_job_waits_longer_each_time_and_no_shorter_than_its_lane() -> None:
    circuits = Circuits()
    waits = [job_pause(None, circuits, times=times, waited_seconds=0, salt=0) for times in range(8)]
    assert waits == [2, 4, 8, 16, 32, 64, 120, 120]
    assert job_pause(300, circuits, times=0, waited_seconds=0, salt=0) == 300


def test_a_job_that_has_waited_for_as_long_as_it_may_waits_no_more() -> None:
    circuits = Circuits(longest_wait_seconds=100)
    assert job_pause(60, circuits, times=1, waited_seconds=70, salt=0) == 30, "the rest, then one last try"
    assert job_pause(60, circuits, times=2, waited_seconds=99.5, salt=0) is None


@given(st.integers(min_value=0, max_value=2**128 - 1), st.floats(min_value=0, max_value=600))
def test_jobs_come_back_a_little_apart_and_never_early(salt: int, asked: float) -> None:
    pause = job_pause(asked, Circuits(), times=0, waited_seconds=0, salt=salt)
    assert pause is not None
    assert max(asked, 2) <= pause <= max(asked, 2) + min(max(asked, 2) / 10, 10)
