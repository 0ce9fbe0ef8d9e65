from __future__ import annotations

import re

from monitoring.exporter import Snapshot, SnapshotCollector
from monitoring.gauges import PROBED
from monitoring.metrics import FOLDED, PREFIX, Kind, Metric, SeriesKey, series_key

NAMES = """
attempt_cost_usd_total{tier,queue_name} counter
attempt_duration_seconds{tier,queue_name} histogram
attempt_oldest_age_seconds{queue_name} gauge
attempts_running{tier,queue_name} gauge
audit_unsealed_age_seconds{} gauge
backlog_usd{queue_name} gauge
backlog_work_seconds{queue_name} gauge
boxes_opened_total{queue_name,start} counter
boxes_working{queue_name} gauge
broker_clients{} gauge
broker_evicted_keys_total{} counter
broker_memory_limit_bytes{} gauge
broker_memory_used_bytes{} gauge
broker_messages{queue_name} gauge
broker_up{} gauge
budget_limit_usd{scope} gauge
budget_reserved_usd{scope} gauge
budget_spent_usd{scope} gauge
budget_used_ratio_max{scope} gauge
build_info{version,policy,prices_as_of} gauge
calls_restored_total{lost} counter
cells_directory_up{} gauge
cells_leased_usd{} gauge
cells_move_age_seconds_max{} gauge
cells_moves{step} gauge
circuit_open_seconds{provider,model} gauge
circuit_opens_total{provider,model,reason} counter
clarifications_total{mode,confidence} counter
cost_usd_total{tier,model,provider} counter
cost_wasted_usd_total{tier} counter
dead_letters{queue_name} gauge
debates_total{kind,verdict} counter
dispatcher_leader_present{} gauge
duplicates_fenced_total{queue_name} counter
fleet_slots_busy{} gauge
fleet_slots{} gauge
fold_lag_seconds{} gauge
gates_per_run{state} histogram
held_jobs{reason} gauge
job_attempts_total{tier,queue_name,outcome,reason} counter
job_cost_usd{tier} histogram
job_duration_seconds{tier,state} histogram
jobs_accepted_total{source} counter
jobs_by_box_total{tier,box} counter
jobs_enqueued_total{tier,queue_name} counter
jobs_finished_total{tier,queue_name,state,reason} counter
jobs_started_total{tier,queue_name} counter
ladder_events_total{event,reason} counter
lease_age_seconds_max{queue_name} gauge
ledger_blocked_seconds_max{} gauge
ledger_connections_limit{} gauge
ledger_connections{} gauge
limit_hits_total{tier,queue_name,limit,phase} counter
messages_dropped_total{queue_name} counter
messages_unread_total{queue_name} counter
mirror_bytes_total{} counter
mirror_requests_total{result} counter
orphans_reaped_total{sort} counter
output_bytes{tier} histogram
provider_breaker_state{provider,model} gauge
provider_requests_total{provider,model,code} counter
queue_depth{queue_name} gauge
queue_oldest_age_seconds{queue_name} gauge
queue_paused{queue_name} gauge
queue_ready_oldest_age_seconds{queue_name} gauge
queue_wait_seconds{queue_name,tier} histogram
requests_refused_total{source,field} counter
routes_total{mode,confidence,tier} counter
run_gates_total{kind,state} counter
run_tokens_total{part} counter
slots_busy{queue_name} gauge
slots{queue_name} gauge
step_seconds{step} histogram
tier_escalations_total{origin,target,reason} counter
tokens_total{tier,model,kind} counter
wanted_slots{queue_name} gauge
webhooks_undelivered{standing} gauge
workers{standing} gauge
"""
"""Dashboards and alerts of our users rely on these: a change here is a change for them, and belongs in CHANGELOG.md."""


def describe(metric: Metric) -> str:
    return f"{metric.name}{{{','.join(metric.labels)}}} {metric.kind}"


def test_names_labels_and_kinds_are_as_published() -> None:
    assert sorted(describe(metric) for metric in (*FOLDED, *PROBED)) == NAMES.split("\n")[1:-1]


def test_names_follow_the_rules_of_prometheus() -> None:
    for metric in (*FOLDED, *PROBED):
        assert re.fullmatch(r"[a-z][a-z_]+", PREFIX + metric.name)
        assert (metric.kind == Kind.COUNTER) == metric.name.endswith("_total"), metric.name
        assert bool(metric.buckets) == (metric.kind == Kind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.help.endswith(".")


def test_series_that_start_at_0_have_a_value_for_each_label_and_stay_few() -> None:
    total = 0
    for metric in FOLDED:
        assert len(set(metric.zeros)) == len(metric.zeros), metric.name
        assert all(len(zero) == len(metric.labels) for zero in metric.zeros), metric.name
        total += len(metric.zeros) * (len(metric.buckets) + 3 if metric.buckets else 1)
    assert total < 3_500  # of the ten thousand that a fleet may have


def rendered(series: dict[SeriesKey, float]) -> dict[tuple[str, tuple[str, ...]], float]:
    collector = SnapshotCollector(Snapshot(series, (), (), ()))
    return {
        (sample.name.removeprefix(PREFIX), tuple(sample.labels.values())): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def test_stored_units_become_the_units_of_the_name() -> None:
    labels = {"tier": "spec", "model": "m", "provider": "p"}
    assert rendered({series_key("cost_usd_total", labels): 1_500_000_000})["cost_usd_total", ("spec", "m", "p")] == 1.5


def test_single_buckets_become_cumulative_ones() -> None:
    place = {"queue_name": "spec", "tier": "spec"}
    samples = rendered(
        {
            series_key("attempt_duration_seconds_bucket", place | {"le": "30.0"}): 2,
            series_key("attempt_duration_seconds_bucket", place | {"le": "+Inf"}): 1,
            series_key("attempt_duration_seconds_bucket", place | {"le": "7.0"}): 4,
            series_key("attempt_duration_seconds_sum", place): 500_000,
        }
    )
    found = {
        labels[2]: value
        for (name, labels), value in samples.items()
        if name == "attempt_duration_seconds_bucket" and labels[:2] == ("spec", "spec")
    }
    assert [found[bound] for bound in ("5.0", "7.0", "25.0", "30.0", "330.0", "+Inf")] == [0, 4, 4, 6, 6, 7]
    assert samples["attempt_duration_seconds_count", ("spec", "spec")] == 7
    assert samples["attempt_duration_seconds_sum", ("spec", "spec")] == 500


def test_a_series_from_before_a_label_existed_is_still_shown() -> None:
    assert rendered({series_key("cost_wasted_usd_total", {}): 2e9})["cost_wasted_usd_total", ("none",)] == 2


def test_what_was_counted_before_a_label_existed_is_added_to_what_has_none() -> None:
    old, new = ({"model": "m", "kind": "input"} | more for more in ({}, {"tier": "none"}))
    samples = rendered({series_key("tokens_total", old): 2, series_key("tokens_total", new): 3})
    assert samples["tokens_total", ("none", "m", "input")] == 5
