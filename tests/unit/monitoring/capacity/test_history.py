import pytest

from monitoring.capacity.history import AttemptFact, CallTotals, describe, first_arrivals, handover, mix_of
from routing.queues import QueueName

SPEC, PATCH, ANSWER = QueueName.SPEC, QueueName.PATCH, QueueName.ANSWER


def fact(
    arrived: float, started: float, ended: float, *, queue: QueueName = SPEC, then: QueueName | None = None,
    first: bool = True,
) -> AttemptFact:  # fmt: skip
    return AttemptFact(queue, arrived, started, ended, then, first)


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
    calls = [CallTotals(SPEC, "anthropic/haiku", 6, 6_000, 0.02), CallTotals(SPEC, "anthropic/opus", 2, 800, 0.06)]
    work = describe(attempts, calls)
    assert (work.source, work.attempts, work.seconds) == ("measured", 4, (4.0, 4.0, 4.0, 4.0))
    assert work.follows == {PATCH: 0.25}
    assert work.usd == pytest.approx(0.02)
    assert work.models["anthropic/haiku"].calls == 1.5
    assert work.models["anthropic/opus"].tokens == 200
    assert work.calls == 2


def test_only_a_job_s_first_attempt_is_an_arrival() -> None:
    attempts = {
        ANSWER: [fact(5.0, 6.0, 7.0, queue=ANSWER)], SPEC: [fact(8.0, 8.0, 9.0), fact(1.0, 2.0, 3.0, then=PATCH)],
        PATCH: [fact(3.0, 4.0, 5.0, queue=PATCH, first=False)],
    }  # fmt: skip
    assert [(arrival.at, arrival.queue) for arrival in first_arrivals(attempts, most=3)] == [
        (1.0, "spec"), (5.0, "answer"), (8.0, "spec"),
    ]  # fmt: skip


def test_arrivals_begin_where_those_of_every_queue_are_known() -> None:
    attempts = {
        ANSWER: [fact(float(at), float(at), at + 1.0, queue=ANSWER) for at in (9, 7)],
        SPEC: [fact(float(at), float(at), at + 1.0) for at in (8, 6, 4, 2)],
    }
    assert [arrival.at for arrival in first_arrivals(attempts, most=4)] == [2.0, 4.0, 6.0, 7.0, 8.0, 9.0]
    assert [arrival.at for arrival in first_arrivals(attempts, most=2)] == [7.0, 8.0, 9.0]
    assert first_arrivals({}, most=2) == []


def test_the_mix_is_what_share_of_the_jobs_came_to_each_queue() -> None:
    assert mix_of({SPEC: 60_000, ANSWER: 20_000}) == {SPEC: 0.75, ANSWER: 0.25}
    assert mix_of({}) == {}
