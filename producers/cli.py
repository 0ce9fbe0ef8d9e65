"""`pointsman`: the command line. With workers.main the only module that reads the environment."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated

import typer

from producers.commands import (
    agents,
    apply,
    backup,
    broker,
    dead,
    decide,
    doctor,
    image,
    jobs,
    ladder,
    lanes,
    local,
    operate,
    programs,
    rounds,
    route,
    runs,
    sites,
    tenants,
)
from producers.commands.context import Context
from producers.upfile import with_up_file

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A fleet of queue workers for AI edit work: routed before any model call, capped in time, money and output, "
    "published only after scan and approval.",
)
for panel, modules in {
    "Everything on this machine": (local,),
    "Jobs": (jobs, rounds, dead),
    "Decisions and checks, offline": (decide, apply, ladder),
    "Processes of an installation": (programs,),
    "Operating it": (doctor, lanes, backup),
}.items():
    for module in modules:
        for command in module.app.registered_commands:
            command.rich_help_panel = panel
        app.add_typer(module.app)
app.add_typer(route.app, name="route", rich_help_panel="Decisions and checks, offline")
for name, group in {"project": runs.project_app, "run": runs.app, "gate": runs.gate_app, "agent": agents.app}.items():
    app.add_typer(group, name=name, rich_help_panel="Jobs")
for name, group in {
    "site": sites.app, "tenant": tenants.app, "key": operate.key_app, "queue": operate.queue_app,
    "audit": operate.audit_app, "image": image.app, "lane": lanes.lane_app, "broker": broker.app,
}.items():  # fmt: skip
    app.add_typer(group, name=name, rich_help_panel="Operating it")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"pointsman {version('pointsman')}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    ctx.obj = Context(lambda: with_up_file(dict(os.environ)))


def main() -> None:
    """Run the command line."""
    app(prog_name="pointsman")


if __name__ == "__main__":
    main()
