"""Views of jobs, the same for HTTP, CLI and console, and the cursors of paged lists."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from sqlalchemy import Select, func, select
from sqlmodel import Session, col

from ledger.job_control import undo_until
from ledger.job_ends import is_run, is_step, rejection_starts_debate
from ledger.record_tables import Event
from ledger.releases import rounds_of, successor_of, verb_of
from ledger.runs.tables import AgentExecution
from ledger.spending import Bill, bill_of
from ledger.tables import Attempt, Call, Job, Release, Site
from producers.use_cases.job_search import JobFilter, ListMark, find_jobs
from producers.use_cases.waits import Cause
from routing.errors import FieldError, InvalidJobError
from routing.jobs import FAILURES, PAID_REPLIES, State, read_stored
from routing.policy.prices import decimal_usd
from routing.queues import QUEUE_OF_TIER, QueueName, Tier

if TYPE_CHECKING:
    from sites.preview import PreviewSigner


PREVIEW_AUDIENCE = "reviewer"
CONSOLE_AUDIENCE = "console"
"""Audience of links that the console alone may show in a frame."""
_PROMPT_EXCERPT = 200
"""Characters of a round's prompt that its other rounds show."""


class View(BaseModel, frozen=True):
    """Base of the views."""

    @classmethod
    def of(cls, row: object, **others: Any) -> Self:
        """Return the view of a row: its columns by their names, and what is given besides or instead."""
        return cls(**{name: getattr(row, name) for name in cls.model_fields if name not in others}, **others)


class BillView(View):
    """A job's cost. USD are exact decimal strings; the integers are nanodollars (1 USD = 10^9)."""

    spent_usd: str
    reserved_usd: str
    """Reserved for model calls in progress."""
    cap_usd: str
    spent_nanousd: int
    reserved_nanousd: int
    cap_nanousd: int
    calls: int
    """Model calls so far."""
    session_spent_usd: str
    """Spent by all rounds of its session: the cap applies to this."""
    session_spent_nanousd: int


class AttemptView(View):
    """One execution of a job on one queue."""

    number: int
    queue: str
    tier: str | None
    started_at: datetime
    ended_at: datetime | None
    seconds: float | None
    outcome: str | None
    reason: str | None


class OptionView(View):
    """One choice of a question."""

    id: str
    label: str
    source: str


class ClarificationView(View):
    """A job's question to its owner."""

    question: str
    options: tuple[OptionView, ...]
    """In display order: `first` in a reply means the first of these."""
    is_pending: bool
    """Whether a model is interpreting a reply."""


class RoundView(View):
    """One job of a session."""

    round: int
    id: UUID
    verb: str | None
    """How it continues the one before: `resume`, `revise`, `replay`, `override` or `debate`; null for the first."""
    state: State
    prompt: str
    """Its first 200 characters."""
    tier: str | None
    spent_usd: str
    spent_nanousd: int
    release_id: UUID | None
    created_at: datetime


