"""`resume` and `revise`: go on from a job that is over, in a new one on the same bill."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from producers.commands.context import AsJson, Tenant, installed
from producers.commands.jobs import JobId, show_end
from routing.jobs import Door, parse_as

app = typer.Typer(no_args_is_help=True)

Wait = Annotated[bool, typer.Option("--wait", help="Follow the new job until it ends or waits for approval.")]


@app.command()
def resume(
    ctx: typer.Context,
    job_id: JobId,
    budget: Annotated[float, typer.Option(metavar="USD", help="Money on top of what its bill has spent.")],
    wait: Wait = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Go on with a job that a limit or a failure ended: the same request, from what it kept."""
    from producers.rounds import Asker, ResumeOrder

    with installed(ctx) as installation:
        from producers.commands.follow import follow, look

        order = parse_as(ResumeOrder, {"budget_usd": budget})
        asker = Asker(tenant=tenant, door=Door.CLI, actor="cli")
        new_id = installation.rounds.resume(job_id, order, asker=asker).job.id
        found = follow(installation, new_id, tenant, quiet=as_json) if wait else look(installation, new_id, tenant)
    show_end(found.view, found.waits_for, as_json=as_json)


@app.command()
def revise(
    ctx: typer.Context,
    job_id: JobId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to change of its work, in plain words.")],
    tier: Annotated[str | None, typer.Option(metavar="TIER", help="Tier of this round: spec, patch or agent.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="What this round may cost.")] = None,
    wait: Wait = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Change what a job made; a preview that waits for approval is sent back by it."""
    from producers.rounds import Asker, ReviseOrder

    wanted: dict[str, Any] = {"text": text, "tier": tier, "budget_usd": budget}
    with installed(ctx) as installation:
        from producers.commands.follow import follow, look

        order = parse_as(ReviseOrder, {name: value for name, value in wanted.items() if value is not None})
        asker = Asker(tenant=tenant, door=Door.CLI, actor="cli")
        new_id = installation.rounds.revise(job_id, order, asker=asker).job.id
        found = follow(installation, new_id, tenant, quiet=as_json) if wait else look(installation, new_id, tenant)
    show_end(found.view, found.waits_for, as_json=as_json)
