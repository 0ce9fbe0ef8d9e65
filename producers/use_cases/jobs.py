"""What a job looks like from outside: one view for HTTP, CLI and console, so that they cannot differ."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from sqlalchemy import Select, func, select
from sqlmodel import Session, col

from ledger.job_ends import is_step
from ledger.money import Bill, bill_of
from ledger.record_tables import Event
from ledger.releases import rounds_of, successor_of, verb_of
from ledger.runs.tables import AgentExecution
from ledger.tables import Attempt, Call, Job, Release, Site
from routing.clarify.questions import Clarification
from routing.errors import FieldError, InvalidJobError
from routing.jobs import State, read_stored
from routing.policy.prices import decimal_usd
from routing.queues import Tier
from sites.preview import PreviewSigner

PREVIEW_AUDIENCE = "reviewer"
CONSOLE_AUDIENCE = "console"
"""Of links that the console alone may show in a frame."""
_SHOWN = 200
"""Characters of a round's prompt that the other rounds show."""


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


@dataclass(frozen=True)
class PreviewLinks:
    """Makes preview URLs."""

    signer: PreviewSigner
    pages_url: str
    """The origin of the pages."""

    def url_of(self, release: Release, *, audience: str = PREVIEW_AUDIENCE) -> str:
        """Return a new link to a release."""
        token = self.signer.sign(
            site=str(release.site_id),
            release_id=str(release.id),
            audience=audience,
            generation=release.preview_generation,
        )
        return f"{self.pages_url.rstrip('/')}/preview/{token}/"


def tier_name(tier: int | None) -> str | None:
    """Return the name of a tier: `spec`, `patch` or `agent`."""
    return None if tier is None else Tier(tier).name.lower()


def describe(session: Session, job: Job, *, links: PreviewLinks | None = None) -> JobView:
    """Return the whole view of a job.

    Args:
        session: the caller's transaction.
        job: the job.
        links: makes the preview link; without it there is none.
    """
    site = session.get(Site, job.site_id) if job.site_id else None
    answer = job.result.get("answer")
    rounds = _rounds(session, job)
    return JobView(
        id=job.id,
        state=State(job.state),
        is_final=job.ended_at is not None,
        reason=job.reason,
        detail=job.detail,
        door=job.door,
        priority=job.priority,
        mode=job.mode,
        tier=tier_name(job.tier),
        queue=job.queue,
        rule=_text_of(job.route, "rule"),
        why=_text_of(job.route, "reason"),
        route=job.route,
        prompt=job.prompt,
        site=site.name if site else None,
        project=job.request.get("project"),
        **_place(session, job, rounds),
        **_releases(session, job, links),
        requested_by=job.requested_by,
        clarification=_question_of(job),
        answer=answer if isinstance(answer, str) else None,
        result=job.result,
        is_cancel_requested=job.cancel_requested_at is not None,
        **_hold(job),
        bill=_bill_view(bill_of(session, job), rounds=rounds),
        attempts=tuple(_attempt_view(attempt) for attempt in _attempts_of(session, job.id)),
        seconds=_seconds(job.created_at, job.ended_at or datetime.now(UTC)),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        expires_at=job.expires_at,
    )


def summarise(session: Session, jobs: Sequence[Job]) -> list[JobSummary]:
    """Return the views of a list, in its order, with three queries for any number of jobs."""
    sites = _site_names(session, {job.site_id for job in jobs if job.site_id})
    spent = _spent(session, [job.id for job in jobs])
    return [
        JobSummary(
            id=job.id,
            state=State(job.state),
            reason=job.reason,
            door=job.door,
            tier=tier_name(job.tier),
            queue=job.queue,
            site=sites.get(job.site_id) if job.site_id else None,
            project=job.request.get("project"),
            prompt=job.prompt,
            spent_usd=decimal_usd(spent.get(job.id, 0)),
            created_at=job.created_at,
            ended_at=job.ended_at,
        )
        for job in jobs
    ]


def describe_events(session: Session, events: Sequence[Event]) -> list[EventView]:
    """Return the views of events, in their order; those of a run's steps say which."""
    jobs = {event.job_id for event in events if event.job_id is not None}
    rows = session.scalars(select(AgentExecution).where(col(AgentExecution.job_id).in_(jobs))).all() if jobs else []
    steps: dict[UUID | None, dict[str, Any]] = {
        row.job_id: {"run_id": row.run_id, "step": row.step_key, "attempt": row.attempt} for row in rows
    }
    return [
        EventView(id=event.id or 0, at=event.at, kind=event.kind, data=event.data, **steps.get(event.job_id, {}))
        for event in events
    ]


def _question_of(job: Job) -> ClarificationView | None:
    if job.clarification is None or job.ended_at is not None:
        return None
    asked = read_stored(Clarification, job.clarification)
    options = tuple(OptionView(id=one.id, label=one.label, source=one.source) for one in asked.options)
    return ClarificationView(question=asked.question, options=options, is_pending=asked.pending is not None)


