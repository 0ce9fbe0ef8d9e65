"""`box clear`: what an installation has on its engine, taken away at its end."""

from __future__ import annotations

import typer

from producers.commands.context import AsJson, clear_errors, context_of, out, print_json
from producers.commands.image import BoxSettings
from routing.config import read_settings

app = typer.Typer(no_args_is_help=True, help="Boxes of this installation, on its engine.")


@app.callback()
def _group() -> None:
    """Keep `clear` a command of its own while it is the only one."""


@app.command()
def clear(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Remove every box, network and workspace of this installation: for its end, once its workers have stopped."""
    from sandbox.boxes import open_engine
    from sandbox.reaper import Reaper

    with clear_errors():
        engine = open_engine(read_settings(BoxSettings, context_of(ctx).environment).box)
        try:
            swept = Reaper(engine).clear()
        finally:
            engine.close()
    if as_json:
        print_json(swept._asdict())
        return
    out.print(f"removed {swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes")
