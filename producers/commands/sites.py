"""Commands on sites (`site ...`), and on directories that need no installation: `render`, `scan`, `apply`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from producers.commands.connection import connected, release_id_of
from producers.commands.context import (
    FAILED,
    OK,
    USAGE,
    AsJson,
    OperatorTenant,
    Tenant,
    check_ids,
    clear_errors,
    context_of,
    err,
    fail,
    installed,
    print_json,
    print_result,
    print_rows,
    read_plain_file,
    show_comparison,
    wants_json,
)
from routing.config import collect_secrets, read_settings

if TYPE_CHECKING:
    from producers.bootstrap import Installation
    from sites.diff.canonical import Applied
    from sites.diff.model import DiffRefusedError


site_app = typer.Typer(no_args_is_help=True, help="Sites and their releases.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The site.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory.")]
Release = Annotated[
    str | None,
    typer.Option("--release", metavar="ID", help="The release; default: the active one.", callback=check_ids),
]


@contextmanager
def _installed(ctx: typer.Context) -> Iterator[Installation]:
    with installed(ctx) as installation:
        try:
            yield installation
        except OSError as error:
            fail(f"{error.filename or 'the store'}: {error.strerror or type(error).__name__}; nothing was published")


@site_app.command()
def create(
    ctx: typer.Context,
    name: Name,
    profile: Annotated[str, typer.Option(metavar="PROFILE", help="Publish profile of the policy.")] = "default",
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Create an empty site."""
    with connected(ctx) as client:
        view = client.create_site(name, profile=profile)
    print_result(view, f"created {name}")


@site_app.command("profile")
def set_profile(
    ctx: typer.Context,
    name: Name,
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help="Publish profile of the policy.")],
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Set the publish profile that later releases of a site must pass."""
    from producers.use_cases.sites import site_view

    with _installed(ctx) as installation:
        site = installation.use_cases.sites.set_profile(tenant, name, profile, actor="cli")
    print_result(
        site_view(site, pages_url=installation.settings.pages.public_url), f"{name} uses profile {profile} from now on"
    )


@site_app.command("import")
def import_site(
    ctx: typer.Context,
    name: Name,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory, or a zip or tar.gz archive of one.")],
    publish: Annotated[
        bool, typer.Option("--publish", help="Approve it, too, once the scan has found nothing.")
    ] = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Import a site, which is made if there is none of this name. It is live once its preview is approved.

    If it holds a `site.json`, its pages are rendered from that spec. Exit 1 if it was refused.
    """
    from pointsman_client.models import State

    from producers.commands.jobs import exit_with, show_findings
    from producers.commands.progress import follow

    archive = _archive_of(path)
    with connected(ctx) as client:
        view = follow(client, client.import_site(name, archive).id)
        if view.reason == "scan_refused" and not as_json:
            show_findings(client.get_job_scan(view.id))
        if publish and view.state == State.AWAITING_APPROVAL:
            client.approve_job(view.id, release_id=view.release_id)
            view = client.wait_for_job(view.id)
    exit_with(view)


def _archive_of(path: Path) -> bytes:
    """Return an archive of a directory, the same for the same files, or the archive that a file is."""
    import gzip

    from sites.directories import read_directory, write_tar
    from sites.files import DEFAULT_MAX_TREE_BYTES, DEFAULT_MAX_TREE_FILES, INSTALLED

    if not path.is_dir() and path.exists():
        return read_plain_file(path, command="site import", limit=4 * DEFAULT_MAX_TREE_BYTES)
    with clear_errors():
        files = read_directory(
            path, max_bytes=DEFAULT_MAX_TREE_BYTES, max_files=DEFAULT_MAX_TREE_FILES, without={INSTALLED}
        )
        return gzip.compress(write_tar(files, "site"), mtime=0)


