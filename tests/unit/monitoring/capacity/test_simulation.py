"""The simulation against the formulas where those are exact, and where only it can tell."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitoring.capacity.arrivals import Arrival, Bursts, random_arrivals, replayed
from monitoring.capacity.queueing import Load, waits
from monitoring.capacity.samples import Samples
from monitoring.capacity.simulation import Pool, Seen, simulate

EXPONENTIAL = Samples.of(-math.log(1 - (place + 0.5) / 2000) for place in range(2000))
STEADY = Samples.of([1.0])
ATTEMPTS = 30_000


def run(pool: Pool, rate: float, *, attempts: int = ATTEMPTS, bursts: Bursts | None = None) -> Seen:
    arrivals = random_arrivals({"spec": rate}, bursts=bursts or Bursts(), seed=3)
    return simulate({"spec": pool}, arrivals, attempts=attempts, seed=4)["spec"]


@pytest.mark.parametrize(("slots", "busy"), [(1, 0.6), (4, 0.8), (20, 0.85)])
def test_random_arrivals_and_exponential_durations_wait_as_erlang_says(slots: int, busy: float) -> None:
    rate = busy * slots / EXPONENTIAL.mean
    seen = run(Pool(slots=slots, service=EXPONENTIAL), rate)
    formula = waits(Load(rate=rate, mean_seconds=EXPONENTIAL.mean), slots)
    assert seen.waits.mean == pytest.approx(formula.mean, rel=0.15)
    assert seen.waits.p95 == pytest.approx(formula.p95, rel=0.15)
    assert seen.busy == pytest.approx(busy, rel=0.03)


def test_durations_that_are_all_the_same_wait_as_allen_and_cunneen_say() -> None:
    rate = 0.85 * 4
    seen = run(Pool(slots=4, service=STEADY), rate)
    assert seen.waits.p95 == pytest.approx(waits(Load(rate=rate, mean_seconds=1, variability=0), 4).p95, rel=0.15)


def test_the_way_between_two_attempts_takes_a_slot_s_time() -> None:
    with_way = run(Pool(slots=4, service=STEADY, turnaround_seconds=0.25), 2.4)
    longer = run(Pool(slots=4, service=STEADY.shifted(0.25)), 2.4)
    assert with_way.waits.p95 == pytest.approx(longer.waits.p95, rel=0.02)


def test_a_message_s_way_is_waited_for_even_by_a_slot_that_is_free() -> None:
    seen = run(Pool(slots=50, service=STEADY, pickup_seconds=0.3), 1.0, attempts=2_000)
    assert seen.waits.p50 == pytest.approx(0.3)


def test_jobs_that_come_at_known_times_wait_as_counted_by_hand() -> None:
    arrivals = [Arrival(at, "spec") for at in (0.0, 0.1, 0.2, 5.0)]
    seen = simulate({"spec": Pool(slots=1, service=STEADY)}, arrivals, attempts=100, seed=1)["spec"]
    assert seen.attempts == 4
    assert seen.waits.mean == pytest.approx((0.0 + 0.9 + 1.8 + 0.0) / 4)


def test_what_escalates_is_worked_off_by_the_next_pool() -> None:
    pools = {
        "spec": Pool(slots=3, service=STEADY, follows={"patch": 0.2}),
        "patch": Pool(slots=2, service=STEADY, follows={"agent": 0.5}),
        "agent": Pool(slots=2, service=STEADY),
    }
    arrivals = random_arrivals({"spec": 2.0}, bursts=Bursts(), seed=5)
    seen = simulate(pools, arrivals, attempts=20_000, seed=6)
    assert seen["patch"].attempts / seen["spec"].attempts == pytest.approx(0.2, rel=0.05)
    assert seen["agent"].attempts / seen["patch"].attempts == pytest.approx(0.5, rel=0.08)


def test_bursts_keep_the_mean_rate_and_wait_far_longer() -> None:
    bursts = Bursts(peak=4, seconds=10)
    times = []
    for arrival in random_arrivals({"spec": 2.0}, bursts=bursts, seed=7):
        times.append(arrival.at)
        if len(times) == 40_000:
            break
    assert len(times) / times[-1] == pytest.approx(2.0, rel=0.1)
    calm, bursty = (run(Pool(slots=4, service=STEADY), 2.0, bursts=kind) for kind in (None, bursts))
    assert bursty.waits.p95 > 10 * calm.waits.p95
    assert bursts.variability(2.0) > 5
    assert Bursts().variability(2.0) == 1


def test_the_same_seed_shows_the_same() -> None:
    pool = Pool(slots=3, service=EXPONENTIAL, busy_at_start=2)
    assert run(pool, 2.0, attempts=3_000) == run(pool, 2.0, attempts=3_000)


def test_a_pool_of_long_attempts_begins_in_the_middle_of_them() -> None:
    long = Samples.of([1_000.0])
    empty, busy = (run(Pool(slots=91, service=long, busy_at_start=at), 0.09, attempts=80) for at in (0, 90))
    assert busy.waits.p95 > empty.waits.p95


@settings(max_examples=15)
@given(
    slots=st.integers(1, 8), busy=st.floats(0.2, 0.9),
    seconds=st.lists(st.floats(0.01, 50), min_size=1, max_size=30),
)  # fmt: skip
def test_another_slot_never_makes_anybody_wait_longer(slots: int, busy: float, seconds: list[float]) -> None:
    service = Samples.of(seconds)
    rate = busy * slots / service.mean
    some, more = (run(Pool(slots=count, service=service), rate, attempts=1_000).waits for count in (slots, slots + 1))
    for share in ("mean", "p50", "p95", "p99"):
        assert getattr(more, share) <= getattr(some, share) + 1e-9


def test_arrivals_are_replayed_at_another_pace() -> None:
    seen = [Arrival(at, "spec") for at in (100.0, 101.0, 104.0)]
    assert [arrival.at for arrival in replayed(seen, faster=2)] == [0.0, 0.5, 2.0]


def test_random_arrivals_are_in_order_and_in_their_shares() -> None:
    found = []
    for arrival in random_arrivals({"spec": 3.0, "agent": 1.0, "tools": 0.0}, bursts=Bursts(peak=3), seed=8):
        found.append(arrival)
        if len(found) == 8_000:
            break
    assert all(first.at <= second.at for first, second in pairwise(found))
    assert sum(arrival.queue == "agent" for arrival in found) / len(found) == pytest.approx(0.25, abs=0.02)
    assert {arrival.queue for arrival in found} == {"spec", "agent"}
