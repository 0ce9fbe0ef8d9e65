"""What is taken in together: everything but what changes the ground that others stand on."""

from typing import Any
from uuid import uuid4

import pytest

from producers.intake.decisions import BatchItem
from producers.intake.submit import BATCH, batches
from routing.jobs import JobRequest


def cut(*bodies: dict[str, Any]) -> list[list[int]]:
    asked = [
        BatchItem(place, uuid4(), JobRequest.model_validate({"prompt": "x"} | body))
        for place, body in enumerate(bodies)
    ]
    return [[one.place for one in batch] for batch in batches(asked)]


def test_plain_requests_are_taken_in_together_up_to_a_bound() -> None:
    assert cut() == []
    assert cut({}, {"site": "a"}, {"site": "a"}) == [[0, 1, 2]]
    assert [len(batch) for batch in cut(*[{}] * (BATCH + 1))] == [BATCH, 1]


@pytest.mark.parametrize("apart", [{"new_site": "a"}, {"project": "a"}, {"site": "a", "supersede_key": "k"}])
def test_what_others_may_stand_on_comes_alone_and_in_its_turn(apart: dict[str, Any]) -> None:
    assert cut({}, {}, apart, apart, {}) == [[0, 1], [2], [3], [4]]


def test_a_key_that_comes_again_is_looked_up_when_the_first_job_is_there() -> None:
    k, other = {"idempotency_key": "k"}, {"idempotency_key": "other"}
    assert cut(k, {}, other, {}, k, other) == [[0, 1, 2, 3], [4, 5]]
