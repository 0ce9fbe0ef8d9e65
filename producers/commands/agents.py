"""`agent run`: one agent of the ticket lane, alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from producers.commands.context import context_of

app = typer.Typer(no_args_is_help=True, help="Agents of the ticket lane.")


@app.callback()
def _group() -> None:
    """Keep `run` a subcommand, though it is the only one."""


@app.command()
def run(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="An agent of the policy, such as frontend-dev.")],
    task: Annotated[str, typer.Option(help="What it is to do.")],
    directory: Annotated[Path, typer.Option("--dir", help="The project; what the agent may write is written there.")],
    url: Annotated[str, typer.Option(help="A Messages API; without one the rehearsal model plays.")] = "",
    token_file: Annotated[Path | None, typer.Option(help="A file with the token for --url.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing into the directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Run one agent against a directory, without a run, a ledger or a queue."""
    given = [f"--task={task}", f"--dir={directory}"]
    given += [f"--url={url}"] if url else []
    given += [f"--token-file={token_file}"] if token_file is not None else []
    given += ["--dry-run"] if dry_run else []
    given += ["--json"] if as_json else []
    argv = [sys.executable, "-m", "workers.runs.alone", *given, "--", name]
    os.execve(sys.executable, argv, dict(context_of(ctx).environment))
