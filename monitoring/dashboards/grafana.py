"""Turn dashboards into what Grafana provisions, by its own SDK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from grafana_foundation_sdk.builders import bargauge, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

from monitoring.dashboards.boards import BOARDS
from monitoring.dashboards.panels import Board, Choice, Panel, Query, Shape
from monitoring.promql import once

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="$datasource")
_HEIGHT = {"number": 4, "lines": 8, "stack": 8, "bars": 8}
_LABELS = {Choice.QUEUE: "Queue", Choice.TIER: "Tier"}
_KNOWN_BY = {Choice.QUEUE: "pointsman_queue_depth", Choice.TIER: "pointsman_job_cost_usd_count"}
"""A metric that has every value of a label from the start."""
_DEPLOYS = "pointsman_build_info unless on (job, version, policy, prices_as_of) pointsman_build_info offset 2m"
"""A version, a policy or a price table that was not there two minutes ago."""
Builder = timeseries.Panel | stat.Panel | bargauge.Panel
_BUILDERS: Mapping[Shape, Callable[[], Builder]] = {
    "number": stat.Panel, "bars": bargauge.Panel, "lines": timeseries.Panel, "stack": timeseries.Panel,
}  # fmt: skip


def write_boards(directory: Path) -> tuple[Path, ...]:
    """Write every dashboard to a directory that Grafana provisions from; returns the files.

    Raises:
        OSError: the operator's fault: the directory cannot be written to.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for board in BOARDS:
        path = directory / f"{board.uid}.json"
        path.write_text(to_json(board))
        written.append(path)
    return tuple(written)


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
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("Pointsman").tags(["pointsman"]).as_dropdown(True).keep_time(True))
        .annotation(dashboard.AnnotationQuery().name("Deploys").datasource(_SOURCE).expr(once(_DEPLOYS)).enable(True))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("job", "Installation", "pointsman_build_info"))
    )
    for choice in board.choices:
        builder.with_variable(_choice(choice.value, _LABELS[choice], _KNOWN_BY[choice]))
    for row in board.rows:
        builder.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(builder.build()) + "\n"


def _choice(label: str, title: str, known_by: str) -> dashboard.QueryVariable:
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return (
        dashboard.QueryVariable(label)
        .label(title)
        .datasource(_SOURCE)
        .query(f"label_values({known_by}, {label})")
        .refresh(models.VariableRefresh.ON_DASHBOARD_LOAD)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(everything)
    )


def _panel(panel: Panel) -> Builder:
    builder = _BUILDERS[panel.shape]()
    builder.title(panel.title).description(panel.why).unit(panel.unit).datasource(_SOURCE)
    builder.span(panel.width).height(_HEIGHT[panel.shape]).thresholds(_thresholds(panel))
    for position, query in enumerate(panel.queries):
        builder.with_target(_target(query, chr(ord("A") + position), is_instant=panel.shape == "bars"))
    if isinstance(builder, timeseries.Panel):
        builder.fill_opacity(25 if panel.shape == "stack" else 8).line_width(1.5).min(0)
        if panel.shape == "stack":
            builder.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
        if panel.warn is not None or panel.bad is not None:
            builder.thresholds_style(
                common_builders.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.LINE)
            )
    return builder


def _target(query: Query, name: str, *, is_instant: bool) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.of_installation).legend_format(query.legend or "__auto").ref_id(name)
    return target.instant() if is_instant else target


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [models.Threshold(value=None, color="green")]
    for value, color in ((panel.warn, "orange"), (panel.bad, "red")):
        if value is not None:
            steps.append(models.Threshold(value=value, color=color))
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
