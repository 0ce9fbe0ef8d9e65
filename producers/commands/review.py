"""`approve` and `reject`: a person's word on a preview."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from producers.commands.context import AsJson, Tenant, installed, out, print_json
from producers.commands.jobs import JobId

app = typer.Typer(no_args_is_help=True)


@app.command()
def approve(
    ctx: typer.Context,
    job_id: JobId,
    release: Annotated[
        UUID | None, typer.Option(metavar="ID", help="The release that was looked at: approve this one or none.")
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Approve a job's preview; it is published."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring.ledger import approvals
        from producers.commands.follow import view_in

        approvals.approve(
            session, job_id, actor="cli", policy=installation.policy, tenant=tenant, seen=approvals.Seen(release)
        )  # fmt: skip
        view = view_in(session, job_id, tenant, links=installation.previews)
    print_json(view) if as_json else out.print("approved; it is being published")


@app.command()
def reject(
    ctx: typer.Context,
    job_id: JobId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the job's owner.")] = "",
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Reject a job's preview; the live site stays as it is."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring.ledger import approvals
        from producers.commands.follow import view_in

        approvals.reject(session, job_id, actor="cli", reason=reason, tenant=tenant)
        view = view_in(session, job_id, tenant, links=installation.previews)
    print_json(view) if as_json else out.print("rejected")
