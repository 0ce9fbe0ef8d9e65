"""`site ...`: make, import, export, list, compare, roll back and sweep sites. Each prints JSON with `--json`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

import typer
from pydantic import BaseModel, ConfigDict

from monitoring.config import AuditConfig, LedgerConfig
from producers.commands.context import (
    FAILED,
    OK,
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
    print_table,
)
from producers.commands.jobs import show_comparison
from producers.config import WebhookConfig
from routing.config import BrokerConfig, PolicyConfig, read_settings, secrets_of
from sites.config import PreviewConfig

if TYPE_CHECKING:
    from producers.bootstrap import Installation
    from producers.errors import ImportRefusedError
    from sites.diff.canonical import Applied
    from sites.diff.model import DiffRefusedError


site_app = typer.Typer(no_args_is_help=True, help="Sites and their releases.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The site.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory.")]
Release = Annotated[UUID | None, typer.Option("--release", metavar="ID", help="Which release; the active one if not.")]


@contextmanager
def _installed(ctx: typer.Context) -> Iterator[Installation]:
    from producers.errors import InvalidInputError

    with installed(ctx) as installation:
        try:
            yield installation
        except InvalidInputError as error:
            fail(str(error), code=USAGE)
        except OSError as error:
            fail(f"{error.filename or 'the store'}: {error.strerror or type(error).__name__}; nothing was published")


@site_app.command()
def create(
    ctx: typer.Context,
    name: Name,
    profile: Annotated[str, typer.Option(metavar="PROFILE", help="Publish profile of the policy.")] = "default",
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Make an empty site."""
    from producers.use_cases.sites import site_view

    with _installed(ctx) as installation:
        site = installation.sites.create(tenant, name, profile=profile, actor="cli")
    if as_json:
        print_json(site_view(site, pages_url=installation.settings.pages.public_url))
    else:
        out.print(f"made {name}")