class JobView(View):
    """A job."""

    id: UUID
    state: State
    is_final: bool
    reason: str | None
    """Why it ended, as a stable code."""
    detail: str | None
    """Why it ended, in words."""
    source: str
    priority: str
    mode: str | None
    tier: str | None
    """The tier it runs on now; escalation raises it."""
    queue: str
    """The queue it is on; of a result, the one that made it: `control` only while it is published or where that failed.
    """
    rule: str | None
    """The rule that chose mode and tier."""
    why: str | None
    """The rule in words."""
    route: dict[str, Any]
    """The whole routing decision, made before any model or container call."""
    prompt: str
    site: str | None
    project: str | None
    """The code project of a run; `GET /v1/runs/{id}` shows its steps."""
    session: UUID
    """The first job of its session: all rounds of it are on one bill."""
    round: int
    """Its position in the session, from 1."""
    rounds: tuple[RoundView, ...]
    """All rounds of the session, including this one."""
    parent_id: UUID | None
    continued_as: UUID | None
    """The round that continues it."""
    base_release_id: UUID | None
    start_release_id: UUID | None
    """The unpublished release that it started from, made by an earlier round."""
    release_id: UUID | None
    report_digest: str | None
    """Digest of the release's scan report: send it with the release id to approve exactly what was reviewed."""
    preview_url: str | None
    """A signed link to the result while it awaits approval."""
    rejection_starts_debate: bool
    """Whether rejecting it now would start paid work: its task failed before, so that it is debated and tried again."""
    requested_by: str
    clarification: ClarificationView | None
    """The question that its owner has to answer first (`POST /v1/jobs/{id}/reply`)."""
    answer: str | None
    result: dict[str, Any]
    is_cancel_requested: bool
    superseded_by: UUID | None
    """The newer job that replaces it."""
    held_for: str | None
    """What it waits for besides its turn: `site`, `time` or `provider`."""
    held_until: datetime | None
    undo_until: datetime | None
    """Until when its approval can be undone (`POST /v1/jobs/{id}/undo`); its publish waits for that."""
    waits_for: str | None
    """Why it does not start, in words: its time, a paused tenant or queue, the job that holds its site, its provider,
    its tenant's limit, no dispatcher, or no free worker. Null while it waits for its turn alone."""
    bill: BillView
    attempts: tuple[AttemptView, ...]
    seconds: float
    """From acceptance to end, or until now."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None
    """When its preview or question expires."""


class JobSummary(View):
    """A job in a list."""

    id: UUID
    state: State
    reason: str | None
    source: str
    tier: str | None
    queue: str
    site: str | None
    project: str | None
    prompt: str
    spent_usd: str
    created_at: datetime
    ended_at: datetime | None


class Page(BaseModel):
    """Base of the pages of lists."""

    next_cursor: str | None
    """Give it as `cursor` for the next page; null on the last one."""


class JobsPage(Page):
    """A page of jobs, the newest first. One of a search for words may be short and still have a next one."""

    jobs: list[JobSummary]


class EventView(View):
    """Something that happened to a job."""

    id: int
    at: datetime
    kind: str
    data: dict[str, Any]
    run_id: UUID | None = None
    """For an event of a step: its run."""
    step: str | None = None
    attempt: int | None = None
    """The attempt at the step."""


@dataclass(frozen=True)
class PreviewLinks:
    """Makes preview URLs."""

    signer: PreviewSigner
    pages_url: str
    """Origin of the pages."""

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
    """Return `spec`, `patch` or `agent`."""
    return None if tier is None else Tier(tier).name.lower()


def queue_of(job: Job) -> str:
    """Return the queue that a job is on, or that did its work once its result was made.

    `control`, which only publishes it, is named while it does and where that failed; a run is advanced there.
    """
    is_there = is_run(job) or job.state == State.PUBLISHING or job.state in FAILURES
    if job.queue != QueueName.CONTROL or job.tier is None or is_there:
        return job.queue
    return QUEUE_OF_TIER[Tier(job.tier)].value


def describe(session: Session, job: Job, *, links: PreviewLinks | None = None, cause: Cause | None = None) -> JobView:
    """Return the whole view of a job, with a preview link if `links` is given.

    `cause` is what `waits.cause_of` says.
    """
    site = session.get(Site, job.site_id) if job.site_id else None
    answer = job.result.get("answer")
    attempts = select(Attempt).where(col(Attempt.job_id) == job.id).order_by(col(Attempt.number))
    rounds = _rounds(session, job)
    return JobView.of(
        job,
        is_final=job.ended_at is not None,
        tier=tier_name(job.tier),
        queue=queue_of(job),
        rule=_text_of(job.route, "rule"),
        why=_text_of(job.route, "reason"),
        site=site.name if site else None,
        project=job.request.get("project"),
        **_place(session, job, rounds),
        **_release_facts(session, job, links),
        rejection_starts_debate=rejection_starts_debate(session, job),
        clarification=_question_of(job),
        answer=answer if isinstance(answer, str) else None,
        result={name: value for name, value in job.result.items() if name != PAID_REPLIES},
        is_cancel_requested=job.cancel_requested_at is not None,
        undo_until=undo_until(session, job),
        waits_for=str(cause) if cause is not None else None,
        bill=_bill_view(bill_of(session, job), rounds=rounds),
        attempts=tuple(_attempt_view(attempt) for attempt in session.scalars(attempts)),
        seconds=seconds_between(job.created_at, job.ended_at),
    )


def page_of_jobs(session: Session, wanted: JobFilter, *, cursor: str | None = None, limit: int = 50) -> JobsPage:
    """Return a page of a list of jobs.

    Raises:
        InvalidJobError: the caller's fault: this list never issued such a cursor.
    """
    found = find_jobs(session, replace(wanted, after=mark_of(ListMark, cursor)), limit=limit)
    more = cursor_of(found.more) if found.more is not None else None
    return JobsPage(jobs=summarise(session, found.jobs), next_cursor=more)


def open_jobs_by_state(session: Session, tenant: str) -> dict[State, int]:
    """Return how many of a tenant's jobs that have not ended are in each state, steps of runs left out."""
    is_open = (col(Job.tenant) == tenant, col(Job.ended_at).is_(None), col(Job.queue) != QueueName.STEPS.value)
    rows = session.execute(select(col(Job.state), func.count()).where(*is_open).group_by(col(Job.state)))
    return {State(state): count for state, count in rows}


