"""`pointsman capacity` says how long jobs will wait; here a real fleet tells how long they did.

`make capacity` runs it: about five minutes, on a machine that does nothing else. On a busy one service takes longer
under load than it did when it was measured, which no model of queues can know.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import pytest

from monitoring.capacity.plan import Plan, Question, make_plan, read_limits
from monitoring.capacity.workload import Measured
from routing.policy.platform import platform_policy
from routing.queues import QueueName
from tests.acceptance.capacity_fleet import (
    SLOTS,
    Fleet,
    Observed,
    expected_p95,
    expected_service,
    poisson,
    running_fleet,
    typical,
)

ANSWER = QueueName.ANSWER
LOADS = (0.6, 0.85)
CALIBRATION_SECONDS = 42
LOAD_SECONDS = {0.6: 85.0, 0.85: 115.0}
NOMINAL_SECONDS = 1.35
"""What a job about takes: only for the rate of the calibration."""
WITHIN = 0.25
DRIFT = 0.1
"""By how much attempts of a kind may have changed since they were measured: above it nothing was tested."""


def plan_for(found: Measured, busy: float) -> tuple[Plan, float]:
    work = found.workload.queues[ANSWER]
    rate = busy * SLOTS / work.occupied_seconds
    question = Question(arriving={ANSWER: rate}, p95_targets={}, ceiling_usd=500, fixed={ANSWER: SLOTS})
    return make_plan(found.workload, question, limits=read_limits(None), policy=platform_policy()), rate


def compare(fleet: Fleet, found: Measured, busy: float, *, kinds: Mapping[str, float]) -> dict[str, object]:
    work = found.workload.queues[ANSWER]
    plan, rate = plan_for(found, busy)
    predicted = plan.queues[0]
    occupied = {kind: seconds + work.turnaround_seconds for kind, seconds in kinds.items()}
    p95 = predicted.waits.p95
    jobs = typical(rate, LOAD_SECONDS[busy], p95=p95, occupied=occupied, pickup=work.pickup_seconds)
    seen: Observed = fleet.play(jobs)
    return {
        "busy": busy,
        "rate": rate,
        "jobs": seen.jobs,
        "observed_p95": seen.p95,
        "predicted": asdict(predicted.waits),
        "of_these_arrivals_p95": expected_p95(jobs, occupied, work.pickup_seconds),
        "off": p95 / seen.p95 - 1,
        "mean_service_predicted": expected_service(jobs, kinds),
        "mean_service_observed": seen.mean_service,
        "pickup": work.pickup_seconds,
        "turnaround": work.turnaround_seconds,
    }


def test_a_load_is_typical_of_the_endless_stream_and_not_chosen_by_what_a_fleet_did() -> None:
    kinds = {"brisk": 1.0, "broad": 2.4}
    jobs = typical(2.0, 60.0, p95=2.0, occupied=kinds, pickup=0.02)
    assert expected_p95(jobs, kinds, 0.02) == pytest.approx(2.0, rel=0.04)
    assert len(jobs) / 60 == pytest.approx(2.0, rel=0.03)
    assert jobs == typical(2.0, 60.0, p95=2.0, occupied=kinds, pickup=0.02)


@pytest.mark.long
@pytest.mark.timeout(540)
def test_the_p95_wait_of_a_real_fleet_is_predicted_within_a_quarter_at_two_loads() -> None:
    scratch = tempfile.TemporaryDirectory(prefix="pointsman-capacity-", ignore_cleanup_errors=True)
    with scratch as directory, running_fleet(Path(directory)) as fleet:
        fleet.play(poisson(0.5 * SLOTS / NOMINAL_SECONDS, 5, seed=1))  # connections and caches
        fleet.forget()
        fleet.play(poisson(0.72 * SLOTS / NOMINAL_SECONDS, CALIBRATION_SECONDS, seed=2))
        # each load is predicted from what the ledger knows by then, as an operator's question would be
        results = [compare(fleet, fleet.measured(), busy, kinds=fleet.kinds()) for busy in LOADS]
    print(json.dumps(results, indent=2))
    for result in results:
        drift = float(str(result["mean_service_observed"])) / float(str(result["mean_service_predicted"])) - 1
        assert abs(drift) <= DRIFT, f"this machine was busy: attempts took {drift:+.0%} of what they took when measured"
        assert abs(float(str(result["off"]))) <= WITHIN, result