@site_app.command("export")
def export_site(
    ctx: typer.Context,
    name: Name,
    directory: Directory,
    release: Release = None,
    sources: Annotated[bool, typer.Option("--sources", help="Include the sources of a built site.")] = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Write what a release serves to a new or empty directory."""
    from sites.directories import read_tar, write_directory

    with connected(ctx) as client:
        shown = client.list_releases(name, limit=200)
        active = next((site.active_release_id for site in client.list_sites() if site.name == name), None)
        wanted = release_id_of(client, name, release) or active
        if wanted is None:
            fail(f"{name} has no release yet")
        archive = client.export_site(name, release=wanted, sources=sources)
    with clear_errors():
        write_directory(read_tar(archive), directory)
    view = next((one for one in shown if one.id == wanted), None)
    print_result(view, f"wrote release {wanted} to {directory}")


@site_app.command("list")
def list_sites(ctx: typer.Context, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """List the tenant's sites."""
    with connected(ctx) as client:
        views = client.list_sites()
    rows = ((v.name, v.active_release_id or "none", "" if v.is_shown else "lags", v.live_url or "") for v in views)
    print_rows(views, ("site", "active release", "", "live page"), rows)


@site_app.command()
def releases(
    ctx: typer.Context,
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=200, metavar="N", help="How many.")] = 50,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """List a site's published releases, newest first."""
    with connected(ctx) as client:
        views = client.list_releases(name, limit=limit)
    print_rows(
        views,
        ("release", "published", "", "digest", "files", "bytes", "job"),
        (
            (
                v.id,
                f"{v.published_at:%Y-%m-%d %H:%M:%S}",
                "active" if v.is_active else "swept" if v.is_swept else "",
                v.digest[:12],
                v.files,
                v.total_bytes,
                v.job_id or "imported",
            )
            for v in views
        ),
    )


@site_app.command()
def diff(
    ctx: typer.Context,
    name: Name,
    before: Annotated[
        str | None,
        typer.Argument(metavar="[A]", help="A release; default: the one that B replaced.", callback=check_ids),
    ] = None,
    after: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Another release; default: the active one.", callback=check_ids)
    ] = None,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Show what changed between two releases, by default in the last publication."""
    with connected(ctx) as client:
        old, new = (release_id_of(client, name, text) for text in (before, after))
        comparison = client.get_site_diff(name, before=old, after=new)
    print_json(comparison) if as_json else show_comparison(comparison)


@site_app.command()
def rollback(
    ctx: typer.Context,
    name: Name,
    release: Annotated[
        str | None,
        typer.Argument(metavar="[RELEASE]", help="The release; default: the previous one.", callback=check_ids),
    ] = None,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Make an earlier release the active one again."""
    with connected(ctx) as client:
        restored = client.roll_back_site(name, release_id=release_id_of(client, name, release))
    print_result(restored, f"{name} shows release {restored.id} again")


