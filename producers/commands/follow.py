"""A job as a person at a terminal follows it: each event in a line, and what it waits for when nothing happens."""

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


class Found(NamedTuple):
    """A job, and what it waits for: empty where that is nothing but its turn."""

    view: JobView
    waits_for: str


def look(installation: Installation, job_id: UUID, tenant: str) -> Found:
    """Return a job as it is now.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    with installation.ledger.begin() as session:
        job = ledger_jobs.find_job(session, job_id, tenant=tenant)
        return Found(describe(session, job, links=installation.previews), _obstacle(session, job))


def view_in(session: Session, job_id: UUID, tenant: str, *, links: PreviewLinks | None) -> JobView:
    """Return a job as it stands in the caller's transaction.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    return describe(session, ledger_jobs.find_job(session, job_id, tenant=tenant), links=links)


def follow(installation: Installation, job_id: UUID, tenant: str, *, quiet: bool) -> Found:
    """Say each event on stderr until the job ends or waits for its owner. Ctrl-C ends the looking, not the job."""
    try:
        with progress(err, is_shown=not quiet and err.is_terminal) as tell:
            return _follow(installation, job_id, tenant, quiet=quiet, tell=tell)
    except KeyboardInterrupt:
        err.print(f"the job goes on; see it with `pointsman job {job_id}`, end it with `pointsman cancel {job_id}`")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def progress(console: Console, *, is_shown: bool) -> Iterator[Callable[[JobView], None]]:
    """Show at a terminal, below the events, how the job stands: time and money move while nothing happens."""
    if not is_shown:
        yield lambda _: None
        return
    with console.status("") as status:
        yield lambda view: status.update(_standing(view))


def _standing(view: JobView) -> Text:
    tier = f" on {view.queue}" if view.state == State.RUNNING else ""
    return Text(f"{view.state}{tier}, {view.seconds:.0f} s, ${view.bill.spent_usd} of ${view.bill.cap_usd}")


def _follow(
    installation: Installation, job_id: UUID, tenant: str, *, quiet: bool, tell: Callable[[JobView], None]
) -> Found:
    seen, said = 0, ""
    while True:
        found = look(installation, job_id, tenant)
        tell(found.view)
        with installation.ledger.begin() as session:
            told = events_after(session, job_id, after_id=seen)
            events = describe_events(session, told.events)
        for event in events:
            seen = event.id
            if not quiet and (line := line_of(event)):
                err.print(f"  {event.at:%H:%M:%S}  {line}", markup=False)
        if found.waits_for not in ("", said) and not quiet:
            said = found.waits_for
            err.print(f"            waits for {said}", markup=False)
        if told.is_all and (found.view.is_final or found.view.state in WAITS_FOR_OWNER):
            return found
        time.sleep(POLL_SECONDS)


def _obstacle(session: Session, job: Job) -> str:
    """Say what keeps a queued job from its turn: another job on its site, or a paused queue."""
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
    return f"job {site.lock_job_id} ({state}), which holds site {site.name}"


def line_of(event: EventView) -> str | None:
    """Say an event in a line for people, or None for one that only programs need."""
    said = _line_of(event)
    return f"{event.step}: {said}" if said is not None and event.step is not None else said


def _line_of(event: EventView) -> str | None:
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
            return f"{data['model']}: {tokens}, {format_usd(data['cost_nanousd'], digits=6)} ({data['finish']})"
        case "escalated":
            return f"goes to tier {data['target']}: {data['detail']}"
        case "state":
            return f"{data['origin']} -> {data['target']}"
        case _:
            return _line_of_run(event)


def _line_of_run(event: EventView) -> str | None:
    """Say what only runs do: plan, begin and end steps, stop at gates."""
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
