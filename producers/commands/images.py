"""Commands on the images of boxes: the one of all boxes, and those that an operator builds for a project."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from producers.commands.context import (
    USAGE,
    AsJson,
    Tenant,
    clear_errors,
    context_of,
    err,
    fail,
    installed,
    out,
    print_json,
    print_result,
)
from producers.harmless import harmless
from routing.config import read_settings
from sandbox.config import BoxConfig, BoxSettings

if TYPE_CHECKING:
    from sandbox.image.source import ImageSource

image_app = typer.Typer(no_args_is_help=True, help="The images of the sandboxes.")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{1,100}")
_ACTOR = "operator"
_ONE = "choose one of --dockerfile, --devcontainer, --base and --packages"

Project = Annotated[str, typer.Option("--project", metavar="NAME", help="The code project.")]


def box_config(ctx: typer.Context) -> BoxConfig:
    """Return the settings of boxes."""
    return read_settings(BoxSettings, context_of(ctx).environment).box


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    with err.status("") as status:
        yield lambda line: status.update(harmless(line)) if err.is_terminal else err.print(line)


@image_app.command("build")
def build_image(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Build it even if it exists.")] = False,
    project: Annotated[
        str | None, typer.Option(metavar="NAME", help="Build this code project's own image, for its next steps.")
    ] = None,
    dockerfile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the project's image starts from.")
    ] = None,
    context: Annotated[
        Path | None, typer.Option(metavar="DIR", help="To build in; by default the Dockerfile's directory.")
    ] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A build argument of the Dockerfile; repeatable.")
    ] = None,
    devcontainer: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Or a devcontainer.json: its image, or its build.")
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="IMAGE", help="Or an image.")] = None,
    packages: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Or packages of this machine's apt sources (needs root).")
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="The engine's network for the Dockerfile; `none` for none.")
    ] = None,
    tenant: Tenant = "demo",
    as_json: AsJson = False,
) -> None:
    """Build the image of all boxes if it is missing, or with --project one that has what this project's work needs.

    All boxes: from a base image that can be pulled, else with debootstrap (needs root). A project: from what you
    choose, with Pointsman's own parts on it; an image that lacks what a box needs is refused.
    """
    with clear_errors():
        source = _source(dockerfile, context, build_arg or [], devcontainer, base, packages)
    if project is not None:
        if source is None:
            fail(f"--project: {_ONE}", code=USAGE)
        _build_for(ctx, project, source, tenant=tenant, network=network)
        return
    if source is not None or network is not None:
        fail("--project NAME says whose image that is", code=USAGE)
    from sandbox.docker.engine import DEFAULT_ENGINE
    from sandbox.image.build import build

    with clear_errors():
        config = box_config(ctx)
        engine = config.engine or DEFAULT_ENGINE
        with _progress() as say:
            built = build(engine, base_image=config.base_image, cache=config.cache, say=say, force=force)
    state = f"built in {built.seconds:.0f} s" if built.is_new else "exists"
    text = (
        f"{built.reference} {state}: {built.base}, Node {built.node}, Claude Code {built.claude}, "
        f"{built.bytes / 1e6:.0f} MB"
    )
    print_json(built._asdict()) if as_json else out.print(text)


def _source(
    dockerfile: Path | None,
    context: Path | None,
    build_args: list[str],
    devcontainer: Path | None,
    base: str | None,
    packages: str | None,
) -> ImageSource | None:
    from sandbox.image.devcontainer import read_devcontainer
    from sandbox.image.source import ImageSource, source_of_dockerfile

    given = [choice for choice in (dockerfile, devcontainer, base, packages) if choice is not None]
    if len(given) > 1:
        fail(_ONE, code=USAGE)
    if dockerfile is None and (context is not None or build_args):
        fail("--context and --build-arg belong to --dockerfile", code=USAGE)
    if dockerfile is not None:
        args = dict(entry.partition("=")[::2] for entry in build_args)
        return source_of_dockerfile(dockerfile, context=context, args=args)
    if devcontainer is not None:
        found, ignored = read_devcontainer(devcontainer)
        if ignored:
            err.print(f"{devcontainer}: ignored: {', '.join(ignored)}")
        return found
    if base is not None:
        return ImageSource(base=base)
    if packages is None:
        return None
    names = tuple(packages.replace(",", " ").split())
    if not names or not all(map(_PACKAGE.fullmatch, names)):
        fail("--packages: names of Debian packages, such as `gcc libpq-dev`", code=USAGE)
    return ImageSource(packages=names)


def _build_for(ctx: typer.Context, name: str, source: ImageSource, *, tenant: str, network: str | None) -> None:
    from ledger.runs.run import find_project, set_project_image
    from sandbox.image.project import build_for_project, remove_image

    with installed(ctx) as installation:
        with installation.ledger.begin() as session:
            find_project(session, tenant, name)
        config = box_config(ctx)
        with _progress() as say:
            built = build_for_project(config, source, name=f"{tenant}.{name}", say=say, network=network)
        image = {"id": built.id, "reference": built.reference, "source": built.source}
        with installation.ledger.begin() as session:
            before = set_project_image(session, tenant, name, image, actor=_ACTOR)
        if before is not None and before["id"] != built.id:
            remove_image(config, before["id"])
    if built.dropped:
        err.print(f"no box has the image's variables: {', '.join(built.dropped)}")
    text = (
        f"{name}: {built.reference} {built.id[:19]}, {built.source}, {built.bytes / 1e6:.0f} MB, {built.seconds:.0f} s"
    )
    print_result({"project": name, **built._asdict()}, text)


@image_app.command("remove")
def remove_project_image(
    ctx: typer.Context, project: Project, tenant: Tenant = "demo", as_json: AsJson = False
) -> None:
    """Let a project's next steps use the image of all boxes again, and remove its own from this engine."""
    from ledger.runs.run import set_project_image
    from sandbox.image.project import remove_image

    with installed(ctx) as installation:
        with installation.ledger.begin() as session:
            before = set_project_image(session, tenant, project, None, actor=_ACTOR)
        is_gone = before is not None and remove_image(box_config(ctx), before["id"])
    had = f"{before['reference']} is {'removed' if is_gone else 'not removed: in use, or not here'}" if before else ""
    text = f"{project}: the image of all boxes; {had or 'it had no other'}"
    print_result({"project": project, "before": before, "is_removed": is_gone}, text)
