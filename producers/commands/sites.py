"""`site ...`: make, import, export, list, compare and roll back sites."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from producers.commands.context import USAGE, Tenant, fail, installed, out, print_table

if TYPE_CHECKING:
    from producers.sites import Sites

app = typer.Typer(no_args_is_help=True, help="Sites and their releases.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The site.")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="A directory.")]


@contextmanager
def _sites(ctx: typer.Context) -> Iterator[Sites]:
    from producers.sites import InvalidSiteError

    with installed(ctx) as installation:
        try:
            yield installation.sites
        except InvalidSiteError as error:
            fail(str(error), code=USAGE)


@app.command()
def create(ctx: typer.Context, name: Name, tenant: Tenant = "demo") -> None:
    """Make an empty site."""
    with _sites(ctx) as sites:
        sites.create(tenant, name)
    out.print(f"made {name}")


@app.command("import")
def import_site(ctx: typer.Context, name: Name, directory: Directory, tenant: Tenant = "demo") -> None:
    """Make a directory's content the active release. With a `site.json` the pages are rendered from that spec."""
    with _sites(ctx) as sites:
        release = sites.import_site(tenant, name, directory)
    out.print(f"{name}: {release.signals['files']} files, {release.total_bytes} bytes, release {release.id}")


@app.command("export")
def export_site(ctx: typer.Context, name: Name, directory: Directory, tenant: Tenant = "demo") -> None:
    """Write the active release to a new or empty directory."""
    with _sites(ctx) as sites:
        release = sites.export_site(tenant, name, directory)
    out.print(f"wrote release {release.id} to {directory}")


@app.command("list")
def list_sites(ctx: typer.Context, tenant: Tenant = "demo") -> None:
    """List the tenant's sites."""
    with _sites(ctx) as sites:
        found = sites.all(tenant)
    print_table(("site", "active release"), ((site.name, str(site.active_release_id or "none")) for site in found))


@app.command()
def releases(ctx: typer.Context, name: Name, tenant: Tenant = "demo") -> None:
    """List a site's published releases, newest first."""
    with _sites(ctx) as sites:
        site, found = sites.releases(tenant, name)
    print_table(
        ("release", "published", "", "digest", "bytes", "job"),
        (
            (
                str(release.id), f"{release.published_at:%Y-%m-%d %H:%M:%S}",
                "active" if release.id == site.active_release_id else "", release.digest[:12],
                str(release.total_bytes), str(release.job_id or "imported"),
            )
            for release in found
        ),
    )  # fmt: skip


@app.command()
def diff(
    ctx: typer.Context,
    name: Name,
    before: Annotated[UUID, typer.Argument(help="A release.")],
    after: Annotated[UUID, typer.Argument(help="Another release.")],
    tenant: Tenant = "demo",
) -> None:
    """Show what changed from one release to another."""
    with _sites(ctx) as sites:
        for change in sites.diff(tenant, name, before, after):
            out.print(f"{change.status} {change.path}", markup=False)
            if change.diff:
                out.print(change.diff, markup=False)


@app.command()
def rollback(
    ctx: typer.Context,
    name: Name,
    to: Annotated[UUID | None, typer.Option(help="Which release; without it, the one before.")] = None,
    tenant: Tenant = "demo",
) -> None:
    """Make an earlier release the active one again."""
    with _sites(ctx) as sites:
        release = sites.rollback(tenant, name, to=to, actor="cli")
    out.print(f"{name} shows release {release.id} again")
