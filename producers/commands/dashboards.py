"""`dashboards`: what Grafana and Prometheus read, written where they read it."""

from __future__ import annotations

from importlib import resources
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
    texts = {directory / name: text for name, text in read_dashboards().items()}
    if rules is not None:
        texts[rules] = read_alert_rules(docs=docs, grafana=grafana)
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        fail(f"dashboards: {error.filename}: {error.strerror}")
    if as_json:
        print_json({"written": [str(path) for path in texts]})
        return
    for path in texts:
        out.print(str(path), markup=False)


def read_dashboards() -> dict[str, str]:
    """Return Grafana's dashboards by file name."""
    shipped = resources.files("monitoring") / "dashboards"
    return {file.name: file.read_text() for file in sorted(shipped.iterdir(), key=lambda file: file.name)}


def read_alert_rules(*, docs: str = "", grafana: str = "") -> str:
    """Return the alert rules for Prometheus.

    Args:
        docs: the URL below which the project's pages are; empty leaves links to runbooks relative.
        grafana: the URL of Grafana; empty leaves links to dashboards relative.
    """
    text = (resources.files("monitoring") / "alerts" / "rules.yaml").read_text()
    if docs:
        text = text.replace("runbook_url: ", f"runbook_url: {docs.rstrip('/')}/")
    if grafana:
        text = text.replace("dashboard_url: ", f"dashboard_url: {grafana.rstrip('/')}")
    return text
