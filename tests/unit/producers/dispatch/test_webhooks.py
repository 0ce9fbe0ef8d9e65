"""When a destination's circuit opens, and how long a try waits; and that tries go on for more than an hour."""

import pytest

from producers.dispatch.webhooks import RETRY_SECONDS, Circuit, after_silence, before_try
from routing.policy.platform import Webhooks

RULES = Webhooks(seconds=10, failures=3, pause_seconds=30, longest_pause_seconds=100)


def silent(times: int, *, now: float = 0.0) -> Circuit:
    circuit = Circuit()
    for _ in range(times):
        circuit = after_silence(circuit, now, RULES)
    return circuit


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_destination_is_tried_until_it_was_silent_often_enough(times: int) -> None:
    assert before_try(silent(times), 0.0, RULES) == (0.0, silent(times))


def test_an_open_circuit_makes_tries_wait_until_its_pause_is_over() -> None:
    circuit = silent(3)
    assert before_try(circuit, 12.0, RULES) == (18.0, circuit)


def test_one_try_tests_it_and_the_others_wait_for_that_one() -> None:
    wait, testing = before_try(silent(3), 30.0, RULES)
    assert wait == 0.0
    assert before_try(testing, 31.0, RULES)[0] == 9.0


def test_each_test_without_an_answer_doubles_the_pause_up_to_the_longest() -> None:
    circuit, now, pauses = silent(3), 0.0, []
    for _ in range(40):
        pauses.append(circuit.open_until - now)
        now = circuit.open_until
        circuit = after_silence(before_try(circuit, now, RULES)[1], now + 1, RULES)
        now += 1
    assert pauses[:4] == [30, 60, 100, 100]
    assert pauses[-1] == 100


def test_tries_that_were_under_way_when_it_opened_count_once() -> None:
    assert silent(60) == silent(3)


def test_the_waits_grow_from_seconds_to_an_hour() -> None:
    assert RETRY_SECONDS == (5, 30, 120, 600, 3600)
    assert list(RETRY_SECONDS) == sorted(RETRY_SECONDS)
