"""How a job is followed at a terminal: its events as lines of text, and how it stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import typer
from pointsman_client.models import EventView, JobView, State
from rich.console import Console
from rich.text import Text

from producers.commands.context import INTERRUPTED, err, wants_json

if TYPE_CHECKING:
    from pointsman_client import Client


WAITS_FOR_OWNER = frozenset({State.AWAITING_APPROVAL, State.CLARIFYING})
FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.1, 1.0


def follow(client: Client, job_id: UUID) -> JobView:
    """Print each event on stderr until the job ends or waits for its owner. Ctrl-C stops following, not the job."""
    try:
        with show_progress(err, is_shown=not wants_json() and err.is_terminal) as update:
            return _follow(client, job_id, update=update)
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


def _follow(client: Client, job_id: UUID, *, update: Callable[[JobView], None]) -> JobView:
    quiet = wants_json()
    last_id, shown_cause, pause = 0, "", FIRST_POLL_SECONDS
    while True:
        view = client.get_job(job_id)
        update(view)
        events = client.list_job_events(job_id, after=last_id)
        for event in events:
            last_id = event.id
            if event.kind == "waiting":
                shown_cause = ""  # it waits again, perhaps for the same cause
            if not quiet and (line := format_event(event)):
                err.print(f"  {event.at:%H:%M:%S}  {line}")
        if view.waits_for not in (None, shown_cause) and not quiet:
            shown_cause = view.waits_for
            err.print(f"            waits for {shown_cause}")
        if not events and (view.is_final or view.state in WAITS_FOR_OWNER):
            return view
        pause = FIRST_POLL_SECONDS if events else min(pause * 1.5, LONGEST_POLL_SECONDS)
        time.sleep(pause)


def format_event(event: EventView) -> str | None:
    """Return an event as a line of text, or None if only programs need it."""
    line = _line_of(event)
    return f"{event.step}: {line}" if line is not None and event.step is not None else line


def _line_of(event: EventView) -> str | None:
    data = event.data
    match event.kind:
        case "waiting":
            return f"waiting on queue {data['queue']}{_held(data)}"
        case "started":
            return f"attempt {data['attempt']} on queue {data['queue']}"
        case "step":
            return f"{data['step']} ({data['seconds']:.1f} s)"
        case "progress":
            return str(data.get("text", ""))
        case "call":
            tokens = f"{data['input_tokens']} in, {data['output_tokens']} out"
            from routing.policy.prices import format_usd

            return f"{data['model']}: {tokens}, {format_usd(data['cost_nanousd'], digits=6)} ({data['finish']})"
        case "escalated":
            return f"escalated to tier {data['target']}: {data['detail']}"
        case "state":
            return f"{data['origin']} -> {data['target']}"
        case _:
            return _line_of_run(event)


def _held(data: dict[str, Any]) -> str:
    """Return for how long and for what a job is held, if it is."""
    why = {"time": "before its next try", "provider": "for its provider"}.get(data.get("held_for", ""))
    return f", held {data['held_seconds']:.0f} s {why}" if why is not None else ""


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
