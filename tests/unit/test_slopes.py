"""The verdict on growth, on samples that are made: what leaks is found, what only jumps about is not."""

import random
from itertools import accumulate

import pytest

from tests.chaos.slopes import Tolerance, at_one_pace, at_one_peak, fit, theil_sen


def samples(slope: float, *, noise: float = 0.0, count: int = 120) -> list[tuple[float, float]]:
    rng = random.Random(5)
    return [(10.0 * number, 100 + slope * 10 * number + rng.uniform(-noise, noise)) for number in range(count)]


def test_a_leak_of_one_handle_in_a_hundred_jobs_is_found_under_noise() -> None:
    found = fit("handles/x", samples(0.01, noise=3), unit="handles", tolerance=Tolerance(3))
    assert not found.is_flat
    assert found.slope == pytest.approx(10, rel=0.2)
    assert found.verdict == "GROWS"


def test_what_jumps_about_does_not_grow() -> None:
    found = fit("memory/x", samples(0.0, noise=20), unit="memory MiB", tolerance=Tolerance(3))
    assert found.verdict == "about zero"


def test_what_grows_only_while_it_warms_up_does_not_grow() -> None:
    warming = [(jobs, min(value, 130.0)) for jobs, value in samples(0.1)]
    assert fit("rows/x", warming, unit="rows", tolerance=Tolerance(3)).is_flat


def test_a_sawtooth_of_recycled_children_does_not_grow() -> None:
    teeth = [(float(jobs), 100 + jobs % 50) for jobs in range(0, 2000, 7)]
    assert fit("memory/x", teeth, unit="memory MiB", tolerance=Tolerance(3)).is_flat


def test_a_few_outliers_move_the_slope_little() -> None:
    points = samples(0.01)
    points[60] = (points[60][0], 1e6)
    points[90] = (points[90][0], 0.0)
    assert theil_sen(points).likely == pytest.approx(0.01, rel=0.05)


def test_what_is_kept_by_design_says_why_it_grows() -> None:
    found = fit("rows/job", samples(1), unit="rows", tolerance=Tolerance(3), why_grows="kept")
    assert found.verdict == "grows: kept"


def kept_rows(*, leaked_per_job: float) -> tuple[list[tuple[float, float]], list[float]]:
    """Three rows of a job for 45 s each, sampled every 3 s while the pace doubles bit by bit."""
    seconds = [3.0 * number for number in range(200)]
    jobs = [4.0 * at + at * at / 300 for at in seconds]
    rows = [3 * (ended - jobs[max(0, number - 15)]) for number, ended in enumerate(jobs)]
    return [(ended, kept + leaked_per_job * ended) for ended, kept in zip(jobs, rows, strict=True)], seconds


@pytest.mark.parametrize(("leaked_per_job", "verdict"), [(0.0, "about zero"), (0.5, "GROWS")])
def test_rows_that_are_more_because_work_became_faster_are_no_leak(leaked_per_job: float, verdict: str) -> None:
    points, seconds = kept_rows(leaked_per_job=leaked_per_job)
    assert fit("rows/event", points, unit="rows", tolerance=Tolerance(150, 0.10)).verdict == "GROWS"
    paced = at_one_pace(points, seconds, kept_seconds=45)
    assert fit("rows/event", paced, unit="rows", tolerance=Tolerance(150, 0.10)).verdict == verdict


def test_without_a_job_in_the_time_that_rows_are_kept_there_is_no_pace() -> None:
    assert at_one_pace([(5.0, 9.0), (5.0, 9.0)], [0.0, 60.0], kept_seconds=45) == []


def test_samples_at_one_moment_have_no_slope() -> None:
    assert theil_sen([(1.0, 1.0), (1.0, 2.0)]).likely == 0.0


@pytest.mark.parametrize(("bloat_per_job", "verdict"), [(0.0, "about zero"), (0.005, "GROWS")])
def test_a_table_that_is_larger_because_it_once_held_more_rows_is_no_leak(bloat_per_job: float, verdict: str) -> None:
    points, _ = kept_rows(leaked_per_job=0.0)
    peaks = list(accumulate((rows for _, rows in points), max))
    sizes = [(jobs, peak / 100 + bloat_per_job * jobs) for (jobs, _), peak in zip(points, peaks, strict=True)]
    assert fit("size/event", sizes, unit="size MiB", tolerance=Tolerance(2, 0.10)).verdict == "GROWS"
    alike = at_one_peak(sizes, [rows for _, rows in points])
    assert fit("size/event", alike, unit="size MiB", tolerance=Tolerance(2, 0.10)).verdict == verdict
