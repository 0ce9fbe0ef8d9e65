"""`submit`, `jobs`, `job`, `watch`, `reply`, `cancel`: a job from asking to its end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from uuid import UUID

import typer

from ledger.errors import MonitoringError
from monitoring import traces
from producers.commands.context import (
    FAILED,
    OK,
    USAGE,
    AsJson,
    Tenant,
    context_of,
    fail,
    installed,
    out,
    print_json,
    print_table,
    read_lines,
)
from producers.commands.route import harmless
from routing.errors import RoutingError
from routing.jobs import RESUMABLE, Door, State, parse_as

if TYPE_CHECKING:
    from sqlmodel import Session

    from producers.use_cases.jobs import JobView, RoundView
    from producers.use_cases.review import Comparison


# Completion at the shell of what only the ledger knows: names of sites and ids of jobs.
#
# A completion never says why it has nothing to offer: what cannot be read completes to nothing.

ItemT = TypeVar("ItemT")
_MOST = 50


def complete_sites(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tenant's sites that begin so."""
    from sqlmodel import col, select

    from ledger.tables import Site

    def read(session: Session) -> list[str]:
        query = select(Site.name).where(
            Site.tenant == _tenant(ctx), col(Site.name).startswith(incomplete, autoescape=True)
        )
        return list(session.exec(query.order_by(Site.name).limit(_MOST)))

    return _read(ctx, read)


def complete_jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the tenant's newest jobs whose ids begin so, each with its state and prompt."""
    from ledger.jobs import list_jobs

    def read(session: Session) -> list[tuple[str, str]]:
        jobs = list_jobs(session, tenant=_tenant(ctx), limit=_MOST)
        shown = ((str(job.id), f"{job.state}: {' '.join(job.prompt.split())[:60]}") for job in jobs)
        return [item for item in shown if item[0].startswith(incomplete)]

    return _read(ctx, read)


def _tenant(ctx: typer.Context) -> str:
    return str(ctx.params.get("tenant") or "demo")


def _read(ctx: typer.Context, read: Callable[[Session], list[ItemT]]) -> list[ItemT]:
    from sqlalchemy.exc import SQLAlchemyError

    try:
        installation = context_of(ctx).installation()
        try:
            with installation.ledger.begin() as session:
                return read(session)
        finally:
            installation.close()
    except (MonitoringError, RoutingError, SQLAlchemyError):
        return []


app = typer.Typer(no_args_is_help=True)

GOOD_ENDS = frozenset({State.ANSWERED, State.PUBLISHED})

JobId = Annotated[UUID, typer.Argument(metavar="ID", help="The job's id.", autocompletion=complete_jobs)]


