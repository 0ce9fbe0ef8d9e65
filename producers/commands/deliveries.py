"""Dead letters (`dead`, `replay`, `dismiss`) and callbacks (`webhook ...`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn
from uuid import UUID

import typer

from producers.commands.context import (
    FAILED,
    OK,
    USAGE,
    AsJson,
    OwnJobId,
    Tenant,
    check_ids,
    context_of,
    fail,
    installed,
    job_id_here,
    out,
    print_facts,
    print_json,
    print_result,
    print_rows,
    print_table,
    requester_of,
    wants_json,
)
from routing.jobs import parse_as

if TYPE_CHECKING:
    from ledger.notifications import Wanted
    from producers.bootstrap import Installation
    from producers.use_cases.dead_letters import NotificationView, Verdicts


app = typer.Typer(no_args_is_help=True)

BatchLimit = Annotated[int, typer.Option("--limit", min=1, max=200, metavar="N", help="At most so many of a cluster.")]
Signature = Annotated[
    str | None, typer.Option(metavar="NAME", help="A cluster's short name or full signature, as `dead` shows it.")
]
JobIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="The dead letters' ids, or their starts.", callback=check_ids),
]
_PAGE = 200


@app.command()
def dead(
    ctx: typer.Context,
    signature: Signature = None,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="How many lines.")] = 50,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List dead letters by their failure signature, or with --signature those of one cluster."""
    with installed(ctx) as installation:
        letters = installation.use_cases.dead_letters
        if signature is None:
            clusters = letters.clusters(tenant, limit=limit)
        else:
            page = letters.jobs(tenant, signature, limit=limit)
    if as_json:
        print_json(clusters if signature is None else page)
    elif signature is None:
        rows = ((c.name, c.jobs, c.example, f"{c.last_at:%Y-%m-%d %H:%M}", c.signature) for c in clusters.clusters)
        print_table(("signature", "jobs", "newest", "last ended", "what they have in common"), rows)
    else:
        print_table(
            ("job", "state", "ended", "why"),
            ((j.id, j.state, f"{j.ended_at:%Y-%m-%d %H:%M}", " ".join((j.detail or "").split())) for j in page.jobs),
        )


@app.command()
def replay(
    ctx: typer.Context,
    ids: JobIds = None,
    signature: Signature = None,
    limit: BatchLimit = _PAGE,
    budget: Annotated[
        float | None, typer.Option(metavar="USD", help="Budget for each, on top of what it has spent.")
    ] = None,
    recorded: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Instead: replay this job offline from its recorded model calls.", callback=check_ids
        ),
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Resubmit dead letters under today's policy on the current release. Exit 1 if any cannot be replayed.

    With --recorded, run a job's session again on an installation of its own, with the replies that were recorded, and
    compare the results. Exit 1 if they differ.
    """
    if recorded is not None:
        _replay_recorded(ctx, recorded, tenant=tenant)
    from producers.use_cases.dead_letters import ReplayOrder

    with installed(ctx) as installation:
        wanted = [job_id_here(installation, text, tenant=tenant) for text in ids or ()]
        body = {"ids": wanted, "signature": signature, "limit": limit, "budget_usd": budget}
        verdicts = installation.use_cases.dead_letters.replay(
            parse_as(ReplayOrder, body), requester=requester_of(tenant)
        )
    _show_verdicts(verdicts)


def _replay_recorded(ctx: typer.Context, text: str, *, tenant: str) -> NoReturn:
    from producers.evaluation.replay import replay_recorded

    with installed(ctx) as installation:
        job_id = job_id_here(installation, text, tenant=tenant)
        replayed = replay_recorded(installation, job_id, tenant=tenant, environment=context_of(ctx).environment)
    same = "bit for bit the same" if replayed.is_same else "not the same"
    print_result(
        replayed,
        *(f"{step.job}  {'; '.join(step.differences) or 'same'}" for step in replayed.steps),
        f"{replayed.calls} recorded calls: {same}",
    )
    raise typer.Exit(OK if replayed.is_same else FAILED)


@app.command()
def dismiss(
    ctx: typer.Context,
    ids: JobIds = None,
    signature: Signature = None,
    limit: BatchLimit = _PAGE,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Mark dead letters as dealt with. Exit 1 if any is not a dead letter."""
    from producers.use_cases.dead_letters import DeadLetterOrder

    with installed(ctx) as installation:
        wanted = [job_id_here(installation, text, tenant=tenant) for text in ids or ()]
        order = parse_as(DeadLetterOrder, {"ids": wanted, "signature": signature, "limit": limit})
        verdicts = installation.use_cases.dead_letters.dismiss(order, requester=requester_of(tenant))
    _show_verdicts(verdicts)


