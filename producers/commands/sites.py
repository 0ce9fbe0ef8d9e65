"""`site ...`: make, import, export, list, compare, roll back and sweep sites. Each prints JSON with `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from producers.commands.context import FAILED, USAGE, AsJson, Tenant, err, fail, installed, out, print_json, print_table
from producers.commands.jobs import show_comparison

if TYPE_CHECKING:
    from producers.bootstrap import Installation
    from producers.errors import ImportRefusedError


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
