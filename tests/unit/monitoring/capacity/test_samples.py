import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.capacity.samples import MOST_SAMPLES, Samples, lognormal, percentile


def test_a_percentile_lies_between_two_samples() -> None:
    assert percentile([0.0, 1.0, 2.0, 3.0], 0.5) == 1.5
    assert percentile([7.0], 0.99) == 7.0
    assert percentile([], 0.5) == 0.0


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=50))
def test_samples_are_kept_in_order_with_their_mean_and_spread(seconds: list[float]) -> None:
    found = Samples.of(seconds)
    assert list(found.seconds) == sorted(seconds)
    assert found.mean == pytest.approx(sum(seconds) / len(seconds))
    assert found.variability >= 0


def test_many_samples_are_thinned_without_losing_their_ends() -> None:
    found = Samples.of(float(number) for number in range(50_000))
    assert len(found.seconds) == MOST_SAMPLES
    assert (found.seconds[0], found.seconds[-1]) == (0.0, 49_999.0)
    assert found.mean == pytest.approx(24_999.5, rel=0.001)
    assert found.percentile(0.95) == pytest.approx(47_500, rel=0.001)


@pytest.mark.parametrize("seconds", [(), (-1.0,), (math.inf,), (2.0, 1.0)])
def test_what_is_no_duration_is_refused(seconds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="seconds: must"):
        Samples(seconds)


def test_an_exponential_distribution_has_a_variability_of_one() -> None:
    found = Samples.of(-math.log(1 - (place + 0.5) / 20_000) for place in range(20_000))
    assert found.variability == pytest.approx(1.0, rel=0.05)
    assert Samples.of([3.0, 3.0]).variability == 0


def test_a_lognormal_has_the_percentiles_that_were_asked_for_and_ends_at_its_limit() -> None:
    found = lognormal(4.0, p95=16.0, most=20.0)
    assert found.percentile(0.5) == pytest.approx(4.0, rel=0.05)
    assert found.percentile(0.95) == pytest.approx(16.0, rel=0.05)
    assert found.seconds[-1] == 20.0
    with pytest.raises(ValueError, match="median"):
        lognormal(4.0, p95=2.0, most=9.0)