def _show_verdicts(verdicts: Verdicts) -> None:
    if wants_json():
        print_json(verdicts)
    else:
        for one in verdicts.jobs:
            done = f"replayed as {one.replayed_as}" if one.replayed_as else "dismissed"
            done += "" if one.is_new else " earlier"
            out.print(f"{one.id}  {done if one.is_done else one.why_not}")
    if failed := len(verdicts.jobs) - verdicts.done:
        if wants_json():
            raise typer.Exit(FAILED)
        fail(f"{failed} of {len(verdicts.jobs)} failed")


webhook_app = typer.Typer(no_args_is_help=True, help="Signed callbacks: their secret, their delivery and redelivery.")


@webhook_app.command()
def secret(ctx: typer.Context, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Print the secret that signs the tenant's callbacks; during a rotation, one line for each secret."""
    with installed(ctx) as installation:
        from producers.dispatch.webhooks import tenant_secrets

        secrets = tenant_secrets(installation.settings.webhook, tenant)
    if not secrets:
        fail("POINTSMAN_WEBHOOK__SECRET: is not set, so no callback is sent", code=USAGE)
    print_result(secrets, *secrets)


@webhook_app.command("list")
def list_undelivered(
    ctx: typer.Context,
    pending: Annotated[bool, typer.Option("--pending", help="List those that are still being retried.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="How many.")] = 50,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List undelivered notifications, newest first: by default those that were given up."""
    with installed(ctx) as installation:
        wanted: Wanted = "pending" if pending else "undelivered"
        page = installation.use_cases.notifications.not_delivered(tenant, wanted=wanted, limit=limit)
    rows = (
        (n.job_id, n.state, f"{n.next_at:%H:%M:%S}" if n.next_at else "-", n.callback_url or "")
        for n in page.notifications
    )
    print_rows(page, ("job", "state", "next try", "callback"), rows)


@webhook_app.command("waiting")
def list_notices(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=_PAGE, metavar="N", help="How many.")] = 50,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List the messages that jobs wait for a person, newest first, with the last attempt to deliver each."""
    with installed(ctx) as installation:
        page = installation.use_cases.notices.find(tenant, limit=limit)
    rows = (
        (n.id, n.job_id, n.payload["state"], n.channel, n.state, n.deliveries[-1].outcome if n.deliveries else "")
        for n in page.notices
    )
    print_rows(page, ("message", "job", "waits", "to", "state", "last try"), rows)


@webhook_app.command()
def show(ctx: typer.Context, job_id: OwnJobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Show a job's notification and every attempt to deliver it."""
    with installed(ctx) as installation:
        found = job_id_here(installation, job_id, tenant=tenant)
        notification = installation.use_cases.notifications.show(found, tenant=tenant)
    print_json(notification) if as_json else _print_notification(notification)


@webhook_app.command("replay")
def replay_webhook(
    ctx: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Jobs whose notification to resend.", callback=check_ids),
    ] = None,
    undelivered: Annotated[
        bool, typer.Option("--undelivered", help=f"Resend the newest {_PAGE} that were given up.")
    ] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Resend notifications with the same id and body, and a full set of retries. Exit 1 if one cannot be resent."""
    if bool(ids) == undelivered:
        raise typer.BadParameter("give either ids or --undelivered")
    with installed(ctx) as installation:
        wanted = [job_id_here(installation, text, tenant=tenant) for text in ids or ()]
        verdicts = dict(_replay_all(installation, wanted, tenant=tenant))
    print_result(
        [{"job_id": str(job_id), "is_done": not why, "why_not": why or None} for job_id, why in verdicts.items()],
        *(f"{job_id}  {why or 'queued for delivery'}" for job_id, why in verdicts.items()),
    )
    if any(verdicts.values()):
        raise typer.Exit(FAILED)


def _replay_all(installation: Installation, ids: list[UUID], *, tenant: str) -> list[tuple[UUID, str]]:
    """Replay each on its own; return why it failed, or an empty string."""
    from ledger.errors import JobNotFoundError, NotReplayableError

    notifications, verdicts = installation.use_cases.notifications, []
    job_ids = ids or [one.job_id for one in notifications.not_delivered(tenant, limit=_PAGE).notifications]
    for job_id in job_ids:
        try:
            notifications.replay(job_id, tenant=tenant, actor="cli")
            verdicts.append((job_id, ""))
        except (JobNotFoundError, NotReplayableError) as error:
            verdicts.append((job_id, str(error)))
    return verdicts


def _print_notification(notification: NotificationView) -> None:
    print_facts(
        (
            ("job", notification.job_id),
            ("state", notification.state),
            ("callback", notification.callback_url or "none"),
            ("message", notification.message_id),
            ("next try", f"{notification.next_at:%Y-%m-%d %H:%M:%S}" if notification.next_at else ""),
            ("replays", notification.replays or ""),
        )
    )
    if notification.deliveries:
        rows = (
            (f"{d.at:%Y-%m-%d %H:%M:%S}", d.number, d.outcome, d.status or "-", f"{d.seconds:.2f}", d.detail)
            for d in notification.deliveries
        )
        print_table(("at", "try", "outcome", "status", "seconds", "detail"), rows)