def summarise(session: Session, jobs: Sequence[Job]) -> list[JobSummary]:
    """Return the views of jobs, in their order, with two queries for any number of them."""
    sites = _site_names(session, {job.site_id for job in jobs if job.site_id})
    spent = _spent(session, [job.id for job in jobs])
    return [
        JobSummary.of(
            job,
            tier=tier_name(job.tier),
            queue=queue_of(job),
            site=sites.get(job.site_id) if job.site_id else None,
            project=job.request.get("project"),
            spent_usd=decimal_usd(spent.get(job.id, 0)),
        )
        for job in jobs
    ]


def describe_events(session: Session, events: Sequence[Event]) -> list[EventView]:
    """Return the views of events, in their order; those of a run's steps name run and step."""
    jobs = {event.job_id for event in events if event.job_id is not None}
    rows = session.scalars(select(AgentExecution).where(col(AgentExecution.job_id).in_(jobs))).all() if jobs else []
    steps: dict[UUID | None, dict[str, Any]] = {
        row.job_id: {"run_id": row.run_id, "step": row.step_key, "attempt": row.attempt} for row in rows
    }
    return [
        EventView.of(event, **steps.get(event.job_id, {"run_id": None, "step": None, "attempt": None}))
        for event in events
    ]


def _question_of(job: Job) -> ClarificationView | None:
    if job.clarification is None or job.ended_at is not None:
        return None
    from routing.clarify.questions import Clarification  # most jobs ask nothing

    question = read_stored(Clarification, job.clarification)
    options = tuple(map(OptionView.of, question.options))
    return ClarificationView(question=question.question, options=options, is_pending=question.pending is not None)


def _release_facts(session: Session, job: Job, links: PreviewLinks | None) -> dict[str, Any]:
    """Return what reviewers need of the release that a job made, with a link to it while it awaits approval."""
    made = session.get(Release, job.release_id, populate_existing=True) if job.release_id else None
    is_shown = made is not None and job.state == State.AWAITING_APPROVAL
    return {
        "report_digest": made.scan_digest if made else None,
        "preview_url": links.url_of(made) if links and made and is_shown else None,
    }


