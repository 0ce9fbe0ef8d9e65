"""`site ...`: make, import, export, list, compare and roll back sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from rich.table import Table

from producers.commands.context import Tenant, clear_errors, context_of, out

app = typer.Typer(no_args_is_help=True, help="Sites and their releases.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The site.")]


@app.command()
def create(ctx: typer.Context, name: Name, tenant: Tenant = "demo") -> None:
    """Make an empty site."""
    with clear_errors():
        context_of(ctx).installation().sites.create(tenant, name)
    out.print(f"made {name}")


@app.command("import")
def import_site(
    ctx: typer.Context, name: Name, directory: Annotated[Path, typer.Argument(metavar="DIR")], tenant: Tenant = "demo"
) -> None:
    """Make a directory's content the active release. With a `site.json` the pages are rendered from that spec."""
    with clear_errors():
        release = context_of(ctx).installation().sites.import_site(tenant, name, directory)
    out.print(f"{name}: {release.signals['files']} files, {release.total_bytes} bytes, release {release.id}")


@app.command("export")
def export_site(
    ctx: typer.Context, name: Name, directory: Annotated[Path, typer.Argument(metavar="DIR")], tenant: Tenant = "demo"
) -> None:
    """Write the active release to a new or empty directory."""
    with clear_errors():
        release = context_of(ctx).installation().sites.export_site(tenant, name, directory)
    out.print(f"wrote release {release.id} to {directory}")


@app.command("list")
def list_sites(ctx: typer.Context, tenant: Tenant = "demo") -> None:
    """List the tenant's sites."""
    with clear_errors():
        for site in context_of(ctx).installation().sites.all(tenant):
            out.print(f"{site.name}  release {site.active_release_id or 'none'}", markup=False)


@app.command()
def releases(ctx: typer.Context, name: Name, tenant: Tenant = "demo") -> None:
    """List a site's published releases, newest first."""
    with clear_errors():
        site, found = context_of(ctx).installation().sites.releases(tenant, name)
    table = Table("release", "published", "digest", "bytes", "job", "", box=None, pad_edge=False)
    for release in found:
        table.add_row(
            str(release.id), f"{release.published_at:%Y-%m-%d %H:%M:%S}", release.digest[:12],
            str(release.total_bytes), str(release.job_id or "imported"),
            "active" if release.id == site.active_release_id else "",
        )  # fmt: skip
    out.print(table)


@app.command()
def diff(
    ctx: typer.Context,
    name: Name,
    before: Annotated[UUID, typer.Argument(help="A release.")],
    after: Annotated[UUID, typer.Argument(help="Another release.")],
    tenant: Tenant = "demo",
) -> None:
    """Show what changed from one release to another."""
    with clear_errors():
        for change in context_of(ctx).installation().sites.diff(tenant, name, before, after):
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
    with clear_errors():
        release = context_of(ctx).installation().sites.rollback(tenant, name, to=to, actor="cli")
    out.print(f"{name} shows release {release.id} again")
