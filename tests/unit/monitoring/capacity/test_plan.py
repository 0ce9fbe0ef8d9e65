"""Plans: pools that meet their targets, what they cost, and what gives out next."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monitoring.capacity.arrivals import Arrival, Bursts
from monitoring.capacity.defaults import WAIT_TARGETS, default_workload
from monitoring.capacity.limits import NAMES, Instances, Limits, read_limits
from monitoring.capacity.plan import Plan, make_plan
from monitoring.capacity.sizing import Question
from monitoring.capacity.workload import ModelUse, QueueWork, Workload, read_workload
from monitoring.errors import CapacityError
from routing.policy import Policy, platform_policy
from routing.queues import QueueName

SPEC, PATCH = QueueName.SPEC, QueueName.PATCH
HAIKU = "anthropic/haiku"
BOUNDLESS = read_limits(None).override(dict.fromkeys((*NAMES[:6], "ledger_connections"), 1e9))


def workload(**changes: Any) -> Workload:
    spec: dict[str, Any] = {
        "source": "measured", "attempts": 500, "seconds": (4.0, 6.0), "follows": {PATCH: 0.1}, "usd": 0.01,
        "models": {HAIKU: ModelUse(calls=2, tokens=5_000)},
    }  # fmt: skip
    patch = QueueWork(source="measured", attempts=50, seconds=(20.0,), usd=0.05)
    return Workload(source="a test", queues={SPEC: QueueWork(**(spec | changes)), PATCH: patch}, mix={SPEC: 1.0})


def question(rate: float = 2.0, **changes: Any) -> Question:
    fields: dict[str, Any] = {
        "arriving": {SPEC: rate}, "p95_targets": {SPEC: 3.0, PATCH: 10.0}, "ceiling_usd": 1e6, "attempts": 8_000,
    }  # fmt: skip
    return Question(**(fields | changes))


def boundless_policy() -> Policy:
    policy = platform_policy()
    budgets = policy.budgets.model_copy(update={"fleet_day_usd": 1e9, "tenant_day_usd": 1e9})
    admission = policy.admission.model_copy(update={"running_per_tenant": 10**6})
    return policy.model_copy(update={"budgets": budgets, "admission": admission})


def planned(asked: Question, *, work: Workload | None = None, limits: Limits = BOUNDLESS) -> Plan:
    return make_plan(work or workload(), asked, limits=limits, policy=boundless_policy())


def test_every_pool_meets_its_target_by_both_methods() -> None:
    plan = planned(question())
    assert {queue.queue for queue in plan.queues} == {SPEC, PATCH}
    for queue in plan.queues:
        assert queue.is_met
        assert max(queue.formula.p95, queue.simulated.waits.p95) <= queue.target_seconds
        assert queue.busy <= 0.9


def test_escalations_load_the_next_tier() -> None:
    by_queue = {queue.queue: queue for queue in planned(question()).queues}
    assert by_queue[PATCH].rate == pytest.approx(0.2)
    more = {queue.queue: queue for queue in planned(question(), work=workload(follows={PATCH: 0.4})).queues}
    assert more[PATCH].slots > by_queue[PATCH].slots
    assert more[SPEC].slots == by_queue[SPEC].slots


def test_a_day_costs_its_attempts_and_its_slots() -> None:
    plan = planned(question(rate=2.0, peak=2.0, slot_usd_hour=0.5, ceiling_usd=100.0))
    slots = sum(queue.slots for queue in plan.queues)
    assert plan.jobs_per_day == 86_400
    assert plan.model_usd_day == pytest.approx(86_400 * (0.01 + 0.1 * 0.05))
    assert plan.worker_usd_day == pytest.approx(slots * 12)
    assert not plan.is_affordable
    assert plan.affordable_jobs == pytest.approx(86_400 * 100 / plan.usd_day)


def test_a_given_pool_is_judged_as_it_is() -> None:
    plan = planned(question(fixed={SPEC: 10, PATCH: 50}))
    spec = next(queue for queue in plan.queues if queue.queue == SPEC)
    assert (spec.slots, spec.is_met, spec.is_fixed) == (10, False, True)
    assert not spec.formula.is_bounded, "ten slots, and ten busy on average"
    assert plan.bottleneck.name == "workers of spec"
    assert not plan.is_good


def test_bursts_take_more_slots_than_the_same_rate_at_random() -> None:
    calm, bursty = (
        sum(queue.slots for queue in planned(question(bursts=Bursts(peak=peak, seconds=60))).queues) for peak in (1, 5)
    )
    assert bursty > 1.5 * calm


def test_jobs_can_come_as_they_came() -> None:
    at_once = [Arrival(float(number // 40), SPEC.value) for number in range(400)]
    plan = planned(question(replay=at_once, fixed={SPEC: 25}, attempts=None))
    spec = next(queue for queue in plan.queues if queue.queue == SPEC)
    assert spec.simulated.attempts == 400
    assert spec.simulated.waits.p95 > 5, "forty at once are more than the pool"
    assert not [note for note in plan.notes if "cut" in note]


def test_a_replay_that_is_cut_is_said_to_be() -> None:
    seen = [Arrival(float(number), SPEC.value) for number in range(3_000)]
    plan = planned(question(replay=seen, fixed={SPEC: 25}, attempts=1_000))
    assert [note for note in plan.notes if "cut at 1,000 attempts" in note]


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ("api_submits_per_second", "api"),
        ("gateway_calls_per_second", "gateway"),
        ("dispatcher_pushes_per_second", "dispatcher"),
        ("ledger_transactions_per_second", "ledger"),
        ("fold_events_per_second", "exporter"),
        ("dispatcher_rounds_per_second", "runway of spec"),
        ("ledger_connections", "ledger connections"),
        (f"requests:{HAIKU}", f"provider {HAIKU}"),
        (f"tokens:{HAIKU}", f"provider {HAIKU}"),
    ],
)
def test_the_part_that_gives_out_is_named(limit: str, named: str) -> None:
    plan = planned(question(), limits=BOUNDLESS.override({limit: 0.01}))
    assert plan.bottleneck.name == named
    assert plan.bottleneck.headroom < 1
    assert not plan.is_good


def test_a_tenant_s_bound_on_what_runs_and_a_budget_are_bottlenecks_too() -> None:
    plan = make_plan(workload(), question(rate=20), limits=BOUNDLESS, policy=platform_policy())
    names = [part.name for part in plan.components if part.headroom < 1]
    assert names == ["budget of the tenants", "budget of the fleet", "admission"]
    shared = replace(question(rate=20), instances=Instances(tenants=1_000))
    wide = make_plan(workload(), shared, limits=BOUNDLESS, policy=platform_policy())
    assert [part.name for part in wide.components if part.headroom < 1] == ["budget of the fleet"]


def test_more_gateways_bear_more() -> None:
    limits = BOUNDLESS.override({"gateway_calls_per_second": 3})
    one, two = (planned(question(instances=Instances(gateways=count)), limits=limits) for count in (1, 2))
    assert one.bottleneck.headroom * 2 == pytest.approx(
        next(part for part in two.components if part.name == "gateway").headroom
    )


def test_millions_of_jobs_a_day_are_planned_and_their_bottleneck_is_named() -> None:
    work = default_workload(platform_policy())
    asked = Question(
        arriving=work.arriving(5e6 / 86_400), p95_targets=WAIT_TARGETS, ceiling_usd=1e9, attempts=20_000
    )  # fmt: skip
    plan = make_plan(work, asked, limits=read_limits(None), policy=boundless_policy())
    assert plan.jobs_per_day == pytest.approx(5e6)
    assert plan.bottleneck_measured.whence == "measured"
    assert any("defaults" in note for note in plan.notes)


def test_work_that_never_ends_is_refused() -> None:
    with pytest.raises(CapacityError, match="every attempt brings another"):
        planned(question(), work=workload(follows={SPEC: 1.0}))
    with pytest.raises(CapacityError, match="nothing arrives"):
        planned(question(rate=0.0))


def test_a_file_of_measurements_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_text(workload().model_dump_json())
    assert read_workload(path) == workload()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"mix": {"spec": 0.5}}, "mix: its shares must make 1"),
        ({"mix": {"spec": 0.5, "tools": 0.5}}, "queues: must describe tools"),
        ({"v": 2}, "v: Input should be 1"),
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


def test_limits_are_read_from_a_file_and_changed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(BOUNDLESS.model_dump()))
    assert read_limits(path) == BOUNDLESS
    path.write_text(json.dumps(BOUNDLESS.model_dump() | {"api_submits_per_second": 0}))
    with pytest.raises(CapacityError, match="api_submits_per_second: Input should be greater than 0"):
        read_limits(path)
    with pytest.raises(CapacityError, match="there is no lunch; there are api_submits"):
        BOUNDLESS.override({"lunch": 1})


@pytest.mark.parametrize("queue", WAIT_TARGETS)
def test_every_queue_has_a_default_within_its_limits(queue: QueueName) -> None:
    policy = platform_policy()
    work = default_workload(policy).queues[queue]
    assert work.source == "default"
    assert 0 < work.service.mean < policy.queues[queue].soft_seconds
    assert work.service.seconds[-1] <= policy.queues[queue].hard_seconds
