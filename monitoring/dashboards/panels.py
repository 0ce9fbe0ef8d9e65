"""What a dashboard shows, as values: a test runs every query of every panel against a real Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["short", "s", "currencyUSD", "percentunit", "bytes", "ops", "none"]
Shape = Literal["lines", "stack", "number", "bars"]

RATE = "[$__rate_interval]"
"""How far back a rate looks: Grafana fills it in from the scrape interval and the width of the panel."""


@dataclass(frozen=True)
class Query:
    """One PromQL expression, and how its series are called; `{{label}}` stands for a label's value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel."""

    title: str
    why: str
    """What a person decides by it, or what to do when it looks wrong."""
    queries: tuple[Query, ...]
    unit: Unit = "short"
    shape: Shape = "lines"
    width: int = 12
    """Of 24 columns."""
    warn: float | None = None
    """From here on it is shown as a warning."""
    bad: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    why: str
    rows: tuple[Row, ...]
    by_queue: bool = False
    """Whether a person chooses queues on it: `$queue_name` then stands in its queries."""

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)


def quantiles(histogram: str, by: str, matching: str = "") -> tuple[Query, ...]:
    """Return the median and the 95th percentile of a histogram for each value of a label."""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by (le, {by}) (rate({histogram}_bucket{matching}{RATE})))",
            f"{{{{{by}}}}} p{round(100 * quantile)}",
        )
        for quantile in (0.5, 0.95)
    )
