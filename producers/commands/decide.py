"""`route`, `render`, `scan`: decisions and checks that need no installation."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from producers.commands.context import FAILED, OK, USAGE, AsJson, clear_errors, fail, out, print_json
from routing.policy import platform_policy
from sandbox.archive import read_directory, write_directory
from sandbox.scan.engine import scan as scan_files
from sandbox.tree import DEFAULT_MAX_TREE_BYTES

app = typer.Typer()


@app.command()
def route(
    prompt: Annotated[str | None, typer.Argument(help="What to decide on.")] = None,
    batch: Annotated[Path | None, typer.Option(help="A JSON-lines file of prompts; prints a decision a line.")] = None,
    files: Annotated[int, typer.Option(min=0, help="Files of the site.")] = 0,
    has_js: Annotated[bool, typer.Option("--has-js")] = False,
    has_build: Annotated[bool, typer.Option("--has-build")] = False,
    preference: Annotated[str | None, typer.Option(help="spec or agent")] = None,
    advanced: Annotated[bool, typer.Option("--advanced")] = False,
    as_json: AsJson = False,
) -> None:
    """Decide where a prompt goes: offline, deterministic, with the reason."""
    from routing.batch import batch_line

    if (prompt is None) == (batch is None):
        fail("route: give a PROMPT or --batch FILE", code=USAGE)
    with clear_errors():
        if batch is not None:
            _route_batch(batch)
            return
        site = {"files": files, "has_js": has_js, "has_build": has_build}
        line = {"id": "1", "prompt": prompt, "site": site, "preference": preference, "advanced_edit": advanced}
        decision = batch_line(line)
    if as_json:
        print_json(decision)
        return
    for name, value in decision.items():
        if name != "id":
            out.print(f"{name:>11}  {json.dumps(value, ensure_ascii=False)}", markup=False)


def _route_batch(path: Path) -> None:
    from routing.batch import batch_line

    try:
        text = path.read_text()
    except OSError as error:
        fail(f"route: {path}: {error.strerror}", code=USAGE)
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            sys.stdout.write(json.dumps(batch_line(json.loads(line)), ensure_ascii=False) + "\n")
        except (ValueError, KeyError, TypeError) as error:
            fail(f"route: {path}, line {number}: {error}", code=USAGE)


@app.command()
def render(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.json", help="A json-render spec, or a site of several pages.")],
    directory: Annotated[Path, typer.Option("--out", help="A new or empty directory.")],
    as_json: AsJson = False,
) -> None:
    """Build static HTML and CSS from a spec: the same spec, the same bytes."""
    from sandbox.spec.model import parse_site
    from sandbox.spec.render import render as render_site

    try:
        text = spec.read_bytes()
    except OSError as error:
        fail(f"render: {spec}: {error.strerror}", code=USAGE)
    with clear_errors():
        files = render_site(parse_site(text))
        write_directory(files, directory)
    sizes = {path: len(data) for path, data in sorted(files.items())}
    print_json({"ok": True, "files": sizes}) if as_json else out.print(f"wrote {', '.join(sizes)} to {directory}")


@app.command()
def scan(
    directory: Annotated[Path, typer.Argument(metavar="DIR")],
    profile: Annotated[str, typer.Option(help="Publish profile of the policy.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Scan a directory as every artifact is scanned before it is published. Exit 1 on findings."""
    profiles = platform_policy().profiles
    if profile not in profiles:
        fail(f"scan: --profile must be one of {', '.join(sorted(profiles))}", code=USAGE)
    with clear_errors():
        files = read_directory(directory, max_bytes=DEFAULT_MAX_TREE_BYTES, max_files=profiles[profile].max_files)
        report = scan_files(files, profiles[profile], profile_name=profile)
    if as_json:
        print_json(report.as_dict())
    else:
        for found in report.findings:
            place = f"{found.file}:{found.line}: {found.gate}/{found.rule}"
            out.print(f"{place}: {found.message} ({found.fix})", markup=False)
        out.print("passed" if report.passed else f"refused with {len(report.findings)} findings")
    raise typer.Exit(OK if report.passed else FAILED)
