"""The formulas against what textbooks say, and against what must hold whatever the numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.capacity.queueing import NEVER, Load, slots_for, wait_probability, waits

SLOTS = st.integers(1, 200)
BUSY = st.floats(0.01, 0.98)
TIMES = st.floats(0.01, 600)


@pytest.mark.parametrize(
    ("slots", "offered", "expected"),
    [(1, 0.5, 0.5), (1, 0.9, 0.9), (2, 1.0, 1 / 3), (2, 1.5, 9 / 14), (3, 2.0, 4 / 9), (10, 8.0, 0.409180)],
)
def test_the_probability_of_waiting_is_erlang_s(slots: int, offered: float, expected: float) -> None:
    assert wait_probability(slots, offered) == pytest.approx(expected, abs=1e-6)


def test_a_single_slot_with_exponential_durations_waits_as_m_m_1() -> None:
    found = waits(Load(rate=0.8, mean_seconds=1.0), 1)
    assert found.mean == pytest.approx(0.8 / 0.2)
    assert found.p95 == pytest.approx(math.log(0.8 / 0.05) / 0.2)
    assert found.p99 == pytest.approx(math.log(0.8 / 0.01) / 0.2)


def test_durations_that_are_all_the_same_wait_half_as_long() -> None:
    steady = waits(Load(rate=0.8, mean_seconds=1.0, variability=0.0), 1)
    assert steady.mean == pytest.approx(2.0), "Pollaczek and Khinchine, M/D/1"


def test_ten_thousand_slots_are_reckoned_without_an_overflow() -> None:
    assert 0 < wait_probability(10_000, 9_900.0) < 1
    assert waits(Load(rate=99.0, mean_seconds=100.0), 10_000).is_bounded


def test_a_load_above_the_pool_waits_without_end() -> None:
    assert waits(Load(rate=2.0, mean_seconds=1.0), 2) == NEVER
    assert wait_probability(2, 2.0) == 1.0
    assert slots_for(Load(rate=2.0, mean_seconds=1.0), p95_seconds=1, most=2) is None


def test_a_target_below_the_way_of_a_message_is_met_by_no_pool() -> None:
    assert slots_for(Load(rate=1.0, mean_seconds=1.0), p95_seconds=0.01, pickup_seconds=0.02) is None


@given(slots=SLOTS, busy=BUSY, mean=TIMES, variability=st.floats(0, 4))
def test_more_slots_never_wait_longer_and_more_load_never_shorter(
    slots: int, busy: float, mean: float, variability: float
) -> None:
    load = Load(rate=busy * slots / mean, mean_seconds=mean, variability=variability)
    more = Load(rate=load.rate * 1.01, mean_seconds=mean, variability=variability)
    here = waits(load, slots)
    assert waits(load, slots + 1).p95 <= here.p95 + 1e-9
    assert waits(more, slots).mean >= here.mean - 1e-9
    assert here.p50 <= here.p95 <= here.p99


@given(busy=st.floats(0.1, 300), mean=TIMES, target=st.floats(0.01, 100), most_busy=st.floats(0.3, 0.99))
def test_a_pool_is_as_small_as_its_target_and_its_bound_allow(
    busy: float, mean: float, target: float, most_busy: float
) -> None:
    load = Load(rate=busy / mean, mean_seconds=mean)
    found = slots_for(load, p95_seconds=target, most_busy=most_busy)
    assert found is not None
    assert waits(load, found).p95 <= target
    assert load.offered / found <= most_busy + 1e-6
    fewer = found - 1
    is_less_enough = fewer >= 1 and waits(load, fewer).p95 <= target and load.offered / fewer <= most_busy - 1e-6
    assert not is_less_enough
