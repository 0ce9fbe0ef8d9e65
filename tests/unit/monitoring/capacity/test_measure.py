"""What a list of attempts says: durations, the ways between them, and what follows. Real ledgers: test_capacity."""

import pytest

from monitoring.capacity.measure import AttemptFact, CallTotals, describe, handover
from routing.queues import QueueName

PATCH = QueueName.PATCH


def fact(arrived: float, started: float, ended: float, *, then: QueueName | None = None) -> AttemptFact:
    return AttemptFact(arrived, started, ended, then)


def test_a_free_slot_s_pickup_is_told_from_a_busy_one_s_turnaround() -> None:
    one_slot = [
        fact(0.0, 0.1, 1.1),  # the slot was free: 0.1 s on the way
        fact(0.5, 1.4, 2.4),  # it waited for the first one's end, and began 0.3 s later
        fact(0.6, 2.7, 3.7),
        fact(9.0, 9.1, 10.1),
    ]
    found = handover(one_slot)
    assert found.pickup_seconds == pytest.approx(0.1)
    assert found.turnaround_seconds == pytest.approx(0.3)


def test_a_job_that_was_held_back_for_long_does_not_count_much() -> None:
    attempts = [fact(float(at), at + 0.1, at + 0.5) for at in range(0, 20, 2)]
    attempts.append(fact(21.0, 900.0, 901.0))
    assert handover(attempts).pickup_seconds == pytest.approx(0.1)


def test_without_anybody_waiting_a_slot_s_turn_takes_what_its_pickup_does() -> None:
    assert handover([fact(0.0, 0.2, 1.0)]) == (pytest.approx(0.2), pytest.approx(0.2))


def test_attempts_tell_durations_escalations_and_cost() -> None:
    attempts = [fact(at, at, at + 4, then=PATCH if at == 0 else None) for at in (0.0, 10.0, 20.0, 30.0)]
    calls = [CallTotals("anthropic/haiku", 6, 6_000, 0.02), CallTotals("anthropic/opus", 2, 800, 0.06)]
    work = describe(attempts, calls)
    assert (work.source, work.attempts, work.mean_seconds, work.variability) == ("measured", 4, 4.0, 0.0)
    assert work.follows == {PATCH: 0.25}
    assert work.usd == pytest.approx(0.02)
    assert work.models["anthropic/haiku"].calls == 1.5
    assert work.models["anthropic/opus"].tokens == 200
    assert work.calls == 2


def test_what_goes_to_the_queue_that_nobody_serves_brings_nobody_work() -> None:
    work = describe([fact(0.0, 0.0, 3.0, then=QueueName.UNROUTED), fact(0.0, 0.0, 1.0)], [])
    assert work.follows == {}
    assert (work.mean_seconds, work.variability) == (2.0, 0.25)
