"""`pointsman`: the command line. With workers.main the only module that reads the environment."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated

import typer

from producers.commands import deliveries, installation, jobs, monitoring, operate, programs, route, runs, sites
from producers.commands.context import Context, Panels, dress, panel_of
from producers.local.supervisor import with_up_file

app = typer.Typer(
    cls=Panels,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "obj": Context(lambda: with_up_file(dict(os.environ))),
    },
    help="A fleet of queue workers for AI edit work: routed before any model call, capped in time, money and output, "
    "published only after scan and approval.",
    epilog="Exit codes: 0 ok, 1 the job or check failed, 2 wrong use. With `--json` programs can read what is printed; "
    "`pointsman --install-completion` completes commands, sites and job ids at the shell.",
)
for module in (jobs, deliveries, sites, route, installation, programs, monitoring, operate):
    app.add_typer(module.app)
for name, group in {
    "route": route.route_app,
    "project": runs.project_app,
    "run": runs.run_app,
    "gate": runs.gate_app,
    "agent": runs.agent_app,
    "site": sites.site_app,
    "tenant": operate.tenant_app,
    "key": operate.key_app,
    "queue": operate.queue_app,
    "audit": operate.audit_app,
    "image": installation.image_app,
    "box": installation.box_app,
    "lane": operate.lane_app,
    "broker": operate.broker_app,
    "webhook": deliveries.webhook_app,
}.items():
    app.add_typer(group, name=name, rich_help_panel=panel_of(name))
dress(app)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"pointsman {version('pointsman')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself; what it does is said by its commands."""


def main() -> None:
    """Run the command line."""
    app(prog_name="pointsman")


if __name__ == "__main__":
    main()
