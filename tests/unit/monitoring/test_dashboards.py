"""Dashboards name only what there is: metrics, labels, variables. tests/acceptance/test_panels proves the numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from monitoring.dashboards.boards import BOARDS
from monitoring.dashboards.grafana import to_json, write_boards
from monitoring.dashboards.panels import Board, Query, share
from monitoring.gauges import PROBED
from monitoring.metrics import FOLDED, PREFIX, Kind

LABELS = {
    f"{PREFIX}{metric.name}{suffix}": {*metric.labels, "job", *(["le"] if suffix == "_bucket" else [])}
    for metric in (*FOLDED, *PROBED)
    for suffix in (("_bucket", "_sum", "_count") if metric.kind == Kind.HISTOGRAM else ("",))
}
"""The labels of every series that the exporter has."""


def document(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(board))
    return found


def expressions(board: Board) -> list[str]:
    return [query.of_installation for panel in board.panels for query in panel.queries]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_query_names_series_and_labels_that_there_are(board: Board) -> None:
    for expression in expressions(board):
        series = re.findall(r"(pointsman_\w+)\{([^}]*)\}", expression)
        assert series, expression
        assert len(series) == expression.count("pointsman_"), expression
        for name, matchers in series:
            matched = set(re.findall(r"(\w+)=~?\"", matchers))
            assert matched <= LABELS[name], (name, matched)
            for labels in re.findall(r"by \(([^)]*)\)", expression):
                assert set(labels.split(", ")) <= LABELS[name], expression


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_variable_of_a_query_is_one_that_the_dashboard_has(board: Board) -> None:
    made = document(board)
    offered = {variable["name"] for variable in made["templating"]["list"]} | {"__rate_interval", "__range"}
    used = {name for expression in expressions(board) for name in re.findall(r"\$(\w+)", expression)}
    assert used <= offered
    assert {"datasource", "job", *(choice.value for choice in board.choices)} <= offered
    assert {choice.value for choice in board.choices} <= used


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_dashboard_is_written_with_all_its_panels_queries_and_reasons(board: Board) -> None:
    shown = [panel for panel in document(board)["panels"] if panel["type"] != "row"]
    assert [(panel["title"], panel["description"]) for panel in shown] == [
        (panel.title, panel.why) for panel in board.panels
    ]
    assert [target["expr"] for panel in shown for target in panel["targets"]] == expressions(board)
    assert len({panel.title for panel in board.panels}) == len(board.panels)
    assert all(panel["datasource"] == {"type": "prometheus", "uid": "$datasource"} for panel in shown)


def test_dashboards_are_six_files_that_are_the_same_each_time(tmp_path: Path) -> None:
    first = [path.read_text() for path in write_boards(tmp_path / "a")]
    written = write_boards(tmp_path / "b")
    assert [path.read_text() for path in written] == first
    assert {path.name for path in written} == {
        f"pointsman-{name}.json" for name in ("fleet", "queue", "cost", "routing", "sandbox", "runs")
    }


def test_a_query_asks_for_the_chosen_installation_alone() -> None:
    query = Query(share('sum(pointsman_a_total{x="1"})', "sum(pointsman_b_bucket)"))
    assert query.of_installation == (
        'sum(max without (instance, pod) (pointsman_a_total{job=~"$job",x="1"}))'
        ' / (sum(max without (instance, pod) (pointsman_b_bucket{job=~"$job"})) > 0)'
    )
