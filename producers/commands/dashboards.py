"""`dashboards`: what Grafana and Prometheus read, written where they read it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from producers.commands.context import AsJson, fail, out, print_json

app = typer.Typer()


@app.command("dashboards")
def write_dashboards(
    directory: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write the dashboards.")],
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="Write the alert rules there, too.")
    ] = None,
    docs: Annotated[
        str, typer.Option("--docs", metavar="URL", help="Where the project's docs are; alerts link to its runbooks.")
    ] = "",
    grafana: Annotated[
        str, typer.Option("--grafana", metavar="URL", help="Where Grafana is; alerts link to its dashboards.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write the six dashboards as JSON, for Grafana's file provisioning; it needs no running installation.

    Point a provider of type `file` (grafana/provisioning/dashboards/*.yml) at DIR. They ask for a data source of type
    Prometheus, which a person may choose on each. With --rules the alert rules go to FILE, for `rule_files` of
    prometheus.yml.
    """
    from monitoring.alerts.rules import linked_rules
    from monitoring.dashboards.grafana import write_boards

    try:
        written = list(write_boards(directory))
        if rules is not None:
            rules.parent.mkdir(parents=True, exist_ok=True)
            rules.write_text(linked_rules(docs=docs, grafana=grafana))
            written.append(rules)
    except OSError as error:
        fail(f"dashboards: {error.filename}: {error.strerror}")
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        out.print(str(path), markup=False)
