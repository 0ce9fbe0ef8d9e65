from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from monitoring.capacity.queueing import Load, slots_for
from monitoring.capacity.wanted import MOST_WANTED, Demand, wanted_slots


def demand(**fields: Any) -> Demand:
    values: dict[str, Any] = {
        "waiting": 0, "running": 0, "starts_per_second": 0.0, "mean_seconds": 6.0, "variability": 1.0,
    }  # fmt: skip
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
    waiting=st.integers(0, 2_000), running=st.integers(0, 500), rate=st.floats(0, 50), mean=st.floats(0.01, 300),
    target=st.floats(0.5, 120),
)  # fmt: skip
def test_more_work_never_wants_fewer_slots(waiting: int, running: int, rate: float, mean: float, target: float) -> None:
    here = wanted_slots(
        demand(waiting=waiting, running=running, starts_per_second=rate, mean_seconds=mean), target_seconds=target
    )
    assert here >= running
    more_waiting = demand(waiting=waiting + 1, running=running, starts_per_second=rate, mean_seconds=mean)
    more_coming = demand(waiting=waiting, running=running, starts_per_second=rate * 1.1, mean_seconds=mean)
    assert wanted_slots(more_waiting, target_seconds=target) >= here
    assert wanted_slots(more_coming, target_seconds=target) >= here
