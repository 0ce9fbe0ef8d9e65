"""`image build`: the image that boxes are made from."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from producers.commands.context import AsJson, clear_errors, context_of, err, out, print_json
from routing.config import read_settings
from sandbox.config import BoxConfig

app = typer.Typer(no_args_is_help=True, help="The image that boxes are made from.")


class BoxSettings(BaseModel):
    """The section that the commands on boxes read."""

    model_config = ConfigDict(frozen=True)

    box: BoxConfig = BoxConfig()


@app.command("build")
def build_image(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Build it even if the engine has it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the image where it is missing: from a base that can be pulled, else with debootstrap (needs root)."""
    from sandbox.docker.engine import DEFAULT_ENGINE
    from sandbox.image.build import build

    with clear_errors():
        config = read_settings(BoxSettings, context_of(ctx).environment).box
        with err.status("") as status:

            def say(line: str) -> None:
                status.update(line) if err.is_terminal else err.print(line, markup=False)

            built = build(
                config.engine or DEFAULT_ENGINE, base_image=config.base_image, cache=config.cache, say=say, force=force
            )
    if as_json:
        print_json(built._asdict())
        return
    state = f"built in {built.seconds:.0f} s" if built.is_new else "is there"
    out.print(f"{built.reference} {state}: {built.base}, Node {built.node}, Claude Code {built.claude}, "
              f"{built.bytes / 1e6:.0f} MB", markup=False)  # fmt: skip
