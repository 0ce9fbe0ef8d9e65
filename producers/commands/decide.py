"""`render`, `scan`: builds and checks that need no installation, and respect one that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict

from monitoring.config import AuditConfig, LedgerConfig
from producers.commands.context import FAILED, OK, USAGE, AsJson, clear_errors, context_of, fail, out, print_json
from producers.config import WebhookConfig
from routing.config import BrokerConfig, PolicyConfig, read_settings, secrets_of
from sandbox.config import PreviewConfig

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
    from sandbox.archive import write_directory
    from sandbox.spec.errors import SpecError
    from sandbox.spec.render import render as render_site
    from sandbox.spec.validate import accept

    try:
        text = spec.read_bytes()
    except OSError as error:
        fail(f"render: {spec}: {error.strerror}", code=USAGE)
    with clear_errors():
        try:
            files = render_site(accept(text, repair=False))
        except SpecError as error:
            fail(f"render: {spec}: {error}")
        write_directory(files, directory)
    sizes = {path: len(data) for path, data in sorted(files.items())}
    print_json({"ok": True, "files": sizes}) if as_json else out.print(f"wrote {', '.join(sizes)} to {directory}")


@app.command()
def scan(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="What would be published.")],
    profile: Annotated[str, typer.Option(metavar="NAME", help="Publish profile of the policy.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Scan a directory as every artifact is scanned before it is published. Exit 1 on findings."""
    from routing.policy import load_policy
    from sandbox.archive import read_directory
    from sandbox.scan.engine import scan as scan_files
    from sandbox.tree import DEFAULT_MAX_TREE_BYTES, DEFAULT_MAX_TREE_FILES

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
