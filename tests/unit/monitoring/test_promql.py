"""Series that several exporters show are counted once, in every place where PromQL reads one."""

from __future__ import annotations

import pytest

from monitoring.promql import once

ONCE = "max without (instance, pod)"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("sum(pointsman_a)", f"sum({ONCE} (pointsman_a))"),
        ('pointsman_a{x="1"} > 0', f'{ONCE} (pointsman_a{{x="1"}}) > 0'),
        ("sum by (q) (rate(pointsman_a_total[5m]))", f"sum by (q) ({ONCE} (rate(pointsman_a_total[5m])))"),
        (
            'sum(increase(pointsman_a_total{x=~"b|c"}[$__range])) / 2',
            f'sum({ONCE} (increase(pointsman_a_total{{x=~"b|c"}}[$__range]))) / 2',
        ),
        ("delta(pointsman_a[15m] offset 1w)", f"{ONCE} (delta(pointsman_a[15m] offset 1w))"),
        ("pointsman_a unless pointsman_a offset 2m", f"{ONCE} (pointsman_a) unless {ONCE} (pointsman_a offset 2m)"),
        ("pointsman:recorded:ratio > 0.2", "pointsman:recorded:ratio > 0.2"),
    ],
)
def test_each_series_is_read_once_before_anything_is_done_with_it(written: str, read: str) -> None:
    assert once(written) == read
