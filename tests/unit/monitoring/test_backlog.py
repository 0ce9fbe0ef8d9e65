"""What waits, in seconds and dollars: by what such jobs took recent, ever, or may take at most."""

from __future__ import annotations

import pytest

from monitoring.backlog import MIN_RECENT_ATTEMPTS, RecentAttempts, forecast_backlog
from monitoring.metrics import SeriesKey, series_key
from routing.policy.platform import platform_policy
from routing.queues import QueueName

POLICY = platform_policy()
PLACE = {"tier": "spec", "queue_name": "spec"}


def waiting(jobs: float) -> dict[SeriesKey, float]:
    return {series_key("queue_depth", {"queue_name": "spec"}): jobs}


def ever(attempts: int, *, seconds: float, usd: float) -> dict[SeriesKey, float]:
    """Attempts of so many seconds and dollars each, as they are folded."""
    return {
        series_key("attempt_duration_seconds_bucket", PLACE | {"le": "5.0"}): attempts - 1,
        series_key("attempt_duration_seconds_bucket", PLACE | {"le": "+Inf"}): 1,
        series_key("attempt_duration_seconds_sum", PLACE): attempts * seconds * 1000,
        series_key("attempt_cost_usd_total", PLACE): attempts * usd * 1e9,
    }


def newest(ended: int) -> dict[str, RecentAttempts]:
    return {"spec": RecentAttempts(2 * ended, ended, 4.0, 1.0, 20_000_000, 0.1, 0.1)}


def of_spec(series: dict[SeriesKey, float], recent: dict[str, RecentAttempts]) -> tuple[float, float]:
    work_seconds, usd = (each.value for each in forecast_backlog(series, recent, POLICY) if each.labels == ("spec",))
    return work_seconds, usd


def test_a_backlog_is_what_waits_times_what_such_jobs_took_lately() -> None:
    found = of_spec(waiting(10) | ever(1000, seconds=90, usd=9), newest(MIN_RECENT_ATTEMPTS))
    assert found == (40.0, pytest.approx(0.2))


def test_a_queue_that_was_quiet_goes_by_what_its_jobs_ever_took() -> None:
    for recent in ({}, newest(MIN_RECENT_ATTEMPTS - 1)):
        found = of_spec(waiting(10) | ever(50, seconds=3, usd=0.01), recent)
        assert found == (pytest.approx(30), pytest.approx(0.1))


def test_a_queue_on_which_nothing_was_tried_goes_by_its_limits() -> None:
    limits = POLICY.queues[QueueName.SPEC]
    found = of_spec(waiting(2), {})
    assert found == (2 * limits.soft_seconds, pytest.approx(2 * limits.llm_usd))


def test_nothing_that_waits_is_worth_nothing() -> None:
    assert {each.value for each in forecast_backlog({}, {}, POLICY)} == {0.0}
