"""The four ratios that seed 002 wants of its router, as quotients of counters, for dashboards and docs/metrics.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from monitoring.metrics import CLARIFICATIONS, PREFIX, ROUTES, Metric


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A sum over the series of one counter whose labels have one of the given values."""

    metric: Metric
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def promql(self, window: str) -> str:
        """Return the sum's increase over a window such as `1d`."""
        matchers = ",".join(
            f'{name}="{values[0]}"' if len(values) == 1 else f'{name}=~"{"|".join(values)}"'
            for name, values in self.labels.items()
        )
        return f"sum(increase({PREFIX}{self.metric.name}{f'{{{matchers}}}' if matchers else ''}[{window}]))"

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a series of the counter belongs to the sum."""
        return all(labels.get(name) in values for name, values in self.labels.items())


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One selection over another."""

    name: str
    meaning: str
    part: Selection
    whole: Selection

    def promql(self, window: str = "1d") -> str:
        """Return the ratio as Prometheus computes it."""
        return f"{self.part.promql(window)} / {self.whole.promql(window)}"


_ALL = Selection(metric=ROUTES)
_ACTION = {"mode": ("action",)}
_SWARM = Selection(metric=ROUTES, labels=_ACTION | {"confidence": ("strong", "weak")})
_STRONG = Selection(metric=ROUTES, labels=_ACTION | {"confidence": ("strong",)})
_WEAK = Selection(metric=ROUTES, labels=_ACTION | {"confidence": ("weak",)})

RATIOS: tuple[Ratio, ...] = (
    Ratio(
        name="ANSWER rate",
        meaning="Share of decisions that went to a direct response.",
        part=Selection(metric=ROUTES, labels={"mode": ("answer",)}),
        whole=_ALL,
    ),
    Ratio(
        name="ACTION rate",
        meaning="Share of decisions that went to the swarm. What is left to 1 are trivial commands.",
        part=_SWARM,
        whole=_ALL,
    ),
    Ratio(
        name="confidence distribution",
        meaning="Share of STRONG among the ACTION decisions that went to the swarm; the rest is WEAK.",
        part=_STRONG,
        whole=_SWARM,
    ),
    Ratio(
        name="override rate",
        meaning="How often a WEAK ACTION decision led to a question to the owner. A job may be asked more than once.",
        part=Selection(metric=CLARIFICATIONS, labels=_ACTION | {"confidence": ("weak",)}),
        whole=_WEAK,
    ),
)
