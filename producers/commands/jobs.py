"""Commands on jobs, from `submit` to `approve`, `resume` and `revise`, and how a job is followed at a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn
from uuid import UUID

import typer
from rich.console import Console
from rich.text import Text

from producers.commands.context import (
    FAILED,
    GOOD_ENDS,
    INTERRUPTED,
    OK,
    USAGE,
    AsJson,
    JobId,
    Tenant,
    complete_sites,
    err,
    fail,
    harmless,
    installed,
    print_facts,
    print_json,
    print_result,
    print_rows,
    read_lines,
    requester_of,
    show_comparison,
)
from routing.jobs import Source, State, parse_as
from routing.policy.prices import format_usd
from routing.rounds import Verb, can_go_on

if TYPE_CHECKING:
    from sqlmodel import Session

    from ledger.tables import Job
    from producers.bootstrap import Installation
    from producers.use_cases.jobs import EventView, JobView, RoundView
    from producers.use_cases.sites import ScanView


app = typer.Typer(no_args_is_help=True)


@app.command()
def submit(
    ctx: typer.Context,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The edit or question, in plain words.", show_default=False),
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
    tenant: Tenant = "demo",
) -> None:
    """Submit a job. Exit 0 if it was accepted (with --wait: if it succeeded or waits for approval), 2 if refused.

    With --batch, exit 1 if any job was refused.
    """
    texts = {"prompt": prompt, "site": site, "new_site": new_site, "project": project, "tier": tier}
    limits = {"budget_usd": budget, "supersede_key": supersede, "start_at": start_at}
    options = {**texts, **limits, "pin": pin or None, "advanced_edit": advanced or None}
    body = {name: value for name, value in options.items() if value is not None}
    if batch is not None:
        _submit_batch(ctx, batch, tenant, has_options=bool(body) or wait)
    elif prompt is None:
        fail("submit: give a PROMPT or --batch FILE", code=USAGE)
    else:
        _submit_one(ctx, body, tenant, wait=wait, as_json=as_json)


def _submit_one(ctx: typer.Context, body: Mapping[str, Any], tenant: str, *, wait: bool, as_json: bool) -> None:
    with installed(ctx) as installation:
        from monitoring import traces

        traces.start(installation.settings.tracing, program="cli")
        job_id = installation.submitter.submit(body, tenant=tenant, source=Source.CLI, actor="cli").job.id
        status = _status(installation, job_id, tenant, wait=wait, quiet=as_json)
    exit_with(status, as_json=as_json)


def _submit_batch(ctx: typer.Context, path: Path, tenant: str, *, has_options: bool) -> None:
    if has_options:
        fail("submit: --batch FILE takes no other options; each line has its own", code=USAGE)
    bodies = [body for _, body in read_lines(path, command="submit")]
    with installed(ctx) as installation:
        from monitoring import traces
        from producers.intake.submit import Submitted

        traces.start(installation.settings.tracing, program="cli")
        outcomes = installation.submitter.submit_many(bodies, tenant=tenant, source=Source.CLI, actor="cli")
    for one in outcomes:
        if isinstance(one, Submitted):
            line = {"id": str(one.job.id), "state": one.job.state, "queue": one.job.queue, "is_new": one.is_new}
        else:
            line = {"id": None, "refused": str(one)}
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
    if not all(isinstance(one, Submitted) for one in outcomes):
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
        from producers.use_cases.job_search import JobFilter
        from producers.use_cases.jobs import page_of_jobs

        with installation.ledger.begin() as session:
            views = page_of_jobs(session, JobFilter(tenant=tenant, states=state or ()), limit=limit).jobs
    rows = ((v.id, v.state, f"${v.spent_usd}", v.site or v.project or "", " ".join(v.prompt.split())) for v in views)
    print_rows(views, ("job", "state", "cost", "site or project", "prompt"), rows, as_json=as_json)


@app.command()
def job(
    ctx: typer.Context,
    job_id: JobId,
    diff: Annotated[bool, typer.Option("--diff", help="Show what its release changes as unified diffs.")] = False,
    scan: Annotated[bool, typer.Option("--scan", help="Show the scan report of its release.")] = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Show a job: route, cost, result, and what it waits for."""
    with installed(ctx) as installation:
        if diff:
            from producers.use_cases.sites import changes_of_job

            changes = changes_of_job(installation.ledger, installation.content_store, job_id, tenant=tenant)
            print_json(changes) if as_json else show_comparison(changes)
            return
        if scan:
            report = _read_scan(installation, job_id, tenant)
            print_json(report) if as_json else _show_scan(report)
            return
        status = read_status(installation, job_id, tenant)
    _show_job(status, as_json=as_json)


