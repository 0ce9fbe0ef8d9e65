"""Commands of a fleet of several cells: its directory, its router, and moving a tenant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from producers.commands.context import USAGE, AsJson, fail, installed, out, print_json, print_result, print_table

if TYPE_CHECKING:
    from ledger.cells.directory import Directory, Move
    from producers.bootstrap import Installation

cells_app = typer.Typer(no_args_is_help=True, help="Several installations as one fleet.")

TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="Whose rows and files.")]
_LOOK_SECONDS = 2.0


@contextmanager
def _directory(ctx: typer.Context) -> Iterator[tuple[Installation, Directory]]:
    with installed(ctx) as installation:
        if installation.directory is None:
            fail("POINTSMAN_CELLS__DIRECTORY_URL: must name the database of the directory", code=USAGE)
        yield installation, installation.directory


@cells_app.command("add")
def add(
    ctx: typer.Context,
    api_url: Annotated[
        str, typer.Option(metavar="URL", help="Where the router reaches its API; by default here.")
    ] = "",
    pages_url: Annotated[str, typer.Option(metavar="URL", help="Likewise, its pages.")] = "",
    as_json: AsJson = False,
) -> None:
    """Add this installation, with its tenants and keys, as the cell POINTSMAN_CELLS__NAME, or say that it has moved."""
    with _directory(ctx) as (installation, directory):
        from ledger.cells.directory import CellRecord
        from ledger.cells.tenant_rows import keys_by_tenant
        from sites.ownership import adopt, check_owner
        from sites.repository.copies import claim_root

        settings = installation.settings
        if not settings.cells.name:
            fail("POINTSMAN_CELLS__NAME: must name this cell", code=USAGE)
        record = CellRecord(
            settings.cells.name,
            api_url or f"http://{settings.api.host}:{settings.api.port}",
            pages_url or f"http://{settings.pages.host}:{settings.pages.port}",
            settings.broker.url,
            installation.ledger_url,
            settings.content_store.model_copy(
                update={"root": settings.content_store.root.resolve(), "secrets": {}}
            ).model_dump_json(),
            str(settings.runs.root.resolve()),
            json.dumps({name: account.tenants for name, account in settings.accounts.by_name.items()}),
        )
        try:
            adopt(installation.ledger, installation.content_store)
            check_owner(installation.ledger, installation.content_store)
            claim_root(settings.runs.root, record.name)
        except OSError as error:
            fail(str(error))
        directory.prepare()
        directory.add_cell(record)
        with installation.ledger.begin() as session:
            keys = keys_by_tenant(session)
        for tenant, hashes in keys.items():
            directory.claim(tenant, cell=record.name, key_hashes=hashes)
    print_result({"cell": record.name, "tenants": sorted(keys)}, f"cell {record.name}: {len(keys)} tenants")


@cells_app.command("status")
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the cells, whether they accept jobs, what they have leased of today's budget, and where each tenant is."""
    with _directory(ctx) as (_, directory):
        import httpx2

        cells, places, leased = directory.look_up().cells.values(), directory.places(), directory.leased_today()
        ready = {}
        for cell in cells:
            try:
                is_ready = httpx2.get(f"{cell.api_url}/readyz", timeout=_LOOK_SECONDS, trust_env=False).is_success
            except httpx2.HTTPError:
                is_ready = False
            ready[cell.name] = is_ready
    counts = Counter(place.cell for place in places)
    if as_json:
        shown = [
            {
                "name": cell.name,
                "api_url": cell.api_url,
                "is_ready": ready[cell.name],
                "tenants": counts[cell.name],
                "leased_usd": leased.get(cell.name, 0) / 1e9,
            }
            for cell in cells
        ]
        print_json({"cells": shown, "tenants": [place._asdict() for place in places]})
        return
    rows = [
        (cell.name, "yes" if ready[cell.name] else "no", counts[cell.name], f"{leased.get(cell.name, 0) / 1e9:.2f}")
        for cell in cells
    ]
    print_table(("cell", "accepts jobs", "tenants", "leased today, USD"), rows)
    out.print()
    print_table(("tenant", "cell", "epoch", "move"), [(*place[:3], place.step or "") for place in places])


@cells_app.command("move")
def move(
    ctx: typer.Context,
    tenant: TenantName,
    to: Annotated[str, typer.Option("--to", metavar="CELL", help="The cell that it moves to.")],
    drain_seconds: Annotated[
        float, typer.Option("--drain", min=0, metavar="SECONDS", help="How long jobs at work may go on.")
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Move a tenant to another cell while it works. If that breaks off, the same command goes on with it."""
    with _directory(ctx) as (installation, directory):
        from producers.cells.move import Timing, move_tenant

        def tell(done: Move) -> None:
            if not as_json:
                out.print(f"{tenant}: {done.step.value}")

        timing = Timing(drain=drain_seconds, lease=installation.settings.cells.lease_seconds)
        moved = move_tenant(directory, tenant, to, timing=timing, told=tell)
    text = f"{tenant} is in cell {to}" + ("" if moved else " already")
    print_result({"tenant": tenant, "cell": to, "is_moved": moved is not None}, text)


@cells_app.command("abort")
def abort(ctx: typer.Context, tenant: TenantName, as_json: AsJson = False) -> None:
    """Give up a move that has not switched yet; the old cell goes on."""
    with _directory(ctx) as (_, directory):
        from producers.cells.move import abort_move

        abort_move(directory, tenant)
    print_result({"tenant": tenant, "is_aborted": True}, f"{tenant} stays where it is")