@site_app.command("revoke-previews")
def revoke_previews(
    ctx: typer.Context,
    name: Name,
    release: Annotated[
        str | None, typer.Option("--release", metavar="ID", help="Only links to this release.", callback=check_ids)
    ] = None,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Revoke every preview link of a site, for example because one leaked."""
    with connected(ctx) as client:
        revoked = client.revoke_previews(name, release_id=release_id_of(client, name, release))
    print_result(
        revoked, f"the preview links of {revoked.releases} releases are revoked; `pointsman job ID` shows a new one"
    )


@site_app.command("gc")
def collect(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove old releases and abandoned drafts of all sites, as the policy's `retention` says."""
    with _installed(ctx) as installation:
        from producers.dispatch.housekeeping import collect_garbage

        done = collect_garbage(
            installation.ledger, installation.content_store, installation.policy, is_dry_run=dry_run, actor="cli"
        )
        is_remote = bool(installation.settings.content_store.url)
    verb = "would remove" if dry_run else "removed"
    note = "an object store's files have two keys; at any time a run removes under one of them or none"
    print_result(
        {**done._asdict(), "dry_run": dry_run},
        f"{verb} {done.releases} releases of {done.sites} sites: {done.blobs} files of {done.blob_bytes} bytes, "
        f"{done.trees} directories, {done.leftovers} leftovers of crashes",
        *([note] if is_remote else []),
    )


app = typer.Typer()


@app.command()
def render(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.json", help="A json-render spec, or a site of several pages.")],
    directory: Annotated[Path, typer.Option("--out", metavar="DIR", help="A new or empty directory.")],
    as_json: AsJson = False,
) -> None:
    """Build static HTML and CSS from a spec: the same spec, the same bytes."""
    from sites.directories import write_directory
    from sites.errors import SpecError
    from sites.spec.languages.versions import main_language
    from sites.spec.model import MAX_SITE_BYTES
    from sites.spec.render import referenced_assets, theme_notes
    from sites.spec.render import render as render_site
    from sites.spec.stream import read_site
    from sites.spec.validate import validate

    text = read_plain_file(spec, command="render", limit=MAX_SITE_BYTES + 1)
    with clear_errors():
        try:
            site = read_site(text)
            files = render_site(site)
        except SpecError as error:
            fail(f"render: {spec}: {error}")
        write_directory(files, directory)
    sizes = {path: len(data) for path, data in sorted(files.items())}
    warnings = (f"{found.path}: {found.message}" for found in validate(site))
    assets = (f"the pages need {path}, which goes beside them" for path in sorted(referenced_assets(site)))
    notes = [*theme_notes(site, main_language(site)), *warnings, *assets]
    wrote = f"wrote {', '.join(sizes)} to {directory}"
    print_result({"ok": True, "files": sizes, "notes": notes}, wrote, *(f"note: {note}" for note in notes))


@app.command()
def scan(
    ctx: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory to scan.")],
    profile: Annotated[str, typer.Option(metavar="NAME", help="Publish profile of the policy.")] = "default",
    as_json: AsJson = False,
) -> None:
    """Scan a directory as every release is scanned before publication. Exit 1 on findings."""
    from producers.bootstrap import Settings
    from routing.policy.platform import load_policy
    from sites.directories import read_directory
    from sites.files import DEFAULT_MAX_TREE_BYTES, DEFAULT_MAX_TREE_FILES
    from sites.scan.engine import scan as scan_files

    with clear_errors():
        settings = read_settings(Settings, context_of(ctx).environment)
        profiles = load_policy(settings.policy.path).profiles
    if profile not in profiles:
        fail(f"scan: --profile must be one of {', '.join(sorted(profiles))}", code=USAGE)
    with clear_errors():
        files = read_directory(
            directory, max_bytes=DEFAULT_MAX_TREE_BYTES, max_files=DEFAULT_MAX_TREE_FILES, keep_planted=True
        )
        report = scan_files(files, profiles[profile], profile_name=profile, known_keys=collect_secrets(settings))
    print_result(
        report.as_dict(),
        *(f"{one.file}:{one.line}: {one.gate}/{one.rule}: {one.message} ({one.fix})" for one in report.findings),
        "passed" if report.passed else f"refused with {len(report.findings)} findings",
    )
    raise typer.Exit(OK if report.passed else FAILED)


@app.command()
def apply(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The files to change.")],
    diff: Annotated[
        Path,
        typer.Argument(
            metavar="DIFF",
            help="A unified diff, search/replace blocks or a `*** Begin Patch`, also within prose; - for stdin.",
        ),
    ],
    target: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="A new or empty directory; default: change DIR.")
    ] = None,
    policy: Annotated[
        Literal["site"] | None, typer.Option(metavar="POLICY", help="`site`: only what a model may do to a site.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Apply a diff as a whole or not at all; an ambiguous one is refused. Exit 1 if refused."""
    from sites.diff.apply import MATCHING, SITE, apply_diff
    from sites.diff.model import DiffRefusedError
    from sites.directories import Worktree

    text = _read_diff(diff)
    with clear_errors():
        try:
            files = Worktree(directory)
            done = apply_diff(files, text, policy=SITE if policy else MATCHING, obstacles=files.obstacles)
            modes = {receipt.path: receipt.mode for receipt in done.receipts if receipt.mode is not None}
            (files.copy_to(target) if target is not None else files).write(done.changed, modes)
        except DiffRefusedError as refused:
            _show_refusal(refused)
            raise typer.Exit(FAILED) from None
        except OSError as error:
            fail(f"apply: {error.filename or directory}: {error.strerror}")
    _show_applied(done)


def _read_diff(diff: Path) -> bytes:
    from sites.diff.model import Limits

    limit = Limits().max_bytes + 1  # one more than allowed, so that the engine refuses it
    if str(diff) == "-":
        return sys.stdin.buffer.read(limit)
    return read_plain_file(diff, command="apply", limit=limit)


def _show_refusal(refused: DiffRefusedError) -> None:
    if not wants_json():
        err.print(f"pointsman: {refused}")
        for line in refused.nearest:
            err.print(line)
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


def _show_applied(done: Applied) -> None:
    touched = sorted({*done.changed, *(receipt.path for receipt in done.receipts if receipt.mode is not None)})
    receipt = done.as_dict()
    print_result(
        {
            "ok": True,
            "reason": None,
            "files": touched,
            "fuzz": receipt["fuzz"],
            "fuzz_name": receipt["fuzz_name"],
            "needs_approval": receipt["needs_approval"],
            "receipts": receipt["files"],
            "diff": done.canonical.decode(errors="replace"),
        },
        *(f"{'removed' if done.changed.get(at, b'') is None else 'wrote'} {ascii(at)[1:-1]}" for at in touched),
        f"applied, fuzz {int(done.fuzz)} ({done.fuzz.name.lower()})",
    )