@app.command()
def submit(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The edit or question in plain words.", show_default=False)
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="An existing site.", autocompletion=complete_sites)
    ] = None,
    new_site: Annotated[str | None, typer.Option("--new-site", metavar="NAME", help="Name of a site to make.")] = None,
    project: Annotated[str | None, typer.Option(metavar="NAME", help="A code project.")] = None,
    tier: Annotated[str | None, typer.Option(metavar="TIER", help="Starting tier: spec, patch or agent.")] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Stay on that tier.")] = False,
    advanced: Annotated[bool, typer.Option("--advanced", help="Ask for the code agent.")] = False,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="A cap of your own, in USD.")] = None,
    supersede: Annotated[
        str | None, typer.Option(metavar="KEY", help="Take the place of older jobs about this target with this key.")
    ] = None,
    start_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before then: ISO 8601 with an offset, within 30 days.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it until it ends or waits for approval.")] = False,
    batch: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Instead of PROMPT: JSON lines, each a job as for HTTP; prints a line each."),
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Submit a job. Exit 0 if it was taken (with --wait: if it ended well or waits for approval), 2 if refused.

    With --batch, exit 1 if any of them was refused.
    """
    wanted: dict[str, Any] = {
        "prompt": prompt,
        "site": site,
        "new_site": new_site,
        "project": project,
        "tier": tier,
        "budget_usd": budget,
        "supersede_key": supersede,
        "start_at": start_at,
        "pin": pin or None,
        "advanced_edit": advanced or None,
    }
    body = {name: value for name, value in wanted.items() if value is not None}
    if batch is not None:
        _submit_batch(ctx, batch, tenant, has_more=bool(body) or wait)
        return
    if prompt is None:
        fail("submit: give a PROMPT or --batch FILE", code=USAGE)
    with installed(ctx) as installation:
        from producers.commands.follow import follow, look

        traces.start(installation.settings.tracing, program="cli")
        job_id = installation.submitter.submit(body, tenant=tenant, door=Door.CLI, actor="cli").job.id
        found = follow(installation, job_id, tenant, quiet=as_json) if wait else look(installation, job_id, tenant)
    show_end(found.view, found.waits_for, as_json=as_json)


def _submit_batch(ctx: typer.Context, path: Path, tenant: str, *, has_more: bool) -> None:
    if has_more:
        fail("submit: with --batch FILE each line has its own options, and nothing is followed", code=USAGE)
    bodies = [body for _, body in read_lines(path, command="submit")]
    with installed(ctx) as installation:
        from producers.intake.submit import Submitted

        traces.start(installation.settings.tracing, program="cli")
        told = installation.submitter.submit_many(bodies, tenant=tenant, door=Door.CLI, actor="cli")
    for one in told:
        if isinstance(one, Submitted):
            line = {"id": str(one.job.id), "state": one.job.state, "queue": one.job.queue, "is_new": one.is_new}
        else:
            line = {"id": None, "refused": str(one)}
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    if not all(isinstance(one, Submitted) for one in told):
        raise typer.Exit(FAILED)


@app.command("jobs")
def list_jobs(
    ctx: typer.Context,
    state: Annotated[
        list[State] | None, typer.Option(metavar="STATE", help="Only jobs in this state; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many.")] = 20,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """List jobs, newest first."""
    with installed(ctx) as installation:
        from ledger import jobs as ledger_jobs
        from producers.use_cases.jobs import summarise

        with installation.ledger.begin() as session:
            found = summarise(session, ledger_jobs.list_jobs(session, tenant=tenant, states=state or (), limit=limit))
    if as_json:
        print_json([item.model_dump(mode="json") for item in found])
        return
    print_table(
        ("job", "state", "cost", "site or project", "prompt"),
        (
            (
                str(item.id),
                item.state,
                f"${item.spent_usd}",
                item.site or item.project or "",
                " ".join(item.prompt.split()),
            )
            for item in found
        ),
    )


@app.command()
def job(
    ctx: typer.Context,
    job_id: JobId,
    diff: Annotated[bool, typer.Option("--diff", help="Show what its release changes, as unified diffs.")] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Show a job: decision, bill, result, and what it waits for."""
    with installed(ctx) as installation:
        from producers.commands.follow import look

        if diff:
            pass
            from producers.use_cases.review import changes_of_job

            changes = changes_of_job(installation.ledger, installation.den, job_id, tenant=tenant)
            print_json(changes) if as_json else show_comparison(changes)
            return

        found = look(installation, job_id, tenant)
    print_json(found.view) if as_json else _print_job(found.view, found.waits_for)


