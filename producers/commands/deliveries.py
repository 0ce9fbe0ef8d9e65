"""`dead`, `replay`, `dismiss`: see to jobs that ended as nobody wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from producers.commands.context import (
    FAILED,
    USAGE,
    AsJson,
    Tenant,
    fail,
    installed,
    out,
    print_facts,
    print_json,
    print_table,
)
from producers.commands.jobs import JobId
from routing.jobs import Door, parse_as

if TYPE_CHECKING:
    from ledger.notifications import Wanted
    from producers.bootstrap import Installation
    from producers.use_cases.dead_letters import NotificationView, Verdicts


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
    from producers.use_cases.dead_letters import ReplayOrder
    from producers.use_cases.rounds import Asker

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
    from producers.use_cases.dead_letters import DeadLetterOrder
    from producers.use_cases.rounds import Asker

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


# `webhook ...`: callbacks as those see them who look after them: what did not arrive, why, and once more.

webhook_app = typer.Typer(
    no_args_is_help=True, help="Signed callbacks: their secret, what did not arrive, and sending again."
)


@webhook_app.command()
def secret(ctx: typer.Context, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Print what the tenant's callbacks are signed with, for its receivers; while secrets change, one line each."""
    with installed(ctx) as installation:
        from producers.dispatch.webhooks import tenant_secrets

        found = tenant_secrets(installation.settings.webhook, tenant)
    if not found:
        fail("POINTSMAN_WEBHOOK__SECRET: is not set, so no callback is sent", code=USAGE)
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(found))


@webhook_app.command("list")
def list_undelivered(
    ctx: typer.Context,
    pending: Annotated[bool, typer.Option("--pending", help="Those that are still being tried.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="How many.")] = 50,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List notifications that their receivers do not have, newest first: those given up, if not asked otherwise."""
    with installed(ctx) as installation:
        wanted: Wanted = "pending" if pending else "undelivered"
        page = installation.notifications.not_delivered(tenant, wanted=wanted, limit=limit)
    if as_json:
        print_json(page)
        return
    print_table(
        ("job", "state", "next try", "callback"),
        (
            (str(one.job_id), one.state, f"{one.next_at:%H:%M:%S}" if one.next_at else "-", one.callback_url or "")
            for one in page.notifications
        ),
    )


@webhook_app.command()
def show(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Show a job's notification, and what came of each try to deliver it."""
    with installed(ctx) as installation:
        found = installation.notifications.show(job_id, tenant=tenant)
    print_json(found) if as_json else _print_one(found)


@webhook_app.command("replay")
def replay_webhook(
    ctx: typer.Context,
    ids: Annotated[
        list[UUID] | None, typer.Argument(metavar="[ID]...", help="Jobs whose notification to send.")
    ] = None,
    undelivered: Annotated[
        bool, typer.Option("--undelivered", help=f"All that were given up, at most {_PAGE}, the newest first.")
    ] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Send notifications again: the same id and body, now, with all tries before them. Exit 1 if one cannot be."""
    if bool(ids) == undelivered:
        raise typer.BadParameter("give either ids or --undelivered")
    with installed(ctx) as installation:
        verdicts = dict(_replay_all(installation, ids or (), tenant=tenant))
    if as_json:
        print_json(
            [
                {"job_id": job_id, "is_done": not why_not, "why_not": why_not or None}
                for job_id, why_not in verdicts.items()
            ]
        )
    else:
        for job_id, why_not in verdicts.items():
            out.print(f"{job_id}  {why_not or 'is sent again'}", markup=False)
    if any(verdicts.values()):
        raise typer.Exit(FAILED)


def _replay_all(installation: Installation, ids: list[UUID] | tuple[()], *, tenant: str) -> list[tuple[UUID, str]]:
    """Replay each alone; returns why one could not be, or an empty text."""
    from ledger.errors import JobNotFoundError, NotReplayableError

    notifications, verdicts = installation.notifications, []
    meant = ids or [one.job_id for one in notifications.not_delivered(tenant, limit=_PAGE).notifications]
    for job_id in meant:
        try:
            notifications.replay(job_id, tenant=tenant, actor="cli")
            verdicts.append((job_id, ""))
        except (JobNotFoundError, NotReplayableError) as error:
            verdicts.append((job_id, str(error)))
    return verdicts


def _print_one(found: NotificationView) -> None:
    print_facts(
        (
            ("job", found.job_id),
            ("state", found.state),
            ("callback", found.callback_url or "none"),
            ("message", found.message_id),
            ("next try", f"{found.next_at:%Y-%m-%d %H:%M:%S}" if found.next_at else ""),
            ("replays", found.replays or ""),
        )
    )
    if found.deliveries:
        print_table(
            ("at", "try", "outcome", "status", "seconds", "detail"),
            (
                (
                    f"{one.at:%Y-%m-%d %H:%M:%S}",
                    str(one.number),
                    one.outcome,
                    str(one.status or "-"),
                    f"{one.seconds:.2f}",
                    one.detail,
                )
                for one in found.deliveries
            ),
        )
