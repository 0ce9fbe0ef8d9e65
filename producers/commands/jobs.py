"""`submit`, `jobs`, `job`, `watch`, `approve`, `reject`, `cancel`: a job from asking to its end."""

from __future__ import annotations

import time
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.table import Table

from monitoring.ledger import jobs as ledger_jobs
from monitoring.ledger import releases as ledger_releases
from monitoring.ledger.events import events_after
from producers.bootstrap import Installation
from producers.commands.context import (
    FAILED,
    OK,
    AsJson,
    Tenant,
    clear_errors,
    context_of,
    err,
    out,
    print_json,
)
from producers.jobs import EventView, JobView, describe, describe_events, summarise
from routing.jobs import Door, State

app = typer.Typer(no_args_is_help=True)

GOOD_ENDS = frozenset({State.ANSWERED, State.PUBLISHED})
POLL_SECONDS = 0.25

JobId = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.")]


@app.command()
def submit(
    ctx: typer.Context,
    prompt: Annotated[str, typer.Argument(help="The edit or question in plain words.")],
    site: Annotated[str | None, typer.Option(help="An existing site.")] = None,
    new_site: Annotated[str | None, typer.Option("--new-site", help="Name of a site to make.")] = None,
    project: Annotated[str | None, typer.Option(help="A code project.")] = None,
    tier: Annotated[str | None, typer.Option(help="Starting tier: spec, patch or agent.")] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Stay on that tier.")] = False,
    advanced: Annotated[bool, typer.Option("--advanced", help="Ask for the code agent.")] = False,
    budget: Annotated[float | None, typer.Option(help="A cap of your own, in USD.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until it ends or waits for approval.")] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Submit a job."""
    wanted: dict[str, Any] = {
        "prompt": prompt, "site": site, "new_site": new_site, "project": project, "tier": tier, "budget_usd": budget,
    }  # fmt: skip
    body = {name: value for name, value in wanted.items() if value is not None}
    body |= {"pin": True} if pin else {}
    body |= {"advanced_edit": True} if advanced else {}
    installation = context_of(ctx).installation()
    with clear_errors():
        accepted = installation.submitter.submit(body, tenant=tenant, door=Door.CLI)
        view = _follow(installation, accepted.job.id, tenant, quiet=as_json) if wait else None
        if view is None:
            view = _view(installation, accepted.job.id, tenant)
    print_json(view) if as_json else _print_job(view)
    raise typer.Exit(FAILED if view.is_final and view.state not in GOOD_ENDS else OK)


@app.command("jobs")
def list_jobs(
    ctx: typer.Context,
    state: Annotated[list[State] | None, typer.Option(help="Only jobs in this state; repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List jobs, newest first."""
    installation = context_of(ctx).installation()
    with clear_errors(), installation.ledger.begin() as session:
        found = summarise(session, ledger_jobs.list_jobs(session, tenant=tenant, states=state or (), limit=limit))
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    table = Table("job", "state", "reason", "queue", "site", "cost", "prompt", box=None, pad_edge=False)
    for item in found:
        table.add_row(
            str(item.id), item.state, item.reason or "", item.queue, item.site or "", f"${item.spent_usd}",
            " ".join(item.prompt.split())[:60],
        )  # fmt: skip
    out.print(table)


@app.command()
def job(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Show a job: decision, attempts, bill, result."""
    with clear_errors():
        view = _view(context_of(ctx).installation(), job_id, tenant)
    print_json(view) if as_json else _print_job(view)


@app.command()
def watch(ctx: typer.Context, job_id: JobId, tenant: Tenant = "demo") -> None:
    """Follow a job until it ends or waits for approval."""
    with clear_errors():
        view = _follow(context_of(ctx).installation(), job_id, tenant, quiet=False)
    _print_job(view)
    raise typer.Exit(FAILED if view.is_final and view.state not in GOOD_ENDS else OK)


@app.command()
def approve(ctx: typer.Context, job_id: JobId, tenant: Tenant = "demo") -> None:
    """Approve a job's preview; it is published."""
    installation = context_of(ctx).installation()
    with clear_errors(), installation.ledger.begin() as session:
        ledger_releases.approve(session, job_id, actor="cli", tenant=tenant)
    out.print("approved; it is being published")


@app.command()
def reject(
    ctx: typer.Context,
    job_id: JobId,
    reason: Annotated[str, typer.Option(help="Why, for the job's owner.")] = "",
    tenant: Tenant = "demo",
) -> None:
    """Reject a job's preview; the live site stays as it is."""
    installation = context_of(ctx).installation()
    with clear_errors(), installation.ledger.begin() as session:
        ledger_releases.reject(session, job_id, actor="cli", reason=reason, tenant=tenant)
    out.print("rejected")


@app.command()
def cancel(ctx: typer.Context, job_id: JobId, tenant: Tenant = "demo") -> None:
    """Cancel a job: at once if it waits, at its next model call or step if it runs."""
    installation = context_of(ctx).installation()
    with clear_errors(), installation.ledger.begin() as session:
        found = ledger_jobs.lock_job(session, job_id, tenant=tenant)
        ledger_jobs.request_cancel(session, found, actor="cli")
    out.print("cancelled" if found.ended_at else "cancel requested")


def _view(installation: Installation, job_id: UUID, tenant: str) -> JobView:
    with installation.ledger.begin() as session:
        return describe(session, ledger_jobs.find_job(session, job_id, tenant=tenant), links=installation.previews)


def _follow(installation: Installation, job_id: UUID, tenant: str, *, quiet: bool) -> JobView:
    seen = 0
    while True:
        view = _view(installation, job_id, tenant)
        with installation.ledger.begin() as session:
            events = describe_events(events_after(session, job_id, after_id=seen))
        for event in events:
            seen = event.id
            if not quiet and (line := line_of(event)):
                err.print(f"  {event.at:%H:%M:%S}  {line}", markup=False)
        if view.is_final or view.state == State.AWAITING_APPROVAL:
            return view
        time.sleep(POLL_SECONDS)


def line_of(event: EventView) -> str | None:
    """Say an event in a line for people, or None for one that only programs need."""
    data = event.data
    match event.kind:
        case "waiting":
            return f"waits on queue {data['queue']}"
        case "started":
            return f"attempt {data['attempt']} on queue {data['queue']}"
        case "step":
            return f"{data['step']} ({data['seconds']:.1f} s)"
        case "progress":
            return str(data.get("text", ""))
        case "call":
            tokens = f"{data['input_tokens']} in, {data['output_tokens']} out"
            return f"{data['model']}: {tokens}, ${data['cost_nanousd'] / 1e9:.6f} ({data['finish']})"
        case "escalated":
            return f"goes to tier {data['target']}: {data['detail']}"
        case "state":
            return f"{data['origin']} -> {data['target']}"
        case _:
            return None


def _print_job(view: JobView) -> None:
    rows: list[tuple[str, object]] = [
        ("job", view.id), ("state", view.state), ("why it ended", view.detail or view.reason or ""),
        ("tier", view.tier or "none"), ("queue", view.queue), ("route", f"{view.rule}: {view.why}"),
        ("site", view.site or ""), ("seconds", f"{view.seconds:.1f}"),
        ("cost", f"${view.bill.spent_usd} of ${view.bill.cap_usd} in {view.bill.calls} model calls"),
        ("change", view.result.get("summary", "")), ("answer", view.answer or ""),
        ("preview", view.preview_url or ""),
    ]  # fmt: skip
    for name, value in rows:
        if str(value):
            out.print(f"{name:>13}  {value}", markup=False)
