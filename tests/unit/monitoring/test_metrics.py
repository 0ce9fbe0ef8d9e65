from __future__ import annotations

import re

from monitoring.exporter import Snapshot, SnapshotCollector
from monitoring.gauges import PROBED
from monitoring.metrics import FOLDED, PREFIX, Kind, SeriesKey, series_key


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
