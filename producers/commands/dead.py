"""`dead`, `replay`, `dismiss`: see to jobs that ended as nobody wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from producers.commands.context import FAILED, AsJson, Tenant, fail, installed, out, print_json, print_table
from routing.jobs import Door, parse_as

if TYPE_CHECKING:
    from producers.dead_letters import Verdicts

app = typer.Typer(no_args_is_help=True)

Signature = Annotated[
    str | None, typer.Option(metavar="NAME", help="A cluster's short name, or its whole signature, as `dead` shows it.")
]
JobIds = Annotated[list[UUID] | None, typer.Argument(metavar="[ID]...", help="The dead letters.")]
_PAGE = 200


@app.command()
def dead(
    ctx: typer.Context,
    signature: Signature = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="How many lines.")] = 50,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List dead letters: by what their ends have in common, or with --signature those of one cluster."""
    with installed(ctx) as installation:
        letters = installation.dead_letters
        if signature is None:
            clusters = letters.clusters(tenant, limit=limit)
        else:
            page = letters.jobs(tenant, signature, limit=limit)
    if as_json:
        print_json(clusters if signature is None else page)
    elif signature is None:
        print_table(
            ("signature", "jobs", "newest", "last ended", "what they have in common"),
            (
                (one.name, str(one.jobs), str(one.example), f"{one.last_at:%Y-%m-%d %H:%M}", one.signature)
                for one in clusters.clusters
            ),
        )
    else:
        print_table(
            ("job", "state", "ended", "why"),
            (
                (str(one.id), one.state, f"{one.ended_at:%Y-%m-%d %H:%M}", " ".join((one.detail or "").split()))
                for one in page.jobs
            ),
        )


@app.command()
def replay(
    ctx: typer.Context,
    ids: JobIds = None,
    signature: Signature = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="Of a cluster, so many.")] = _PAGE,
    budget: Annotated[
        float | None, typer.Option(metavar="USD", help="Money for each, on top of what its bill has spent.")
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Submit dead letters once more, decided by today's policy on today's release. Exit 1 if any cannot be."""
    from producers.dead_letters import ReplayOrder
    from producers.rounds import Asker

    with installed(ctx) as installation:
        body = {"ids": ids or (), "signature": signature, "limit": limit, "budget_usd": budget}
        order = parse_as(ReplayOrder, body)
        asker = Asker(tenant=tenant, door=Door.CLI, actor="cli")
        done = installation.dead_letters.replay(order, asker=asker)
    _show(done, as_json=as_json)


@app.command()
def dismiss(
    ctx: typer.Context,
    ids: JobIds = None,
    signature: Signature = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="Of a cluster, so many.")] = _PAGE,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Say that dead letters need nothing more. Exit 1 if any is none."""
    from producers.dead_letters import DeadLetterOrder
    from producers.rounds import Asker

    with installed(ctx) as installation:
        order = parse_as(DeadLetterOrder, {"ids": ids or (), "signature": signature, "limit": limit})
        asker = Asker(tenant=tenant, door=Door.CLI, actor="cli")
        done = installation.dead_letters.dismiss(order, asker=asker)
    _show(done, as_json=as_json)


def _show(done: Verdicts, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        for one in done.jobs:
            became = f"replayed as {one.replayed_as}" if one.replayed_as else "dismissed"
            before = "" if one.is_new else ", some time ago"
            out.print(f"{one.id}  {became + before if one.is_done else one.why_not}", markup=False)
    if done.done < len(done.jobs):
        if as_json:
            raise typer.Exit(FAILED)
        fail(f"{len(done.jobs) - done.done} of {len(done.jobs)} could not be")
