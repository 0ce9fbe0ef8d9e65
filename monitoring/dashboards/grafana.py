"""Turn dashboards into what Grafana provisions, by its own SDK."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

from monitoring.dashboards.panels import Board, Panel, Query

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="$datasource")
_HEIGHT = {"number": 4, "lines": 8, "stack": 8, "bars": 8}
Builder = timeseries.Panel | stat.Panel | bargauge.Panel


def to_json(board: Board) -> str:
    """Return a dashboard as a JSON document."""
    builder = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.why)
        .tags(["pointsman"])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    if board.by_queue:
        builder.with_variable(_queue_variable())
    for row in board.rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(builder.build()) + "\n"


def _queue_variable() -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable("queue_name")
        .label("Queue")
        .datasource(_SOURCE)
        .query("label_values(pointsman_queue_depth, queue_name)")
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Builder:
    builder = stat.Panel() if panel.shape == "number" else timeseries.Panel()
    builder.title(panel.title).description(panel.why).unit(panel.unit).datasource(_SOURCE)
    builder.span(panel.width).height(_HEIGHT[panel.shape]).thresholds(_thresholds(panel))
    for position, query in enumerate(panel.queries):
        builder.with_target(_target(query, chr(ord("A") + position)))
    if isinstance(builder, timeseries.Panel):
        builder.fill_opacity(25 if panel.shape == "stack" else 8).line_width(1.5).min(0)
        if panel.shape == "stack":
            builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    return builder


def _target(query: Query, name: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expression).legend_format(query.legend or "__auto").ref_id(name)


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color="green")]
    for value, color in ((panel.warn, "orange"), (panel.bad, "red")):
        if value is not None:
            steps.append(models.Threshold(value=value, color=color))
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
