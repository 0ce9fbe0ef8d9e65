"""The formulas against what textbooks say, and against what must hold whatever the numbers."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitoring.capacity.queueing import (
    MOST_WANTED,
    NEVER,
    Demand,
    Load,
    slots_for,
    wait_probability,
    waits,
    wanted_slots,
)

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


def test_bursts_wait_longer_than_the_same_rate_at_random() -> None:
    calm, bursty = (waits(Load(rate=0.8, mean_seconds=1.0, arrival_variability=value), 1) for value in (1.0, 5.0))
    assert bursty.mean == pytest.approx(3 * calm.mean)
    assert bursty.p95 > calm.p95


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


def demand(**fields: Any) -> Demand:
    values: dict[str, Any] = {
        "waiting": 0,
        "running": 0,
        "starts_per_second": 0.0,
        "mean_seconds": 6.0,
        "variability": 1.0,
    }
    return Demand(**(values | fields))


def test_an_idle_queue_wants_nobody() -> None:
    assert wanted_slots(demand(), target_seconds=5) == 0


def test_a_steady_load_wants_what_the_planner_would_give_it() -> None:
    planned = slots_for(Load(rate=2.0, mean_seconds=6.0), p95_seconds=5, most_busy=0.9)
    assert wanted_slots(demand(running=12, starts_per_second=2.0), target_seconds=5) == planned


def test_nothing_waiting_does_not_mean_that_nobody_is_wanted() -> None:
    assert wanted_slots(demand(running=4, mean_seconds=240.0), target_seconds=60) >= 4


def test_a_backlog_wants_what_works_it_off_within_the_target_and_never_more_than_it_has_jobs() -> None:
    assert wanted_slots(demand(waiting=100, mean_seconds=0.5), target_seconds=5) == 10
    assert wanted_slots(demand(waiting=3, mean_seconds=240.0), target_seconds=60) == 3


def test_a_paused_queue_keeps_those_who_work_and_wants_nobody_else() -> None:
    assert wanted_slots(demand(waiting=50, running=2, starts_per_second=1.0, is_paused=True), target_seconds=5) == 2


def test_there_is_an_end_to_what_is_wanted() -> None:
    assert wanted_slots(demand(starts_per_second=1e5, mean_seconds=600), target_seconds=5) == MOST_WANTED


@given(
    waiting=st.integers(0, 2_000),
    running=st.integers(0, 500),
    rate=st.floats(0, 50),
    mean=st.floats(0.01, 300),
    target=st.floats(0.5, 120),
)
def test_more_work_never_wants_fewer_slots(waiting: int, running: int, rate: float, mean: float, target: float) -> None:
    here = wanted_slots(
        demand(waiting=waiting, running=running, starts_per_second=rate, mean_seconds=mean), target_seconds=target
    )
    assert here >= running
    more_waiting = demand(waiting=waiting + 1, running=running, starts_per_second=rate, mean_seconds=mean)
    more_coming = demand(waiting=waiting, running=running, starts_per_second=rate * 1.1, mean_seconds=mean)
    assert wanted_slots(more_waiting, target_seconds=target) >= here
    assert wanted_slots(more_coming, target_seconds=target) >= here
