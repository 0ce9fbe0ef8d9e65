"""What a list of attempts says: durations, the ways between them, and what follows. Real ledgers: test_capacity."""

import json
import math
import random
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any

import pytest

from ledger.errors import CapacityError
from monitoring.capacity.workload import (
    AttemptFact,
    CallTotals,
    ModelUse,
    QueueWork,
    Workload,
    _lognormal,
    default_workload,
    describe,
    handover,
    read_workload,
)
from routing.policy.platform import platform_policy
from routing.queues import QUEUES, QueueName

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


# What a fleet does, read from a file, or taken by default from the policy.

SPEC, WORKLOAD_PATCH = QueueName.SPEC, QueueName.PATCH
HAIKU = "anthropic/haiku"


def workload(**changes: Any) -> Workload:
    spec: dict[str, Any] = {
        "source": "measured",
        "attempts": 500,
        "mean_seconds": 5.0,
        "variability": 0.04,
        "follows": {WORKLOAD_PATCH: 0.1},
        "usd": 0.01,
        "models": {HAIKU: ModelUse(calls=2, tokens=5_000)},
    }
    patch = QueueWork(source="measured", attempts=50, mean_seconds=20.0, variability=0.0, usd=0.05)
    return Workload(
        source="a test", queues={SPEC: QueueWork(**(spec | changes)), WORKLOAD_PATCH: patch}, mix={SPEC: 1.0}
    )


def test_a_file_of_measurements_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(workload().model_dump_json())
    assert read_workload(path) == workload()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"mix": {"spec": 0.5}}, "mix: its shares must make 1"),
        ({"mix": {"spec": 0.5, "tools": 0.5}}, "queues: must describe tools"),
        ({"v": 1}, "v: Input should be 2"),
        ({"lunch": 1}, "lunch: Extra inputs"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_its_place(tmp_path: Path, change: dict[str, Any], rule: str) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(workload().model_dump(mode="json") | change))
    with pytest.raises(CapacityError, match=rule):
        read_workload(path)
    with pytest.raises(CapacityError, match="cannot be read"):
        read_workload(tmp_path / "none.json")


@pytest.mark.parametrize("queue", platform_policy().queues)
def test_every_queue_has_a_default_within_its_limits(queue: QueueName) -> None:
    policy = platform_policy()
    work = default_workload(policy).queues[queue]
    assert work.source == "default"
    assert 0 < work.mean_seconds < policy.queues[queue].soft_seconds
    assert 0 < work.variability < 5
    assert 1 <= QUEUES[queue].target_seconds <= 60


def test_the_way_between_two_attempts_takes_a_slot_s_time() -> None:
    work = QueueWork(source="measured", mean_seconds=4.0, variability=1.0, turnaround_seconds=4.0)
    assert (work.occupied_seconds, work.occupied_variability) == (8.0, 0.25)


def test_a_new_tier_would_be_planned_for_without_being_named_here() -> None:
    work = default_workload(platform_policy())
    assert work.queues[SPEC].follows.keys() == {QueueName.CONTROL, WORKLOAD_PATCH}
    assert work.queues[QueueName.AGENT].follows.keys() == {QueueName.CONTROL}
    assert work.mix[SPEC] > work.mix[WORKLOAD_PATCH] > work.mix[QueueName.AGENT] > 0


def test_a_cut_lognormal_has_the_mean_and_the_spread_of_its_draws() -> None:
    draw = random.Random(1)
    sigma = math.log(4.0) / 1.6448536
    seconds = [min(20.0, 4.0 * math.exp(draw.gauss(0.0, sigma))) for _ in range(100_000)]
    mean, variability = _lognormal(4.0, p95=16.0, most=20.0)
    assert mean == pytest.approx(fmean(seconds), rel=0.01)
    assert variability == pytest.approx(pvariance(seconds) / fmean(seconds) ** 2, rel=0.02)
