"""Plans: pools that keep their targets, what they cost, and what gives out next."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import CapacityError
from monitoring.capacity.plan import NAMES, Instances, Limits, Plan, Question, make_plan, read_limits
from monitoring.capacity.workload import Workload, default_workload
from routing.policy.platform import Policy, platform_policy
from routing.queues import QUEUES
from tests.unit.monitoring.capacity.test_workload import HAIKU, SPEC, WORKLOAD_PATCH, workload

BOUNDLESS = read_limits(None).override(dict.fromkeys((*NAMES[:6], "ledger_connections"), 1e9))


def question(rate: float = 2.0, **changes: Any) -> Question:
    fields: dict[str, Any] = {
        "arriving": {SPEC: rate},
        "p95_targets": {SPEC: 3.0, WORKLOAD_PATCH: 10.0},
        "ceiling_usd": 1e6,
    }
    return Question(**(fields | changes))


def boundless_policy() -> Policy:
    policy = platform_policy()
    budgets = policy.budgets.model_copy(update={"fleet_day_usd": 1e9, "tenant_day_usd": 1e9})
    admission = policy.admission.model_copy(update={"running_per_tenant": 10**6})
    return policy.model_copy(update={"budgets": budgets, "admission": admission})


def planned(asked: Question, *, work: Workload | None = None, limits: Limits = BOUNDLESS) -> Plan:
    return make_plan(work or workload(), asked, limits=limits, policy=boundless_policy())


def test_every_pool_keeps_its_target() -> None:
    plan = planned(question())
    assert {queue.queue for queue in plan.queues} == {SPEC, WORKLOAD_PATCH}
    for queue in plan.queues:
        assert queue.is_met
        assert queue.waits.p95 <= queue.target_seconds
        assert queue.busy <= 0.9


def test_escalations_load_the_next_tier() -> None:
    by_queue = {queue.queue: queue for queue in planned(question()).queues}
    assert by_queue[WORKLOAD_PATCH].load.rate == pytest.approx(0.2)
    more = {queue.queue: queue for queue in planned(question(), work=workload(follows={WORKLOAD_PATCH: 0.4})).queues}
    assert more[WORKLOAD_PATCH].slots > by_queue[WORKLOAD_PATCH].slots
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
    plan = planned(question(fixed={SPEC: 10, WORKLOAD_PATCH: 50}))
    spec = next(queue for queue in plan.queues if queue.queue == SPEC)
    assert (spec.slots, spec.is_met, spec.is_fixed) == (10, False, True)
    assert not spec.waits.is_bounded, "ten slots, and ten busy on average"
    assert plan.bottleneck.name == "workers of spec"
    assert not plan.is_good


@pytest.mark.parametrize(
    ("limit", "named"),
    [
        ("api_submits_per_second", "api"),
        ("gateway_calls_per_second", "gateway"),
        ("dispatcher_pushes_per_second", "dispatcher"),
        ("ledger_transactions_per_second", "ledger"),
        ("fold_events_per_second", "exporter"),
        ("dispatcher_rounds_per_second", "dispatch window of spec"),
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
    policy = boundless_policy()
    targets = {queue: QUEUES[queue].target_seconds for queue in policy.queues}
    asked = Question(arriving=work.arriving(5e6 / 86_400), p95_targets=targets, ceiling_usd=1e9)
    plan = make_plan(work, asked, limits=read_limits(None), policy=policy)
    assert plan.jobs_per_day == pytest.approx(5e6)
    assert plan.bottleneck_measured.basis == "measured"
    assert any("defaults" in note for note in plan.notes)


@pytest.mark.parametrize("rate", [100, 1_000, 10_000])
def test_by_the_shipped_limits_the_ledger_gives_out_long_before_its_one_dispatcher_and_exporter(rate: int) -> None:
    work = default_workload(platform_policy())
    asked = question(arriving=work.arriving(rate), p95_targets=dict.fromkeys(QUEUES, 60.0))
    plan = planned(asked, work=work, limits=read_limits(None))
    headroom = {part.name: part.headroom for part in plan.components}
    assert min(headroom["dispatcher"], headroom["exporter"]) > 10 * headroom["ledger"]


def test_work_that_never_ends_is_refused() -> None:
    with pytest.raises(CapacityError, match="every attempt brings another"):
        planned(question(), work=workload(follows={SPEC: 1.0}))
    with pytest.raises(CapacityError, match="nothing arrives"):
        planned(question(rate=0.0))


def test_bursts_take_more_slots_than_the_same_rate_at_random_and_are_named() -> None:
    calm, bursty = (planned(question(burstiness=value)) for value in (1.0, 20.0))
    assert sum(queue.slots for queue in bursty.queues) > sum(queue.slots for queue in calm.queues)
    assert [note for note in bursty.notes if note.startswith("bursts")]
    assert not [note for note in calm.notes if note.startswith("bursts")]


def test_a_long_tail_is_named() -> None:
    notes = planned(question(), work=workload(variability=9.0)).notes
    assert [note for note in notes if note.startswith("durations with a long tail") and note.endswith("spec")]


def test_a_target_that_no_pool_can_keep_is_missed_and_not_refused() -> None:
    plan = planned(question(), work=workload(pickup_seconds=4.0))
    assert [queue.is_met for queue in plan.queues] == [False, True]


LIMITS = read_limits(None).override({"api_submits_per_second": 1e9})


def test_limits_are_read_from_a_file_and_changed_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(LIMITS.model_dump()))
    assert read_limits(path) == LIMITS
    path.write_text(json.dumps(LIMITS.model_dump() | {"api_submits_per_second": 0}))
    with pytest.raises(CapacityError, match="api_submits_per_second: Input should be greater than 0"):
        read_limits(path)
    with pytest.raises(CapacityError, match="there is no lunch; there are api_submits"):
        LIMITS.override({"lunch": 1})
