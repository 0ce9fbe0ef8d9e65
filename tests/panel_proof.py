"""Compare what panels show with what the ledger says, by asking Prometheus as Grafana does."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text

from ledger.store import Ledger
from producers.commands.installation import read_dashboards
from tests.panel_numbers import PANELS, Grown, Now, Number, Place, Spread
from tests.prometheus import Prometheus, Samples

BOARDS: tuple[dict[str, Any], ...] = tuple(json.loads(text) for text in read_dashboards().values())

_WINDOW = re.compile(r"\[[^\]]+\]")
_GUARDED = re.compile(r"> 0| / ")


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def places() -> list[tuple[Place, str]]:
    """Every query of every panel: where it stands, and its expression."""
    return [
        ((board["uid"], panel["title"], number), target["expr"])
        for board in BOARDS
        for panel in panels(board)
        for number, target in enumerate(panel["targets"])
    ]


def counted(ledger: Ledger, sql: str) -> Samples:
    with ledger.begin() as session:
        rows = session.execute(text(sql)).all()
    return {tuple(str(label) for label in row[:-1]): float(row[-1] or 0) for row in rows}


@dataclass
class Proof:
    """Compares panels with the ledger, from a moment at which nothing was under way to another one."""

    prometheus: Prometheus
    ledger: Ledger
    begun: float
    before: dict[str, Samples]

    @classmethod
    def begin(cls, prometheus: Prometheus, ledger: Ledger, *, begun: float) -> Proof:
        """Count what there is; `begun` is a scrape that shows exactly this."""
        return cls(prometheus, ledger, begun, {sql: counted(ledger, sql) for sql in cls._sqls()})

    @staticmethod
    def _sqls() -> set[str]:
        found = {
            sql for number in PANELS.values() if isinstance(number, Grown) for sql in (number.sql, number.per) if sql
        }
        return found | {number.sql for number in PANELS.values() if isinstance(number, Spread)}

    def ask(self, expression: str, *, at: float) -> Samples:
        """Ask as Grafana does, over the window from the beginning to a scrape."""
        window = f"[{round((at - self.begun) * 1000) + 1}ms]"
        filled = _WINDOW.sub(window, expression)
        filled = filled.replace("$job", ".*").replace("$queue_name", ".*").replace("$tier", ".*")
        return self.prometheus.query(filled, at=at)

    def differences(self, *, at: float) -> dict[Place, Any]:
        """Return what panels show otherwise than the ledger says."""
        wrong: dict[Place, Any] = {}
        for place, expression in places():
            shown = self.ask(expression, at=at)
            if not shown and not _GUARDED.search(expression):
                wrong[place] = "nothing is shown"
            elif (number := PANELS.get(place)) is not None:
                shown = {labels: value for labels, value in shown.items() if value and not math.isnan(value)}
                if (told := self._difference(number, shown, at=at, is_rate="rate(" in expression)) is not None:
                    wrong[place] = told
        return wrong

    def _difference(self, number: Number, shown: Samples, *, at: float, is_rate: bool) -> Any:
        if isinstance(number, Spread):
            return self._spread_difference(number, shown)
        if isinstance(number, Now):
            then = number.sql.replace("now()", f"to_timestamp({at})")  # what is shown was read at that time
            wanted, within = counted(self.ledger, then), number.within
        else:
            wanted, within = self._grown(number.sql), 1e-6
            if number.per:
                whole = self._grown(number.per).get((), 0.0)
                wanted = {labels: value / whole for labels, value in wanted.items()} if whole else {}
            elif is_rate:
                wanted = {labels: value * number.factor / (at - self.begun) for labels, value in wanted.items()}
        for labels in {*shown, *wanted}:
            here, there = shown.get(labels, 0.0), wanted.get(labels, 0.0)
            if not math.isclose(here, there, rel_tol=2e-3, abs_tol=within):
                return {"shown": shown, "wanted": wanted}
        return None

    def _grown(self, sql: str) -> Samples:
        after, before = counted(self.ledger, sql), self.before[sql]
        return {
            labels: value - before.get(labels, 0.0) for labels, value in after.items() if value != before.get(labels)
        }

    def _spread_difference(self, number: Spread, shown: Samples) -> Any:
        """The exact quantile of what is new lies in the same bucket; checked where the ledger had nothing before."""
        with self.ledger.begin() as session:
            rows = session.execute(text(number.sql)).all()
        for label in {str(row[0]) for row in rows}:
            if (label,) in self.before[number.sql]:
                continue
            values = sorted(float(row[1]) for row in rows if str(row[0]) == label)
            found = shown.get((label,), 0.0)
            rank = number.quantile * len(values)
            near = {values[min(len(values) - 1, max(0, math.ceil(rank) - 1 + shift))] for shift in (0, 1)}
            if not any(self._is_in_bucket(found, value, number.buckets) for value in near):
                return {"label": label, "shown": found, "wanted": near}
        return None

    @staticmethod
    def _is_in_bucket(found: float, value: float, buckets: tuple[float, ...]) -> bool:
        near = min(1e-3, value / 100)  # durations are counted in milliseconds
        lower = max((bound for bound in buckets if bound < value - near), default=0.0)
        upper = min((bound for bound in buckets if bound >= value + near), default=buckets[-1])
        return min(lower, buckets[-1]) <= found <= upper
