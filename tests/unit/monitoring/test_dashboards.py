"""Dashboards name only what there is: metrics, labels, variables. tests/acceptance/test_panels proves the numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest

from monitoring.gauges import PROBED
from monitoring.metrics import FOLDED, PREFIX, Kind
from producers.commands.installation import read_dashboards
from tests.panel_proof import BOARDS, panels
from tests.promql import reads_each_series_once

LABELS = {
    f"{PREFIX}{metric.name}{suffix}": {*metric.labels, "job", *(["le"] if suffix == "_bucket" else [])}
    for metric in (*FOLDED, *PROBED)
    for suffix in (("_bucket", "_sum", "_count") if metric.kind == Kind.HISTOGRAM else ("",))
}
"""The labels of every series that the exporter has."""

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board["uid"])


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in panels(board) for target in panel["targets"]]


@each_board
def test_every_query_names_series_and_labels_that_there_are(board: dict[str, Any]) -> None:
    for expression in expressions(board):
        series = re.findall(r"(pointsman_\w+)\{([^}]*)\}", expression)
        assert series, expression
        assert len(series) == expression.count("pointsman_"), expression
        for name, matchers in series:
            matched = set(re.findall(r"(\w+)=~?\"", matchers))
            assert matched <= LABELS[name], (name, matched)
            for labels in re.findall(r"by \(([^)]*)\)", expression):
                assert set(labels.split(", ")) <= LABELS[name], expression


@each_board
def test_every_query_asks_for_the_chosen_installation_alone_and_counts_it_once(board: dict[str, Any]) -> None:
    for expression in expressions(board):
        assert all('job=~"$job"' in matchers for matchers in re.findall(r"pointsman_\w+(\{[^}]*\})", expression))
        assert reads_each_series_once(expression), expression
    assert all(reads_each_series_once(mark["expr"]) for mark in board["annotations"]["list"])


@each_board
def test_every_variable_of_a_query_is_one_that_the_dashboard_has(board: dict[str, Any]) -> None:
    offered = {variable["name"] for variable in board["templating"]["list"]}
    used = {name for expression in expressions(board) for name in re.findall(r"\$(\w+)", expression)}
    assert used - {"__rate_interval", "__range"} == offered - {"datasource"}


@each_board
def test_every_panel_has_a_title_of_its_own_and_a_reason(board: dict[str, Any]) -> None:
    shown = panels(board)
    assert len({panel["title"] for panel in shown}) == len(shown)
    assert all(panel["description"] and panel["targets"] for panel in shown)
    assert all(panel["datasource"] == {"type": "prometheus", "uid": "$datasource"} for panel in shown)


def test_dashboards_are_six_files_each_named_as_its_board() -> None:
    names = {f"pointsman-{name}" for name in ("fleet", "queue", "cost", "routing", "sandbox", "runs")}
    assert {board["uid"] for board in BOARDS} == names
    assert set(read_dashboards()) == {f"{name}.json" for name in names}
