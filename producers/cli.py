"""`pointsman`: the command line. With workers.main the only module that reads the environment."""

from __future__ import annotations

import os

import typer

from producers.commands import decide, jobs, ladder, local, operate, programs, route, sites
from producers.commands.context import Context
from producers.upfile import with_up_file

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="A fleet of queue workers for AI edit work: routed before any model call, capped in time, money and output, "
    "published only after scan and approval.",
)
for commands in (local, jobs, decide, ladder, programs, operate):
    app.add_typer(commands.app)
app.add_typer(route.app, name="route")
app.add_typer(sites.app, name="site")
app.add_typer(operate.key_app, name="key")
app.add_typer(operate.queue_app, name="queue")
app.add_typer(operate.audit_app, name="audit")


@app.callback()
def _root(ctx: typer.Context) -> None:
    ctx.obj = Context(lambda: with_up_file(dict(os.environ)))


def main() -> None:
    """Run the command line."""
    app(prog_name="pointsman")


if __name__ == "__main__":
    main()
