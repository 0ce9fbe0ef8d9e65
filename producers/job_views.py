"""What is shown of a job: the fields that HTTP, CLI and console have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from routing.jobs import State


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class BillView(_View):
    """What a job has cost. USD are exact decimal strings; the integers are nanodollars (1 USD = 10^9)."""

    spent_usd: str
    reserved_usd: str
    """Held for model calls that are under way."""
    cap_usd: str
    spent_nanousd: int
    reserved_nanousd: int
    cap_nanousd: int
    calls: int
    """Model calls so far."""
    session_spent_usd: str
    """What all rounds of its session have spent: the cap is on this."""
    session_spent_nanousd: int


class AttemptView(_View):
    """One execution of a job on one queue."""

    number: int
    queue: str
    tier: str | None
    started_at: datetime
    ended_at: datetime | None
    seconds: float | None
    outcome: str | None
    reason: str | None


class OptionView(_View):
    """One choice that a question offers."""

    id: str
    label: str
    source: str


class ClarificationView(_View):
    """What a job asks its owner."""

    question: str
    options: tuple[OptionView, ...]
    """In displayed order: `first` in a reply is the first of these."""
    is_pending: bool
    """A reply came, and a model is asked what it means."""


class RoundView(_View):
    """One job of a session."""

    round: int
    id: UUID
    verb: str | None
    """How it goes on from the one before it: `resume`, `revise`, `replay`, `override`, `debate`; none for the first."""
    state: State
    prompt: str
    """Its beginning."""
    tier: str | None
    spent_usd: str
    spent_nanousd: int
    release_id: UUID | None
    created_at: datetime


class JobView(_View):
    """A job."""

    id: UUID
    state: State
    is_final: bool
    reason: str | None
    """Why it ended, as a stable code."""
    detail: str | None
    """Why it ended, in words."""
    door: str
    priority: str
    mode: str | None
    tier: str | None
    """The tier it runs on now; escalation raises it."""
    queue: str
    rule: str | None
    """The rule that chose mode and tier."""
    why: str | None
    """The same in words."""
    route: dict[str, Any]
    """The whole decision as it was made, before any model or container call."""
    prompt: str
    site: str | None
    project: str | None
    """The code project of a run; `GET /v1/runs/{id}` tells its steps."""
    session: UUID
    """The first job of the session that it belongs to: all its rounds are on one bill."""
    round: int
    """Its place in the session, from 1."""
    rounds: tuple[RoundView, ...]
    """All of the session, itself among them."""
    parent_id: UUID | None
    continued_as: UUID | None
    """The round that goes on from it."""
    base_release_id: UUID | None
    start_release_id: UUID | None
    """What it started from where an earlier round kept something."""
    release_id: UUID | None
    report_digest: str | None
    """Of the release's scan report: send both ids with an approval to approve what was looked at or nothing."""
    preview_url: str | None
    """A signed link to the result, while it waits for approval."""
    requested_by: str
    clarification: ClarificationView | None
    """What its owner has to answer before it goes on (`POST /v1/jobs/{id}/reply`)."""
    answer: str | None
    result: dict[str, Any]
    is_cancel_requested: bool
    superseded_by: UUID | None
    """The newer job that takes its place."""
    held_for: str | None
    """What it waits for besides its turn: `site`, `time` or `provider`."""
    held_until: datetime | None
    bill: BillView
    attempts: tuple[AttemptView, ...]
    seconds: float
    """From its acceptance to its end, or until now."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None
    """When a preview that nobody judged, or a question that nobody answered, expires."""


class JobSummary(_View):
    """A job as a list shows it."""

    id: UUID
    state: State
    reason: str | None
    door: str
    tier: str | None
    queue: str
    site: str | None
    project: str | None
    prompt: str
    spent_usd: str
    created_at: datetime
    ended_at: datetime | None


class EventView(_View):
    """Something that happened to a job."""

    id: int
    at: datetime
    kind: str
    data: dict[str, Any]
    run_id: UUID | None = None
    """In a run's stream, of an event of one of its steps: the run."""
    step: str | None = None
    attempt: int | None = None
    """Which try at the step."""
