"""`webhook ...`: callbacks as those see them who look after them: what did not arrive, why, and once more."""

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

if TYPE_CHECKING:
    from monitoring.ledger.notifications import Wanted
    from producers.bootstrap import Installation
    from producers.notifications import NotificationView

app = typer.Typer(no_args_is_help=True, help="Signed callbacks: their secret, what did not arrive, and sending again.")

_PAGE = 200


@app.command()
def secret(ctx: typer.Context, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Print what the tenant's callbacks are signed with, for its receivers; while secrets change, one line each."""
    with installed(ctx) as installation:
        from producers.webhook_secrets import tenant_secrets

        found = tenant_secrets(installation.settings.webhook, tenant)
    if not found:
        fail("POINTSMAN_WEBHOOK__SECRET: is not set, so no callback is sent", code=USAGE)
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(found))


@app.command("list")
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


@app.command()
def show(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Show a job's notification, and what came of each try to deliver it."""
    with installed(ctx) as installation:
        found = installation.notifications.show(job_id, tenant=tenant)
    print_json(found) if as_json else _print_one(found)


@app.command()
def replay(
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
        print_json([{"job_id": job_id, "is_done": not why_not, "why_not": why_not or None}
                    for job_id, why_not in verdicts.items()])  # fmt: skip
    else:
        for job_id, why_not in verdicts.items():
            out.print(f"{job_id}  {why_not or 'is sent again'}", markup=False)
    if any(verdicts.values()):
        raise typer.Exit(FAILED)


def _replay_all(installation: Installation, ids: list[UUID] | tuple[()], *, tenant: str) -> list[tuple[UUID, str]]:
    """Replay each alone; returns why one could not be, or an empty text."""
    from monitoring.errors import JobNotFoundError, NotReplayableError

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
            ("job", found.job_id), ("state", found.state), ("callback", found.callback_url or "none"),
            ("message", found.message_id),
            ("next try", f"{found.next_at:%Y-%m-%d %H:%M:%S}" if found.next_at else ""),
            ("replays", found.replays or ""),
        )
    )  # fmt: skip
    if found.deliveries:
        print_table(
            ("at", "try", "outcome", "status", "seconds", "detail"),
            (
                (f"{one.at:%Y-%m-%d %H:%M:%S}", str(one.number), one.outcome, str(one.status or "-"),
                 f"{one.seconds:.2f}", one.detail)
                for one in found.deliveries
            ),
        )  # fmt: skip