def _hold(job: Job) -> dict[str, Any]:
    """Return what keeps a job from its turn, or has taken its place."""
    return {"superseded_by": job.superseded_by, "held_for": job.held_for, "held_until": job.held_until}


def _releases(session: Session, job: Job, links: PreviewLinks | None) -> dict[str, Any]:
    """Return what a job starts from and what it made, with a link to that while a person looks at it."""
    made = session.get(Release, job.release_id, populate_existing=True) if job.release_id else None
    is_shown = made is not None and job.state == State.AWAITING_APPROVAL
    return {
        "base_release_id": job.base_release_id,
        "start_release_id": job.start_release_id,
        "release_id": job.release_id,
        "report_digest": made.scan_digest if made else None,
        "preview_url": links.url_of(made) if links and made and is_shown else None,
    }


def _place(session: Session, job: Job, rounds: Sequence[RoundView]) -> dict[str, Any]:
    """Return where a job stands in its session; a step of a run stands where its run does."""
    own = job.parent_id if is_step(job) else job.id
    return {
        "session": job.root_id,
        "round": next(one.round for one in rounds if one.id == own),
        "rounds": rounds,
        "parent_id": job.parent_id,
        "continued_as": successor_of(session, job.id),
    }


def _rounds(session: Session, job: Job) -> tuple[RoundView, ...]:
    jobs = rounds_of(session, job.root_id)
    spent = _spent(session, [one.id for one in jobs])
    return tuple(
        RoundView(
            round=place,
            id=one.id,
            verb=verb_of(one),
            state=State(one.state),
            prompt=one.prompt[:_SHOWN],
            tier=tier_name(one.tier),
            spent_usd=decimal_usd(spent.get(one.id, 0)),
            spent_nanousd=spent.get(one.id, 0),
            release_id=one.release_id,
            created_at=one.created_at,
        )
        for place, one in enumerate(jobs, start=1)
    )


def _bill_view(bill: Bill, *, rounds: Sequence[RoundView]) -> BillView:
    total = sum(one.spent_nanousd for one in rounds)
    return BillView(
        session_spent_usd=decimal_usd(total),
        session_spent_nanousd=total,
        spent_usd=decimal_usd(bill.spent_nanousd),
        reserved_usd=decimal_usd(bill.reserved_nanousd),
        cap_usd=decimal_usd(bill.cap_nanousd),
        **bill._asdict(),
    )


def _attempts_of(session: Session, job_id: UUID) -> Sequence[Attempt]:
    return session.scalars(select(Attempt).where(col(Attempt.job_id) == job_id).order_by(col(Attempt.number))).all()


def _attempt_view(attempt: Attempt) -> AttemptView:
    return AttemptView(
        number=attempt.number,
        queue=attempt.queue,
        tier=tier_name(attempt.tier),
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        seconds=_seconds(attempt.started_at, attempt.ended_at) if attempt.ended_at else None,
        outcome=attempt.outcome,
        reason=attempt.reason,
    )


def _site_names(session: Session, site_ids: set[UUID]) -> dict[UUID, str]:
    rows = session.execute(select(col(Site.id), col(Site.name)).where(col(Site.id).in_(site_ids)))
    return {site_id: name for site_id, name in rows}


def _spent(session: Session, job_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return what jobs have cost; a run with its steps."""
    own: Select[Any, int] = select(col(Call.job_id).label("owner"), col(Call.cost_nanousd))
    steps = (
        select(col(AgentExecution.run_id), col(Call.cost_nanousd))
        .join(Call, col(Call.job_id) == col(AgentExecution.job_id))
        .where(col(AgentExecution.run_id).in_(job_ids))
    )
    calls = own.where(col(Call.job_id).in_(job_ids)).union_all(steps).subquery()
    rows = session.execute(select(calls.c.owner, func.sum(calls.c.cost_nanousd)).group_by(calls.c.owner))
    return {job_id: int(cost) for job_id, cost in rows}


def _seconds(start: datetime, end: datetime) -> float:
    return round(max(0.0, (end - start).total_seconds()), 3)


def _text_of(route: Mapping[str, Any], key: str) -> str | None:
    value = route.get(key)
    return value if isinstance(value, str) else None


# Where a page of a list ended, as an opaque word that its reader gives back for the next page.

MarkT = TypeVar("MarkT")
_LONGEST = 2_000


class Page(BaseModel):
    """What every page of a list holds beside its items."""

    next_cursor: str | None
    """Give it as `cursor` for the next page; null on the last one."""


def cursor_of(mark: object) -> str:
    """Return a mark as a cursor."""
    text = TypeAdapter(type(mark)).dump_json(mark)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def mark_of(kind: type[MarkT], cursor: str | None) -> MarkT | None:
    """Return the mark that a cursor stands for; None for none.

    Raises:
        InvalidJobError: the caller's fault: no such cursor was ever given out.
    """
    if cursor is None:
        return None
    try:
        if len(cursor) > _LONGEST:
            raise ValueError
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return TypeAdapter(kind).validate_json(text)
    except (ValueError, binascii.Error, ValidationError):
        raise InvalidJobError((FieldError("cursor", "is none that this list gave"),)) from None