def _read_scan(installation: Installation, job_id: UUID, tenant: str) -> ScanView:
    from ledger.jobs import find_job
    from producers.use_cases.sites import scan_of_job

    with installation.ledger.begin() as session:
        return scan_of_job(session, find_job(session, job_id, tenant=tenant))


def _show_scan(report: ScanView) -> None:
    gates = ", ".join(f"{name} {'passed' if is_passed else 'FAILED'}" for name, is_passed in report.gates.items())
    print_facts((("scan", "passed" if report.passed else "refused"), ("profile", report.profile), ("gates", gates)))
    for found in report.findings:
        place = f"{found.file}, line {found.line}: " if found.file else ""
        print_facts((("finding", harmless(f"{place}{found.message}")), ("fix", found.fix)))


@app.command()
def watch(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Follow a job until it ends or waits for approval. Exit 1 if it failed."""
    with installed(ctx) as installation:
        status = follow(installation, job_id, tenant, quiet=as_json)
    exit_with(status, as_json=as_json)


@app.command()
def reply(
    ctx: typer.Context,
    job_id: JobId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The answer; `cancel` dismisses the question.")],
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Answer a job's question with an option's name or number. Exit 1 if the text does not answer it."""
    with installed(ctx) as installation:
        taken = installation.use_cases.clarifier.reply(job_id, text, tenant=tenant, actor="cli")
        status = read_status(installation, job_id, tenant)
    if as_json:
        print_json({**taken._asdict(), "job": status.view})
    else:
        _show_job(status, as_json=False)
    if not taken.handled:
        fail("this does not answer the question, which stays open")


@app.command()
def cancel(ctx: typer.Context, job_id: JobId, as_json: AsJson = False, tenant: Tenant = "demo") -> None:
    """Cancel a job: at once if it waits, at its next model call or step if it runs."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger.job_control import request_cancel
        from ledger.jobs import lock_job

        request_cancel(session, lock_job(session, job_id, tenant=tenant), actor="cli")
        view = _view_in(session, job_id, tenant, installation)
    print_result(view, "cancelled" if view.is_final else "cancellation requested", as_json=as_json)


def exit_with(status: JobStatus, *, as_json: bool) -> NoReturn:
    """Print a job and exit: with failure if it ended without success."""
    _show_job(status, as_json=as_json)
    raise typer.Exit(FAILED if status.view.is_final and status.view.state not in GOOD_ENDS else OK)


def _show_job(status: JobStatus, *, as_json: bool) -> None:
    view = status.view
    if as_json:
        print_json(view)
        return
    calls = "1 model call" if view.bill.calls == 1 else f"{view.bill.calls} model calls"
    rows: list[tuple[str, object]] = [
        ("job", view.id),
        ("state", view.state),
        ("why it ended", "" if view.state in GOOD_ENDS else view.detail or view.reason or ""),
        ("waits for", status.waits_for),
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
    if view.state == State.AWAITING_APPROVAL and view.project:
        return f"pointsman run show {view.id}"
    if view.state == State.AWAITING_APPROVAL:
        costly = ", which starts a paid debate" if view.rejection_starts_debate else ""
        return f"pointsman approve {view.id} (or reject{costly}, or revise it with a TEXT)"
    if view.state == State.CLARIFYING:
        return f"pointsman reply {view.id} TEXT"
    if can_go_on(Verb.RESUME, view.state, view.reason) and view.continued_as is None and view.mode is not None:
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
        UUID | None, typer.Option(metavar="ID", help="Approve only if the preview still shows this release.")
    ] = None,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Approve a job's preview and publish it."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from ledger import job_control

        seen = job_control.Seen(release)
        job_control.approve(session, job_id, actor="cli", policy=installation.policy, tenant=tenant, seen=seen)
        view = _view_in(session, job_id, tenant, installation)
    print_result(view, "approved; publishing", as_json=as_json)


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
        from ledger import job_control

        job_control.reject(session, job_id, actor="cli", reason=reason, tenant=tenant)
        view = _view_in(session, job_id, tenant, installation)
    print_result(view, "rejected", as_json=as_json)


Wait = Annotated[bool, typer.Option("--wait", help="Follow the new job until it ends or waits for approval.")]


@app.command()
def resume(
    ctx: typer.Context,
    job_id: JobId,
    budget: Annotated[float, typer.Option(metavar="USD", help="Budget on top of what has been spent.")],
    wait: Wait = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Resume a job that failed or hit a limit: the same request, from the work it kept."""
    from producers.use_cases.rounds import ResumeOrder

    with installed(ctx) as installation:
        order = parse_as(ResumeOrder, {"budget_usd": budget})
        new = installation.use_cases.rounds.resume(job_id, order, requester=requester_of(tenant))
        status = _status(installation, new.job.id, tenant, wait=wait, quiet=as_json)
    exit_with(status, as_json=as_json)


@app.command()
def revise(
    ctx: typer.Context,
    job_id: JobId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to change, in plain words.")],
    tier: Annotated[str | None, typer.Option(metavar="TIER", help="Tier of this round: spec, patch or agent.")] = None,
    budget: Annotated[float | None, typer.Option(metavar="USD", help="Budget of this round.")] = None,
    wait: Wait = False,
    as_json: AsJson = False,
    tenant: Tenant = "demo",
) -> None:
    """Request changes to a job's result; this rejects a preview that waits for approval."""
    from producers.use_cases.rounds import ReviseOrder

    options: dict[str, Any] = {"text": text, "tier": tier, "budget_usd": budget}
    with installed(ctx) as installation:
        order = parse_as(ReviseOrder, {name: value for name, value in options.items() if value is not None})
        new = installation.use_cases.rounds.revise(job_id, order, requester=requester_of(tenant))
        status = _status(installation, new.job.id, tenant, wait=wait, quiet=as_json)
    exit_with(status, as_json=as_json)


WAITS_FOR_OWNER = frozenset({State.AWAITING_APPROVAL, State.CLARIFYING})
POLL_SECONDS = 0.25


class JobStatus(NamedTuple):
    """A job and what blocks it; empty if it only waits for its turn."""

    view: JobView
    waits_for: str


def read_status(installation: Installation, job_id: UUID, tenant: str) -> JobStatus:
    """Return a job's current status.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    from ledger.jobs import find_job
    from producers.use_cases.jobs import describe

    with installation.ledger.begin() as session:
        job = find_job(session, job_id, tenant=tenant)
        return JobStatus(describe(session, job, links=installation.previews), _blocker(session, job))


def _status(installation: Installation, job_id: UUID, tenant: str, *, wait: bool, quiet: bool) -> JobStatus:
    if wait:
        return follow(installation, job_id, tenant, quiet=quiet)
    return read_status(installation, job_id, tenant)


def _view_in(session: Session, job_id: UUID, tenant: str, installation: Installation) -> JobView:
    """Return a job as the caller's transaction sees it."""
    from ledger.jobs import find_job
    from producers.use_cases.jobs import describe

    return describe(session, find_job(session, job_id, tenant=tenant), links=installation.previews)


def follow(installation: Installation, job_id: UUID, tenant: str, *, quiet: bool) -> JobStatus:
    """Print each event on stderr until the job ends or waits for its owner. Ctrl-C stops following, not the job."""
    try:
        with show_progress(err, is_shown=not quiet and err.is_terminal) as update:
            return _follow(installation, job_id, tenant, quiet=quiet, update=update)
    except KeyboardInterrupt:
        err.print(f"the job continues; `pointsman job {job_id}` shows it, `pointsman cancel {job_id}` cancels it")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def show_progress(console: Console, *, is_shown: bool) -> Iterator[Callable[[JobView], None]]:
    """Show the job's state, time and cost below the events."""
    if not is_shown:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda view: status.update(_status_line(view))


def _status_line(view: JobView) -> Text:
    tier = f" on {view.queue}" if view.state == State.RUNNING else ""
    return Text(f"{view.state}{tier}, {view.seconds:.0f} s, ${view.bill.spent_usd} of ${view.bill.cap_usd}")


def _follow(
    installation: Installation, job_id: UUID, tenant: str, *, quiet: bool, update: Callable[[JobView], None]
) -> JobStatus:
    from ledger.events import events_after
    from producers.use_cases.jobs import describe_events

    last_id, shown_blocker = 0, ""
    while True:
        status = read_status(installation, job_id, tenant)
        update(status.view)
        with installation.ledger.begin() as session:
            page = events_after(session, job_id, after_id=last_id)
            events = describe_events(session, page.events)
        for event in events:
            last_id = event.id
            if not quiet and (line := format_event(event)):
                err.print(f"  {event.at:%H:%M:%S}  {line}", markup=False)
        if status.waits_for not in ("", shown_blocker) and not quiet:
            shown_blocker = status.waits_for
            err.print(f"            waits for {shown_blocker}", markup=False)
        if page.is_all and (status.view.is_final or status.view.state in WAITS_FOR_OWNER):
            return status
        time.sleep(POLL_SECONDS)


def _blocker(session: Session, job: Job) -> str:
    """Return what blocks a queued job: a paused queue, or another job on its site."""
    from ledger.record_tables import QueueControl
    from ledger.tables import Job, Site

    if job.state != State.QUEUED:
        return ""
    control = session.get(QueueControl, job.queue)
    if control is not None and control.paused_at is not None:
        return f"queue {job.queue}, which is paused: pointsman queue resume {job.queue}"
    site = session.get(Site, job.site_id) if job.site_id is not None else None
    if site is None or site.lock_job_id in (None, job.id):
        return ""
    holder = session.get(Job, site.lock_job_id)
    state = holder.state if holder is not None else "unknown"
    return f"job {site.lock_job_id} ({state}), which holds the lock on site {site.name}"


def format_event(event: EventView) -> str | None:
    """Return an event as a line of text, or None if only programs need it."""
    line = _line_of(event)
    return f"{event.step}: {line}" if line is not None and event.step is not None else line


def _line_of(event: EventView) -> str | None:
    data = event.data
    match event.kind:
        case "waiting":
            return f"waiting on queue {data['queue']}"
        case "started":
            return f"attempt {data['attempt']} on queue {data['queue']}"
        case "step":
            return f"{data['step']} ({data['seconds']:.1f} s)"
        case "progress":
            return str(data.get("text", ""))
        case "call":
            tokens = f"{data['input_tokens']} in, {data['output_tokens']} out"
            return f"{data['model']}: {tokens}, {format_usd(data['cost_nanousd'], digits=6)} ({data['finish']})"
        case "escalated":
            return f"escalated to tier {data['target']}: {data['detail']}"
        case "state":
            return f"{data['origin']} -> {data['target']}"
        case _:
            return _line_of_run(event)


def _line_of_run(event: EventView) -> str | None:
    """Return the line of an event that only runs have: steps, plans and gates."""
    data = event.data
    match event.kind:
        case "run_step":
            why = data.get("detail") or data.get("reason") or ""
            return f"{data['step']}: skipped" if data["status"] == "skipped" else f"{data['status']} {why}".rstrip()
        case "plan":
            return f"plans {', '.join(step['step'] for step in data['steps'])}"
        case "gate":
            return f"gate {data['gate']} {data['state']}: {data['reason']}"
        case _:
            return None
