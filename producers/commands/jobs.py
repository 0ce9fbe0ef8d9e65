"""Commands on jobs, from `submit` to `approve`, `resume` and `revise`."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, cast
from uuid import UUID

import typer
from pointsman_client.models import BatchItem, JobView, RoundView, ScanView, State

from producers.commands.connection import JobId, complete_sites, connected, job_id_of
from producers.commands.context import (
    FAILED,
    GOOD_ENDS,
    OK,
    USAGE,
    AsJson,
    OperatorTenant,
    check_ids,
    cut,
    fail,
    print_facts,
    print_json,
    print_result,
    print_rows,
    read_lines,
    show_comparison,
    wants_json,
    whole_id,
)
from producers.commands.progress import follow

if TYPE_CHECKING:
    from pointsman_client import Client

    from routing.jobs import State as RoutingState

app = typer.Typer(no_args_is_help=True)


@app.command()
def submit(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The edit or question, in plain words.", show_default=False)
    ] = None,
    site: Annotated[
        str | None, typer.Option(metavar="NAME", help="An existing site.", autocompletion=complete_sites)
    ] = None,
    new_site: Annotated[str | None, typer.Option("--new-site", metavar="NAME", help="A site to create.")] = None,
    project: Annotated[str | None, typer.Option(metavar="NAME", help="A code project.")] = None,
    tier: Annotated[str | None, typer.Option(metavar="TIER", help="Starting tier: spec, patch or agent.")] = None,
    pin: Annotated[bool, typer.Option("--pin", help="Never escalate from that tier.")] = False,
    advanced: Annotated[bool, typer.Option("--advanced", help="Request the code agent.")] = False,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="Budget of this job.")] = None,
    priority: Annotated[str | None, typer.Option(metavar="P0..P3", help="Urgency; P2 if not given.")] = None,
    callback_url: Annotated[str | None, typer.Option(metavar="URL", help="Where its webhooks go.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="The same key and body return the same job.")
    ] = None,
    supersede: Annotated[
        str | None, typer.Option(metavar="KEY", help="Supersede older jobs on this target with the same key.")
    ] = None,
    start_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start no earlier: ISO 8601 with an offset, within 30 days.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the job until it ends or waits for approval.")] = False,
    batch: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Submit many jobs: JSON lines as for the HTTP API; prints one line each."),
    ] = None,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Submit a job. Exit 0 if it was accepted (with --wait: if it succeeded or waits for approval), 2 if refused.

    With --batch, exit 1 if any job was refused.
    """
    texts = {"prompt": prompt, "site": site, "new_site": new_site, "project": project, "tier": tier}
    limits = {"budget_usd": budget, "priority": priority, "supersede_key": supersede, "start_at": start_at}
    client_keys = {"callback_url": callback_url, "idempotency_key": idempotency_key}
    options = {**texts, **limits, **client_keys, "pin": pin or None, "advanced_edit": advanced or None}
    body: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if batch is not None:
        _submit_batch(ctx, batch, has_options=bool(body) or wait)
    elif prompt is None:
        fail("submit: give a PROMPT or --batch FILE", code=USAGE)
    else:
        with connected(ctx) as client:
            view = _shown(client, client.submit_job(**body).id, wait=wait)
        exit_with(view)


MOST_IN_A_BATCH = 1_000
"""Of the API."""


def _submit_batch(ctx: typer.Context, path: Path, *, has_options: bool) -> None:
    if has_options:
        fail("submit: --batch FILE takes no other options; each line has its own", code=USAGE)
    bodies = [body for _, body in read_lines(path, command="submit")]
    is_refused = False
    with connected(ctx) as client:
        for start in range(0, len(bodies), MOST_IN_A_BATCH):
            # printed before a later batch can fail
            for one in client.submit_jobs(bodies[start : start + MOST_IN_A_BATCH]).jobs:
                is_refused |= one.job is None
                sys.stdout.write(json.dumps(_outcome(one), ensure_ascii=False) + "\n")
    if is_refused:
        raise typer.Exit(FAILED)


def _outcome(one: BatchItem) -> dict[str, Any]:
    if one.job is not None:
        return one.job.model_dump(mode="json", include={"id", "state", "queue", "is_new"})
    return {"id": None, "refused": one.problem.detail if one.problem is not None else ""}


MOST_ON_A_PAGE = 200
"""Of the API."""


