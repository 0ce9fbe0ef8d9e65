"""Turns: tenants share a queue by their weights, and nobody starves, however the others behave."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.scheduling import (
    Ready,
    Share,
    advance_turns,
    compute_order,
    is_low,
    next_tenants,
    seconds_to_low,
    select_next_jobs,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def job(tenant: str, number: int, *, priority: str = "P2") -> Ready:
    return Ready(UUID(int=number), tenant, priority, START + timedelta(seconds=number), None)


class Queue:
    """A queue whose tenants always have work waiting, and whose broker works it off in the order of its list."""

    def __init__(self, weights: dict[str, int], *, room: int) -> None:
        self.weights, self.room = dict(weights), room
        self.turns = dict.fromkeys(weights, 0.0)
        self.now, self.line, self.served = 0.0, list[str](), Counter[str]()

    def work(self, rounds: int) -> None:
        for _ in range(rounds):
            standing = Counter(self.line)
            shares = [
                Share(name, weight, standing[name], self.turns.get(name, 0.0), 16 * weight)
                for name, weight in self.weights.items()
            ]
            order = compute_order(shares, before=self.now)
            room = self.room - len(self.line)
            ready = [job(name, number) for name in next_tenants(shares, order, room=room) for number in range(room)]
            taken = select_next_jobs(shares, ready, order, room=room)
            self.now = order.now
            self.turns |= advance_turns(shares, taken, order)
            self.line += [one.tenant for one in taken]
            self.served[self.line.pop(0)] += 1


@given(st.lists(st.integers(1, 5), min_size=2, max_size=12), st.integers(1, 20))
def test_each_tenant_is_served_by_its_weight_however_short_the_runway(weights: list[int], room: int) -> None:
    queue = Queue({f"t{number}": weight for number, weight in enumerate(weights)}, room=room)
    rounds = sum(weights) * 20
    queue.work(rounds)
    for name, weight in queue.weights.items():
        assert abs(queue.served[name] - rounds * weight / sum(weights)) <= room + 2 * weight + 1


def test_a_tenant_that_comes_late_gets_its_share_from_then_on_and_nothing_for_the_past() -> None:
    queue = Queue({"early": 1}, room=4)
    queue.work(100)
    queue.weights["late"] = 1
    queue.served.clear()
    queue.work(100)
    assert abs(queue.served["early"] - queue.served["late"]) <= 8


def test_what_a_tenant_wants_first_goes_first_within_its_own_turns_only() -> None:
    shares = [Share("a", 1, 0, 0.0, 9), Share("b", 1, 0, 0.0, 9)]
    order = compute_order(shares, before=0.0)
    ready = [job("a", 5, priority="P0"), job("a", 6, priority="P0"), job("b", 1)]
    assert [one.tenant for one in select_next_jobs(shares, ready, order, room=3)] == ["a", "b", "a"]


def test_a_tenant_without_room_of_its_own_takes_no_turn() -> None:
    shares = [Share("a", 1, 3, 3.0, 0), Share("b", 1, 0, 0.0, 1)]
    order = compute_order(shares, before=0.0)
    assert next_tenants(shares, order, room=5) == ["b"]
    assert select_next_jobs(shares, [job("b", 1), job("b", 2)], order, room=5) == [job("b", 1)]


def test_a_runway_is_low_when_half_of_what_stood_there_was_taken() -> None:
    assert [standing for standing in range(17) if is_low(standing, highest=16)] == list(range(9))
    assert is_low(0, highest=0), "what never stood anywhere is pushed at once"
    assert is_low(0, highest=1)
    assert not is_low(1, highest=1)


def test_a_runway_gets_low_at_the_pace_at_which_its_jobs_were_taken() -> None:
    assert seconds_to_low(12, highest=16, seconds=0.2) == pytest.approx(0.2), "four in 0.2 s, and four more until half"
    assert seconds_to_low(8, highest=16, seconds=0.2) == seconds_to_low(0, highest=16, seconds=9.0) == 0.0
    assert seconds_to_low(16, highest=16, seconds=0.1) == pytest.approx(0.8), "nothing yet: as if one were taken now"
    assert seconds_to_low(0, highest=0, seconds=5.0) == 0.0
