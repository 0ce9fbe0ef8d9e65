"""Follow a job at a terminal: one line per event, and what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

import typer
from rich.console import Console
from rich.text import Text
from sqlmodel import Session

from ledger import jobs as ledger_jobs
from ledger.events import events_after
from ledger.record_tables import QueueControl
from ledger.tables import Job, Site
from producers.bootstrap import Installation
from producers.commands.context import INTERRUPTED, err
from producers.use_cases.jobs import EventView, JobView, PreviewLinks, describe, describe_events
from routing.jobs import State
from routing.policy.prices import format_usd

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
    with installation.ledger.begin() as session:
        job = ledger_jobs.find_job(session, job_id, tenant=tenant)
        return JobStatus(describe(session, job, links=installation.previews), _blocker(session, job))


def view_in(session: Session, job_id: UUID, tenant: str, *, links: PreviewLinks | None) -> JobView:
    """Return a job as the caller's transaction sees it.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    return describe(session, ledger_jobs.find_job(session, job_id, tenant=tenant), links=links)


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