@app.command("jobs")
def list_jobs(
    ctx: typer.Context,
    state: Annotated[
        list[State] | None, typer.Option(metavar="STATE", help="Only jobs in this state; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="How many.")] = 20,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """List jobs, newest first."""
    with connected(ctx) as client:
        views = list(islice(client.iterate_jobs(state=state), limit)) if limit > MOST_ON_A_PAGE else None
        if views is None:
            views = client.list_jobs(state=state, limit=limit).jobs
    rows = ((v.id, v.state, f"${v.spent_usd}", v.site or v.project or "", _start_of(v.prompt)) for v in views)
    print_rows(views, ("job", "state", "cost", "site or project", "prompt"), rows)


def _start_of(prompt: str) -> str:
    return cut(" ".join(prompt.split()), 80)


@app.command()
def job(
    ctx: typer.Context,
    job_id: JobId,
    diff: Annotated[bool, typer.Option("--diff", help="Show what its release changes as unified diffs.")] = False,
    scan: Annotated[bool, typer.Option("--scan", help="Show the scan report of its release.")] = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Show a job: route, cost, result, and what it waits for."""
    with connected(ctx) as client:
        found = job_id_of(client, job_id)
        if diff:
            changes = client.get_job_diff(found)
            print_json(changes) if as_json else show_comparison(changes)
            return
        if scan:
            report = client.get_job_scan(found)
            print_json(report) if as_json else _show_scan(report)
            return
        view = client.get_job(found)
    _show_job(view)


def _show_scan(report: ScanView) -> None:
    gates = ", ".join(f"{name} {'passed' if is_passed else 'FAILED'}" for name, is_passed in report.gates.items())
    print_facts((("scan", "passed" if report.passed else "refused"), ("profile", report.profile), ("gates", gates)))
    show_findings(report)


def show_findings(report: ScanView) -> None:
    """Print what a scan found, and what to do about it."""
    for found in report.findings:
        place = f"{found.file}, line {found.line}: " if found.file else ""
        print_facts((("finding", f"{place}{found.rule}: {found.message}"), ("fix", found.fix)))


@app.command()
def watch(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """Follow a job until it ends or waits for approval. Exit 1 if it failed."""
    with connected(ctx) as client:
        view = follow(client, job_id_of(client, job_id))
    exit_with(view)


@app.command()
def reply(
    ctx: typer.Context,
    job_id: JobId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer; `cancel` dismisses the question.")],
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Answer a job's question with an option's name or number. Exit 1 if the text does not answer it."""
    with connected(ctx) as client:
        taken = client.reply_to_job(job_id_of(client, job_id), text=text)
    if as_json:
        print_json(taken)
    else:
        _print_job(taken.job)
    if not taken.handled:
        fail("this does not answer the question, which stays open")


@app.command()
def cancel(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """Cancel a job: at once if it waits, at its next model call or step if it runs."""
    with connected(ctx) as client:
        view = client.cancel_job(job_id_of(client, job_id))
    print_result(view, "cancelled" if view.is_final else "cancellation requested")


def exit_with(view: JobView) -> NoReturn:
    """Print a job and exit: with failure if it ended without success."""
    _show_job(view)
    raise typer.Exit(FAILED if view.is_final and view.state not in GOOD_ENDS else OK)


def _show_job(view: JobView) -> None:
    print_json(view) if wants_json() else _print_job(view)


def _print_job(view: JobView) -> None:
    calls = "1 model call" if view.bill.calls == 1 else f"{view.bill.calls} model calls"
    rows: list[tuple[str, object]] = [
        ("job", view.id),
        ("state", view.state),
        ("why it ended", "" if view.state in GOOD_ENDS else view.detail or view.reason or ""),
        ("waits for", view.waits_for or ""),
        ("tier", view.tier or "none"),
        ("queue", view.queue),
        ("route", f"{view.rule}: {view.why}" if view.rule else ""),
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
    print_facts(rows)


def _session(view: JobView) -> str:
    if len(view.rounds) == 1:
        return ""
    spent = f"${view.bill.session_spent_usd} over all rounds"
    return f"{view.session}, round {view.round} of {len(view.rounds)}, {spent}"


def _start(view: JobView) -> str:
    if view.parent_id is None:
        return ""
    return f"release {view.start_release_id}" if view.start_release_id else "the live site, as no work was kept"


def _round(one: RoundView) -> str:
    how = f"{one.verb}: " if one.verb else ""
    return f"{one.id}  {one.state}  ${one.spent_usd}  {how}{' '.join(one.prompt.split())}"


def _next_step(view: JobView) -> str:
    """Return the command that probably comes next."""
    from routing.rounds import Verb, can_go_on

    if view.state == State.AWAITING_APPROVAL and view.project:
        return f"pointsman run show {view.id}"
    if view.state == State.AWAITING_APPROVAL:
        costly = ", which starts a paid debate" if view.rejection_starts_debate else ""
        return f"pointsman approve {view.id} (or reject{costly}, or revise it with a TEXT)"
    if view.state == State.CLARIFYING:
        return f"pointsman reply {view.id} TEXT"
    may_resume = can_go_on(Verb.RESUME, cast("RoutingState", view.state), view.reason)
    if may_resume and view.continued_as is None and view.mode is not None:
        return f"pointsman resume {view.id} --budget USD"
    if view.state in (State.REJECTED, State.EXPIRED) and view.continued_as is None and view.release_id is not None:
        return f"pointsman revise {view.id} TEXT"
    if view.continued_as is not None:
        return f"pointsman job {view.continued_as}"
    return "" if view.is_final else f"pointsman watch {view.id}"


@app.command()
def approve(
    ctx: typer.Context,
    job_id: JobId,
    release: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Approve only if the preview still shows this release.", callback=check_ids),
    ] = None,
    undo_seconds: Annotated[
        int, typer.Option(min=0, max=60, metavar="SECONDS", help="Let the publish wait so long, for `pointsman undo`.")
    ] = 0,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Approve a job's preview and publish it."""
    with connected(ctx) as client:
        found = job_id_of(client, job_id)
        seen = None if release is None else _shown_release(client, found, release)
        view = client.approve_job(found, release_id=seen, undo_seconds=undo_seconds)
    when = f" in {undo_seconds} s, unless you `pointsman undo {view.id}`" if undo_seconds else ""
    print_result(view, f"approved; publishing{when}")


def _shown_release(client: Client, job_id: UUID, text: str) -> UUID:
    shown = client.get_job(job_id).release_id
    return whole_id(text, lambda _: [shown] if shown else [], kind="release", listed_by=f"pointsman job {job_id}")


@app.command()
def undo(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: OperatorTenant = None) -> None:
    """Undo an approval whose publish still waits; the preview awaits a decision again."""
    with connected(ctx) as client:
        view = client.undo_job_approval(job_id_of(client, job_id))
    print_result(view, f"undone; the job is {view.state.replace('_', ' ')}")


@app.command()
def reject(
    ctx: typer.Context,
    job_id: JobId,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the job's owner.")],
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Reject a job's preview; the live site stays as it is."""
    with connected(ctx) as client:
        view = client.reject_job(job_id_of(client, job_id), reason)
    print_result(view, "rejected")


Wait = Annotated[bool, typer.Option("--wait", help="Follow the new job until it ends or waits for approval.")]


@app.command()
def resume(
    ctx: typer.Context,
    job_id: JobId,
    budget: Annotated[float, typer.Option(metavar="USD", help="Budget on top of what has been spent.")],
    wait: Wait = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Resume a job that failed or hit a limit: the same request, from the work it kept."""
    with connected(ctx) as client:
        new = client.resume_job(job_id_of(client, job_id), budget)
        view = _shown(client, new.id, wait=wait)
    exit_with(view)


@app.command()
def revise(
    ctx: typer.Context,
    job_id: JobId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to change, in plain words.")],
    tier: Annotated[str | None, typer.Option(metavar="TIER", help="Tier of this round: spec, patch or agent.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="Budget of this round.")] = None,
    wait: Wait = False,
    as_json: AsJson = False,
    tenant: OperatorTenant = None,
) -> None:
    """Request changes to a job's result; this rejects a preview that waits for approval."""
    options: dict[str, Any] = {"tier": tier, "budget_usd": budget}
    with connected(ctx) as client:
        new = client.revise_job(job_id_of(client, job_id), text, **options)
        view = _shown(client, new.id, wait=wait)
    exit_with(view)


def _shown(client: Client, job_id: UUID, *, wait: bool) -> JobView:
    return follow(client, job_id) if wait else client.get_job(job_id)
