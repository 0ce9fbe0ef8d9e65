"""What a dashboard shows, as values: a test runs every query of every panel against a real Prometheus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from monitoring.promql import once

Unit = Literal["short", "s", "currencyUSD", "percentunit", "bytes", "ops", "none"]
Shape = Literal["lines", "stack", "number", "bars"]

RATE = "[$__rate_interval]"
"""How far back a rate looks: Grafana fills it in from the scrape interval and the width of the panel."""
RANGE = "[$__range]"
"""All that the dashboard shows."""
_SERIES = re.compile(r"\b(pointsman_[a-z_]+)(\{)?")


class Choice(StrEnum):
    """A label that a person chooses values of, for a whole dashboard: `$queue_name` then stands in its queries."""

    QUEUE = "queue_name"
    TIER = "tier"


QUEUES = f'{{{Choice.QUEUE.value}=~"$queue_name"}}'
TIERS = f'{{{Choice.TIER.value}=~"$tier"}}'


@dataclass(frozen=True)
class Query:
    """One PromQL expression, and how its series are called; `{{label}}` stands for a label's value."""

    expression: str
    legend: str = ""

    @property
    def of_installation(self) -> str:
        """The expression, over the series of the chosen installations alone: one Prometheus may watch several.

        And over each of them once: an installation may have several exporters.
        """
        chosen = _SERIES.sub(lambda found: f'{found[1]}{{job=~"$job"{"," if found[2] else "}"}', self.expression)
        return once(chosen)


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
    choices: tuple[Choice, ...] = ()

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Every panel, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)


def quantiles(histogram: str, by: str, matching: str = "", *, of: tuple[float, ...] = (0.5, 0.95)) -> tuple[Query, ...]:
    """Return quantiles of a histogram for each value of a label."""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by (le, {by}) (rate({histogram}_bucket{matching}{RATE})))",
            f"{{{{{by}}}}} p{round(100 * quantile)}",
        )
        for quantile in of
    )


def share(part: str, whole: str) -> str:
    """Return a quotient of two sums that is no number at all, and not 0/0, while the whole is nothing."""
    return f"{part} / ({whole} > 0)"