@app.command()
def watch(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Follow a job until it ends or waits for approval. Exit 1 if it did not end well."""
    with installed(ctx) as installation:
        from producers.commands.follow import follow

        found = follow(installation, job_id, tenant, quiet=as_json)
    show_end(found.view, found.waits_for, as_json=as_json)


@app.command()
def reply(
    ctx: typer.Context,
    job_id: JobId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer in words; `cancel` dismisses the question.")],
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Answer a job's question, by an option's name or place. Exit 1 if the text is no answer to it."""
    with installed(ctx) as installation:
        from producers.commands.follow import look

        taken = installation.clarifier.reply(job_id, text, tenant=tenant, actor="cli")
        found = look(installation, job_id, tenant)
    if as_json:
        print_json({**taken._asdict(), "job": found.view.model_dump(mode="json")})
    else:
        _print_job(found.view, found.waits_for)
    if not taken.handled:
        fail("this is no answer to the question, which stays open")


@app.command()
def cancel(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Cancel a job: at once if it waits, at its next model call or step if it runs."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger.job_control import request_cancel
        from ledger.jobs import lock_job
        from producers.commands.follow import view_in

        found = lock_job(session, job_id, tenant=tenant)
        request_cancel(session, found, actor="cli")
        view = view_in(session, job_id, tenant, links=installation.previews)
    print_json(view) if as_json else out.print("cancelled" if view.is_final else "cancel requested")


def show_end(view: JobView, waits_for: str, *, as_json: bool) -> None:
    """Print a job and end the command: with failure if the job ended, and not well."""
    print_json(view) if as_json else _print_job(view, waits_for)
    raise typer.Exit(FAILED if view.is_final and view.state not in GOOD_ENDS else OK)


def _print_job(view: JobView, waits_for: str) -> None:
    calls = "1 model call" if view.bill.calls == 1 else f"{view.bill.calls} model calls"
    rows: list[tuple[str, object]] = [
        ("job", view.id),
        ("state", view.state),
        ("why it ended", _why_it_ended(view)),
        ("waits for", waits_for),
        ("tier", view.tier or "none"),
        ("queue", view.queue),
        ("route", f"{view.rule}: {view.why}"),
        ("site", view.site or ""),
        ("seconds", f"{view.seconds:.1f}"),
        ("cost", f"${view.bill.spent_usd} of ${view.bill.cap_usd} in {calls}"),
        ("session", _session(view)),
        ("starts from", _start(view)),
        ("change", view.result.get("summary", "")),
        ("answer", view.answer or ""),
        ("preview", view.preview_url or ""),
        ("next", _next_step(view)),
    ]
    if view.clarification is not None:
        rows.append(("question", view.clarification.question))
        rows += [(str(place), option.label) for place, option in enumerate(view.clarification.options, start=1)]
    rows += [(f"round {one.round}", _round(one)) for one in view.rounds if len(view.rounds) > 1]
    for name, value in rows:
        if str(value):
            out.print(f"{name:>13}  {value}", markup=False)


def _session(view: JobView) -> str:
    if len(view.rounds) == 1:
        return ""
    spent = f"${view.bill.session_spent_usd} over all rounds"
    return f"{view.session}, round {view.round} of {len(view.rounds)}, {spent}"


def _start(view: JobView) -> str:
    if view.parent_id is None:
        return ""
    return f"release {view.start_release_id}" if view.start_release_id else "the site as it is: nothing was kept"


def _round(one: RoundView) -> str:
    how = f"{one.verb}: " if one.verb else ""
    return f"{one.id}  {one.state}  ${one.spent_usd}  {how}{' '.join(one.prompt.split())}"


def _why_it_ended(view: JobView) -> str:
    return "" if view.state in GOOD_ENDS else view.detail or view.reason or ""


def _next_step(view: JobView) -> str:
    """Name the command that a person wants now."""
    if view.state == State.AWAITING_APPROVAL and view.project:
        return f"pointsman run show {view.id}"
    if view.state == State.AWAITING_APPROVAL:
        return f"pointsman approve {view.id} (or reject, or revise it with a TEXT)"
    if view.state == State.CLARIFYING:
        return f"pointsman reply {view.id} TEXT"
    if view.state in RESUMABLE and view.continued_as is None and view.mode is not None:
        return f"pointsman resume {view.id} --budget USD"
    if view.state in (State.REJECTED, State.EXPIRED) and view.continued_as is None and view.release_id is not None:
        return f"pointsman revise {view.id} TEXT"
    if view.continued_as is not None:
        return f"pointsman job {view.continued_as}"
    return "" if view.is_final else f"pointsman watch {view.id}"


# `approve` and `reject`: a person's word on a preview.


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
        from ledger import job_control as approvals
        from producers.commands.follow import view_in

        approvals.approve(
            session, job_id, actor="cli", policy=installation.policy, tenant=tenant, seen=approvals.Seen(release)
        )
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
        from ledger import job_control as approvals
        from producers.commands.follow import view_in

        approvals.reject(session, job_id, actor="cli", reason=reason, tenant=tenant)
        view = view_in(session, job_id, tenant, links=installation.previews)
    print_json(view) if as_json else out.print("rejected")


# `resume` and `revise`: go on from a job that is over, in a new one on the same bill.

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
    from producers.use_cases.rounds import Asker, ResumeOrder

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
    from producers.use_cases.rounds import Asker, ReviseOrder

    wanted: dict[str, Any] = {"text": text, "tier": tier, "budget_usd": budget}
    with installed(ctx) as installation:
        from producers.commands.follow import follow, look

        order = parse_as(ReviseOrder, {name: value for name, value in wanted.items() if value is not None})
        asker = Asker(tenant=tenant, door=Door.CLI, actor="cli")
        new_id = installation.rounds.revise(job_id, order, asker=asker).job.id
        found = follow(installation, new_id, tenant, quiet=as_json) if wait else look(installation, new_id, tenant)
    show_end(found.view, found.waits_for, as_json=as_json)


# Changes between releases as people read them; nothing in a file makes a terminal obey.


def show_comparison(found: Comparison) -> None:
    """Print which files differ, with their unified diffs."""
    out.print(f"from {found.before or 'nothing'} to {found.after}")
    out.print(f"{found.added} added, {found.removed} removed, {found.changed} changed")
    for change in found.changes:
        sizes = " -> ".join(str(size) for size in (change.before_bytes, change.after_bytes) if size is not None)
        what = "" if change.is_served else ", a source"
        out.print(f"\n{change.status} {harmless(change.path)} ({sizes} bytes{what})", markup=False)
        if change.diff:
            out.print("\n".join(harmless(line) for line in change.diff.rstrip("\n").split("\n")), markup=False)
