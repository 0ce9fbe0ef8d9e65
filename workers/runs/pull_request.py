"""The words of a pull request: what a reviewer of the whole run has to know, and nothing that an agent can misuse.

Agents' sentences are shown as quotations. What would make the forge do something (name people, load a picture, close
other tickets) is taken apart in them, since whoever wrote the ticket may have ordered it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from routing.prices import format_usd, nanousd_of
from routing.ticket import Ticket
from sandbox.words import inert

MAX_TITLE = 200
MAX_SUMMARY = 8_000
MAX_LISTED = 60
_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class StepLine:
    """One step, as a line of the table."""

    key: str
    agent: str
    state: str
    tries: int
    cost_usd: float


@dataclass(frozen=True)
class GateLine:
    """One gate that was decided."""

    reason: str
    state: str
    actor: str


@dataclass(frozen=True, kw_only=True)
class PullRequestFacts:
    """What a pull request is described from."""

    run_id: UUID
    ticket: Ticket
    summary: str
    """The summary agent's words."""
    steps: Sequence[StepLine]
    gates: Sequence[GateLine] = ()
    open_issues: Sequence[str] = ()
    """What reviewers found and nobody mended: their titles."""
    changed: Sequence[str] = ()
    cost_usd: float
    estimate_usd: tuple[float, float] | None = None
    """What it was thought to cost, from and to."""


@dataclass(frozen=True)
class PullRequestText:
    """What the forge is given."""

    title: str
    body: str


def branch_of(ticket: Ticket, run_id: UUID) -> str:
    """Return the name of a run's branch: the same for each try, another for each run."""
    slug = _SLUG.sub("-", (ticket.key or ticket.title).lower()).strip("-")[-40:].strip("-") or "ticket"
    return f"pointsman/{slug}-{run_id.hex[:8]}"


def describe(facts: PullRequestFacts) -> PullRequestText:
    """Return title and text of a run's pull request."""
    ticket = facts.ticket
    name = _cell(ticket.key or "of nobody's tracker")
    about = f"[{name}]({ticket.url})" if ticket.url else name
    parts = [
        f"Made by Pointsman for the ticket {about}: {_cell(ticket.title)}",
        _quoted(facts.summary),
        _steps(facts.steps),
        _bullets("Left open by the reviewers", facts.open_issues),
        _bullets("Looked at by people", [f"{gate.reason}: {gate.state} by {gate.actor}" for gate in facts.gates]),
        _bullets("Changed files", facts.changed),
        _money(facts),
        "Nothing was merged: that is for people to do.",
    ]
    title = inert(" ".join(ticket.title.split()))[:MAX_TITLE]
    return PullRequestText(title, "\n\n".join(part for part in parts if part))


def _quoted(text: str) -> str:
    lines = inert(text[:MAX_SUMMARY]).splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _steps(steps: Sequence[StepLine]) -> str:
    head = "| step | agent | state | tries | cost |\n|---|---|---|---:|---:|"
    rows = [
        f"| {_cell(step.key)} | {_cell(step.agent)} | {step.state} | {step.tries} | {_usd(step.cost_usd)} |"
        for step in steps
    ]
    return "\n".join([head, *rows]) if rows else ""


def _bullets(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    shown = [f"- {_cell(item)}" for item in items[:MAX_LISTED]]
    more = [f"- and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else []
    return "\n".join([f"**{title}**", "", *shown, *more])


def _money(facts: PullRequestFacts) -> str:
    text = f"It cost {_usd(facts.cost_usd)}"
    if facts.estimate_usd is not None:
        low, high = (format_usd(nanousd_of(usd), digits=2) for usd in facts.estimate_usd)
        text += f" (the estimate was {low} to {high})"
    return f"{text}. Run `{facts.run_id}`."


def _usd(amount: float) -> str:
    return format_usd(nanousd_of(amount), digits=4)


def _cell(text: str) -> str:
    """One line that can stand in a table."""
    return inert(" ".join(text.split()))[:300].replace("|", "\\|")
