"""Commands on code projects: propose a project's file from a checkout, add it, list them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from producers.commands.connection import connected
from producers.commands.context import (
    FAILED,
    OK,
    USAGE,
    AsJson,
    OperatorTenant,
    clear_errors,
    context_of,
    fail,
    out,
    print_facts,
    print_json,
    print_result,
    print_rows,
    read_plain_file,
    read_text_file,
)
from producers.harmless import harmless
from sandbox.errors import SandboxError

if TYPE_CHECKING:
    from producers.commands.trials import Trial

_IN_A_BOX, _HERE = "in a box", "on this machine"
project_app = typer.Typer(no_args_is_help=True, help="Code projects.")


@project_app.command("init")
def init_project(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A directory in the checkout.")] = Path(),
    file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="By default pointsman.yaml at the checkout's top.")
    ] = None,
    is_tried: Annotated[bool, typer.Option("--try", help="Run the commands in a box like those of runs.")] = False,
    is_here: Annotated[
        bool, typer.Option("--here", help="With --try: on this machine and outside of any box.")
    ] = False,
    seconds: Annotated[int, typer.Option("--seconds", min=1, max=3600, help="Time limit of each with --try.")] = 300,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Propose a project's file: stack, commands, paths. Only --try runs anything. Exit 1 if a tried command fails."""
    from routing.policy.platform import platform_policy
    from routing.policy.project import parse_project
    from routing.policy.project_proposal import MAX_FILE_BYTES, READ_FILES, proposal_text, propose
    from routing.policy.service_proposal import OPTIONAL_FILES
    from sites.repository.checkout import read_checkout

    with clear_errors():
        checkout = read_checkout(directory)
        path = file or checkout.root / "pointsman.yaml"
        if path.exists() and not force:
            fail(f"{path}: exists; --force replaces it", code=USAGE)
        files = {}
        for name in (*READ_FILES, *OPTIONAL_FILES):
            if (checkout.root / name).exists():
                data = read_plain_file(checkout.root / name, command="project init", limit=MAX_FILE_BYTES + 1)
                if len(data) > MAX_FILE_BYTES:
                    if name in OPTIONAL_FILES:
                        continue
                    fail(f"{checkout.root / name}: exceeds {MAX_FILE_BYTES} bytes", code=USAGE)
                files[name] = data.decode("utf-8", "replace")
        proposal = propose(files, checkout.paths, platform_policy())
        where = _HERE if is_here else _IN_A_BOX
        trials: list[Trial] = []
        if is_tried:
            from producers.commands.trials import try_commands  # and all of a box

            environment = context_of(ctx).given
            try:
                trials = try_commands(proposal.commands, checkout.root, environment, seconds=seconds, is_here=is_here)
            except SandboxError as error:
                fail(f"{error}; with --here the commands run on this machine, outside of any box")
        tried = {trial.name: f"{trial.result} {where}" for trial in trials}
        text = proposal_text(proposal, url=checkout.url, branch=checkout.branch, tried=tried)
        parse_project(text, source=str(path))
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            fail(f"{path}: cannot be written: {error.strerror}", code=USAGE)
    if as_json:
        outcomes = [trial._asdict() for trial in trials]
        place = {"tried": where if trials else ""}
        proposed = {"stack": proposal.stack, "commands": proposal.commands, "writes": proposal.writes}
        found = {"file": str(path), "url": checkout.url, "branch": checkout.branch, **proposed}
        found |= {"services": proposal.services, "scripts": proposal.scripts}
        print_json({**found, "notes": proposal.notes, "trials": outcomes, **place})
    else:
        _show(path, text, trials, where, checkout.root)
    raise typer.Exit(FAILED if any(trial.result != "passed" for trial in trials) else OK)


def _show(path: Path, text: str, trials: list[Trial], where: str, root: Path) -> None:
    out.print(text)
    if trials and where == _HERE:
        out.print(f"tried {_HERE}, where agents do not work")
    for trial in trials:
        if trial.result != "passed":
            out.print(f"{trial.name}: {trial.result} {where}\n{trial.tail}")
    out.print(f"wrote {path}. Next:")
    if not trials:
        out.print("  pointsman project init --try --force   # runs the commands in a box")
    if "url: file://" in text:
        out.print(f"  pointsman up --repositories {root.parent}")
    out.print(f"  pointsman project add {path} --name NAME")
    out.print("  pointsman run submit --project NAME --ticket bug.md")


@project_app.command("add")
def add_project(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The project's YAML file.")],
    name: Annotated[str | None, typer.Option(metavar="NAME", help="By default the file's name.")] = None,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Add a code project, or replace the one of this name. Exit 2 if the file is invalid."""
    text = read_text_file(file)
    with connected(ctx) as client:
        view = client.put_project(name or file.stem, text)
    print_result(view, f"project {view.name}: {view.config['repo']['url']}")


@project_app.command("list")
def list_projects(ctx: typer.Context, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """List code projects."""
    with connected(ctx) as client:
        views = client.list_projects()
    print_rows(views, ("project", "repository"), ((view.name, view.config["repo"]["url"]) for view in views))


@project_app.command("show")
def show_project(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The code project.")],
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Show a code project's configuration and the image of its boxes. Exit 1 if there is none of this name."""
    with connected(ctx) as client:
        view = next((view for view in client.list_projects() if view.name == name), None)
    if view is None:
        fail(f"no project {name}; `pointsman project list` lists them")
    if as_json:
        print_json(view)
        return
    image = view.image or {"reference": "that of all boxes"}
    print_facts([("project", view.name), ("repository", view.config["repo"]["url"]), ("image", _image_line(image))])
    out.print(json.dumps(view.config, indent=2, sort_keys=True))


def _image_line(image: dict[str, Any]) -> str:
    return harmless(" ".join(str(image[key]) for key in ("reference", "id", "source") if key in image))
