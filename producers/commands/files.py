"""`render`, `scan`: builds and checks that need no installation, and respect one that is there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from pydantic import BaseModel, ConfigDict

from monitoring.config import AuditConfig, LedgerConfig
from producers.commands.context import FAILED, OK, USAGE, AsJson, clear_errors, context_of, err, fail, out, print_json
from producers.config import WebhookConfig
from routing.config import BrokerConfig, PolicyConfig, read_settings, secrets_of
from sites.config import PreviewConfig

if TYPE_CHECKING:
    from sites.diff.canonical import Applied
    from sites.diff.model import DiffRefusedError


app = typer.Typer()


class _ScanSettings(BaseModel):
    """What a scan reads: the policy, and every section that holds a secret which nobody may publish."""

    model_config = ConfigDict(frozen=True)

    ledger: LedgerConfig = LedgerConfig()
    broker: BrokerConfig = BrokerConfig()
    policy: PolicyConfig = PolicyConfig()
    preview: PreviewConfig = PreviewConfig()
    audit: AuditConfig = AuditConfig()
    webhook: WebhookConfig = WebhookConfig()


@app.command()
def render(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.json", help="A json-render spec, or a site of several pages.")],
    directory: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty directory.")],
    as_json: AsJson = False,
) -> None:
    """Build static HTML and CSS from a spec: the same spec, the same bytes."""
    from sites.directories import write_directory
    from sites.errors import SpecError
    from sites.spec.render import contrast_notes
    from sites.spec.render import render as render_site
    from sites.spec.validate import accept

    try:
        text = spec.read_bytes()
    except OSError as error:
        fail(f"render: {spec}: {error.strerror}", code=USAGE)
    with clear_errors():
        try:
            site = accept(text, repair=False)
            files = render_site(site)
        except SpecError as error:
            fail(f"render: {spec}: {error}")
        write_directory(files, directory)
    sizes = {path: len(data) for path, data in sorted(files.items())}
    notes = contrast_notes(site)
    if as_json:
        print_json({"ok": True, "files": sizes, "notes": notes})
        return
    out.print(f"wrote {', '.join(sizes)} to {directory}")
    for note in notes:
        out.print(f"note: {note}", markup=False)


@app.command()
def scan(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What would be published.")],
    profile: Annotated[str, typer.Option(metavar="NAME", help="Publish profile of the policy.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Scan a directory as every artifact is scanned before it is published. Exit 1 on findings."""
    from routing.policy.platform import load_policy
    from sites.directories import read_directory
    from sites.files import DEFAULT_MAX_TREE_BYTES, DEFAULT_MAX_TREE_FILES
    from sites.scan.engine import scan as scan_files

    with clear_errors():
        settings = read_settings(_ScanSettings, context_of(ctx).environment)
        profiles = load_policy(settings.policy.path).profiles
    if profile not in profiles:
        fail(f"scan: --profile must be one of {', '.join(sorted(profiles))}", code=USAGE)
    with clear_errors():
        files = read_directory(
            directory, max_bytes=DEFAULT_MAX_TREE_BYTES, max_files=DEFAULT_MAX_TREE_FILES, keep_planted=True
        )
        report = scan_files(files, profiles[profile], profile_name=profile, known_keys=secrets_of(settings))
    if as_json:
        print_json(report.as_dict())
    else:
        for found in report.findings:
            place = f"{found.file}:{found.line}: {found.gate}/{found.rule}"
            out.print(f"{place}: {found.message} ({found.fix})", markup=False)
        out.print("passed" if report.passed else f"refused with {len(report.findings)} findings")
    raise typer.Exit(OK if report.passed else FAILED)


# `pointsman apply`: a diff onto a directory, with the engine of tier 2 and nothing else of an installation.


@app.command()
def apply(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The files that the diff changes.")],
    diff: Annotated[
        Path,
        typer.Argument(
            metavar="DIFF",
            help="A unified diff, search/replace blocks or a `*** Begin "
            "Patch`, with or without prose around it; - for standard input.",
        ),
    ],
    target: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="A new or empty directory; without it, DIR is changed.")
    ] = None,
    policy: Annotated[
        Literal["site"] | None, typer.Option(metavar="POLICY", help="`site`: what a model may do to a site.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Apply a diff, all of it or nothing. Where more than one place is possible, it is refused. Exit 1 if refused."""
    from sites.diff.apply import MATCHING, SITE, apply_diff
    from sites.diff.model import DiffRefusedError
    from sites.directories import Worktree

    text = _read(diff)
    with clear_errors():
        try:
            files = Worktree(directory)
            done = apply_diff(files, text, policy=SITE if policy else MATCHING, obstacles=files.obstacles)
            modes = {receipt.path: receipt.mode for receipt in done.receipts if receipt.mode is not None}
            (files.copy_to(target) if target is not None else files).write(done.changed, modes)
        except DiffRefusedError as refused:
            _show_refusal(refused, as_json=as_json)
            raise typer.Exit(FAILED) from None
        except OSError as error:
            fail(f"apply: {error.filename or directory}: {error.strerror}")
    _show(done, as_json=as_json)


def _read(diff: Path) -> bytes:
    from sites.diff.model import Limits

    most = Limits().max_bytes + 1  # one more than is allowed: the engine refuses it by its own rule
    try:
        if str(diff) == "-":
            return sys.stdin.buffer.read(most)
        with diff.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        fail(f"apply: {diff}: {error.strerror}", code=USAGE)


def _show_refusal(refused: DiffRefusedError, *, as_json: bool) -> None:
    if not as_json:
        err.print(f"pointsman: {refused}", markup=False)
        for line in refused.nearest:
            err.print(line, markup=False)
        return
    print_json(
        {
            "ok": False,
            "reason": refused.reason.value,
            "files": [],
            "fuzz": None,
            "detail": refused.detail,
            "file": refused.file,
            "hunk": refused.hunk,
            "nearest": refused.nearest,
            "feedback": refused.feedback,
        }
    )


def _show(done: Applied, *, as_json: bool) -> None:
    touched = sorted({*done.changed, *(receipt.path for receipt in done.receipts if receipt.mode is not None)})
    if as_json:
        receipt = done.as_dict()
        print_json(
            {
                "ok": True,
                "reason": None,
                "files": touched,
                "fuzz": receipt["fuzz"],
                "fuzz_name": receipt["fuzz_name"],
                "needs_approval": receipt["needs_approval"],
                "receipts": receipt["files"],
                "diff": done.canonical.decode(errors="replace"),
            }
        )
        return
    for path in touched:
        gone = done.changed.get(path, b"") is None
        out.print(f"{'removed' if gone else 'wrote'} {ascii(path)[1:-1]}", markup=False)
    out.print(f"applied, fuzz {int(done.fuzz)} ({done.fuzz.name.lower()})")