@site_app.command("profile")
def set_profile(
    ctx: typer.Context,
    name: Name,
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Publish profile of the policy.")],
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Judge a site's releases by another publish profile from now on: more JavaScript, or less."""
    from producers.use_cases.sites import site_view

    with _installed(ctx) as installation:
        site = installation.sites.set_profile(tenant, name, profile, actor="cli")
    if as_json:
        print_json(site_view(site, pages_url=installation.settings.pages.public_url))
    else:
        out.print(f"{name} is judged by {profile} from now on")


@site_app.command("import")
def import_site(
    ctx: typer.Context, name: Name, directory: Directory, as_json: AsJson = False, tenant: Tenant = "demo"
) -> None:
    """Make a directory's content the active release. With a `site.json` the pages are rendered from that spec."""
    from producers.errors import ImportRefusedError
    from producers.use_cases.sites import release_view

    def tell(text: str) -> None:
        if not as_json:
            err.print(text, markup=False)

    with _installed(ctx) as installation:
        try:
            release = installation.sites.import_site(tenant, name, directory, actor="cli", tell=tell)
        except ImportRefusedError as error:
            _refuse(error, as_json=as_json)
    if as_json:
        print_json({"ok": True, "release": release_view(release, is_active=True).model_dump(mode="json")})
    else:
        out.print(f"{name}: {release.signals['files']} files, {release.total_bytes} bytes, release {release.id}")


def _refuse(error: ImportRefusedError, *, as_json: bool) -> None:
    if not as_json:
        fail(str(error))
    print_json({"ok": False, "findings": [dict(finding) for finding in error.findings]})
    raise typer.Exit(FAILED)


@site_app.command("export")
def export_site(
    ctx: typer.Context,
    name: Name,
    directory: Directory,
    release: Release = None,
    sources: Annotated[bool, typer.Option("--sources", help="All of a built site, not only what is served.")] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Write what a release serves, the active one by default, to a new or empty directory."""
    from producers.use_cases.sites import release_view

    with _installed(ctx) as installation:
        site, _ = installation.sites.releases(tenant, name, limit=1)
        found = installation.sites.export_site(tenant, name, directory, release=release, with_sources=sources)
    if as_json:
        print_json(release_view(found, is_active=found.id == site.active_release_id))
    else:
        out.print(f"wrote release {found.id} to {directory}", markup=False)


@site_app.command("list")
def list_sites(ctx: typer.Context, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """List the tenant's sites."""
    from producers.use_cases.sites import site_view

    with _installed(ctx) as installation:
        found = installation.sites.all(tenant)
    views = [site_view(site, pages_url=installation.settings.pages.public_url) for site in found]
    if as_json:
        print_json([view.model_dump(mode="json") for view in views])
        return
    print_table(
        ("site", "active release", "", "live page"),
        (
            (view.name, str(view.active_release_id or "none"), "" if view.is_shown else "lags", view.live_url or "")
            for view in views
        ),
    )


@site_app.command()
def releases(
    ctx: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many.")] = 50,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List a site's published releases, newest first."""
    from producers.use_cases.sites import release_view

    with _installed(ctx) as installation:
        site, found = installation.sites.releases(tenant, name, limit=limit)
    views = [release_view(release, is_active=release.id == site.active_release_id) for release in found]
    if as_json:
        print_json([view.model_dump(mode="json") for view in views])
        return
    print_table(
        ("release", "published", "", "digest", "files", "bytes", "job"),
        (
            (
                str(view.id),
                f"{view.published_at:%Y-%m-%d %H:%M:%S}",
                "active" if view.is_active else "swept" if view.is_swept else "",
                view.digest[:12],
                str(view.files),
                str(view.total_bytes),
                str(view.job_id or "imported"),
            )
            for view in views
        ),
    )


@site_app.command()
def diff(
    ctx: typer.Context,
    name: Name,
    before: Annotated[
        UUID | None, typer.Argument(metavar="[A]", help="A release; without it, the one that B replaced.")
    ] = None,
    after: Annotated[UUID | None, typer.Argument(metavar="[B]", help="Another; without it, the active one.")] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Show what changed from release A to release B; without them, what the last publish changed."""
    with _installed(ctx) as installation:
        found = installation.sites.diff(tenant, name, before, after)
    print_json(found) if as_json else show_comparison(found)


@site_app.command()
def rollback(
    ctx: typer.Context,
    name: Name,
    release: Annotated[
        UUID | None, typer.Argument(metavar="[RELEASE]", help="Which release; without it, the one before.")
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Make an earlier release the active one again."""
    from producers.use_cases.sites import release_view

    with _installed(ctx) as installation:
        found = installation.sites.rollback(tenant, name, to=release, actor="cli")
    if as_json:
        print_json(release_view(found, is_active=True))
    else:
        out.print(f"{name} shows release {found.id} again")


@site_app.command("revoke-previews")
def revoke_previews(
    ctx: typer.Context,
    name: Name,
    release: Annotated[
        UUID | None, typer.Option("--release", metavar="ID", help="Links of this release; all of the site's if not.")
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Make every preview link that is out useless, because one of them leaked."""
    with _installed(ctx) as installation:
        revoked = installation.sites.revoke_previews(tenant, name, release=release, actor="cli")
    if as_json:
        print_json({"releases": revoked})
    else:
        out.print(f"the preview links of {revoked} releases are revoked; `pointsman job ID` shows a new one")


@site_app.command("gc")
def collect(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be given up.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give back the space of old releases and abandoned drafts of all sites, by the policy's `retention`."""
    with _installed(ctx) as installation:
        from producers.dispatch.housekeeping import collect_garbage

        done = collect_garbage(
            installation.ledger, installation.den, installation.policy, is_rehearsal=dry_run, actor="cli"
        )
    if as_json:
        print_json({**done._asdict(), "dry_run": dry_run})
        return
    verb = "would give up" if dry_run else "gave up"
    out.print(
        f"{verb} {done.releases} releases of {done.sites} sites: {done.blobs} files of {done.blob_bytes} bytes, "
        f"{done.trees} directories, {done.leftovers} leftovers of crashes"
    )


# `render`, `scan`: builds and checks that need no installation, and respect one that is there.

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
    from sites.spec.errors import SpecError
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
    from sites.diff.apply import apply_diff
    from sites.diff.model import DiffRefusedError
    from sites.diff.policy import MATCHING, SITE
    from sites.directories import Worktree

    text = _read_diff(diff)
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
    _show_applied(done, as_json=as_json)


def _read_diff(diff: Path) -> bytes:
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


def _show_applied(done: Applied, *, as_json: bool) -> None:
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