def _place(session: Session, job: Job, rounds: Sequence[RoundView]) -> dict[str, Any]:
    """Return a job's position in its session; a step of a run has its run's."""
    own = job.parent_id if is_step(job) else job.id
    return {
        "session": job.root_id,
        "round": next(one.round for one in rounds if one.id == own),
        "rounds": rounds,
        "continued_as": successor_of(session, job.id),
    }


def _rounds(session: Session, job: Job) -> tuple[RoundView, ...]:
    jobs = rounds_of(session, job.root_id)
    spent = _spent(session, [one.id for one in jobs])
    return tuple(
        RoundView.of(
            one,
            round=place,
            verb=verb_of(one),
            prompt=one.prompt[:_PROMPT_EXCERPT],
            tier=tier_name(one.tier),
            spent_usd=decimal_usd(spent.get(one.id, 0)),
            spent_nanousd=spent.get(one.id, 0),
        )
        for place, one in enumerate(jobs, start=1)
    )


def _bill_view(bill: Bill, *, rounds: Sequence[RoundView]) -> BillView:
    total = sum(one.spent_nanousd for one in rounds)
    spent = {f"{name}_usd": decimal_usd(getattr(bill, f"{name}_nanousd")) for name in ("spent", "reserved", "cap")}
    return BillView.of(bill, **spent, session_spent_usd=decimal_usd(total), session_spent_nanousd=total)


def _attempt_view(attempt: Attempt) -> AttemptView:
    seconds = seconds_between(attempt.started_at, attempt.ended_at) if attempt.ended_at else None
    return AttemptView.of(attempt, tier=tier_name(attempt.tier), seconds=seconds)


def prompts_of(session: Session, job_ids: set[UUID], *, tenant: str) -> dict[UUID, str]:
    """Return what a tenant's own jobs among these were asked."""
    own = col(Job.id).in_(job_ids), col(Job.tenant) == tenant
    return {row.id: row.prompt for row in session.execute(select(col(Job.id), col(Job.prompt)).where(*own))}


def _site_names(session: Session, site_ids: set[UUID]) -> dict[UUID, str]:
    rows = session.execute(select(col(Site.id), col(Site.name)).where(col(Site.id).in_(site_ids)))
    return {site_id: name for site_id, name in rows}


def _spent(session: Session, job_ids: Sequence[UUID]) -> dict[UUID, int]:
    """Return what jobs have cost, runs including their steps."""
    own: Select[Any, int] = select(col(Call.job_id).label("owner"), col(Call.cost_nanousd))
    steps = (
        select(col(AgentExecution.run_id), col(Call.cost_nanousd))
        .join(Call, col(Call.job_id) == col(AgentExecution.job_id))
        .where(col(AgentExecution.run_id).in_(job_ids))
    )
    calls = own.where(col(Call.job_id).in_(job_ids)).union_all(steps).subquery()
    rows = session.execute(select(calls.c.owner, func.sum(calls.c.cost_nanousd)).group_by(calls.c.owner))
    return {job_id: int(cost) for job_id, cost in rows}


def seconds_between(start: datetime, end: datetime | None) -> float:
    """Return the seconds until the end, or until now."""
    return round(max(0.0, ((end or datetime.now(UTC)) - start).total_seconds()), 3)


def _text_of(route: Mapping[str, Any], key: str) -> str | None:
    value = route.get(key)
    return value if isinstance(value, str) else None


MarkT = TypeVar("MarkT")
_MAX_CURSOR = 2_000


def cursor_of(mark: object) -> str:
    """Return the position at which a page ended as an opaque cursor."""
    text = TypeAdapter(type(mark)).dump_json(mark)
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def mark_of(kind: type[MarkT], cursor: str | None) -> MarkT | None:
    """Return the position that a cursor stands for.

    Raises:
        InvalidJobError: the caller's fault: this list never issued such a cursor.
    """
    if cursor is None:
        return None
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return TypeAdapter(kind).validate_json(text)
    except (ValueError, binascii.Error, ValidationError):
        raise InvalidJobError((FieldError("cursor", "is none that this list gave"),)) from None
