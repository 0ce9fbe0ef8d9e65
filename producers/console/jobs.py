"""The job pages: list and search, one job, its live events, why it was routed so, and what a person can do about it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Form, Header, Query
from pydantic import BaseModel, Field
from sqlmodel import Session
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ledger.attempts import effective_policy
from ledger.errors import SiteNotFoundError
from ledger.job_control import Seen, approve, reject, request_cancel, undo_approval
from ledger.job_ends import is_run
from ledger.jobs import find_job, lock_job
from ledger.releases import find_site
from ledger.tables import Job
from producers.api.event_streams import News, read_events
from producers.api.requests import Resources, requester_of
from producers.console.job_page import events_of, facts_of
from producers.console.web import Approver, Submitter, Viewer, ViewerDep, is_part, load_templates, refusals_on
from producers.errors import ActionRefusedError
from producers.use_cases.clarify import MAX_REPLY_CHARACTERS
from producers.use_cases.fleet import ASKING
from producers.use_cases.job_search import JobFilter
from producers.use_cases.jobs import JobsPage, open_jobs_by_state, page_of_jobs
from producers.use_cases.people import Holder
from producers.use_cases.rounds import ResumeOrder, ReviseOrder
from producers.use_cases.tenants import Caller
from routing.decision.explanation import Explanation, explain
from routing.decision.router import CLASSIFIER, Route, SiteSignals, signals_of
from routing.errors import InvalidJobError
from routing.jobs import ENDS, FAILURES, Source, State, parse_as, parse_request, read_stored
from routing.policy.platform import Policy
from routing.policy.prices import nanousd_of
from routing.prompt.vocabulary import Vocabularies
from routing.queues import TierName, parse_tier
from routing.rounds import WORK_SO_FAR

PAGE = 40


_DECIDED = ("mode", "tier", "rule")

Decider = Literal["rules", "work", "model"]
"""What determined the route: the rules, the minimum tier of the work so far, or a model."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a prompt."""

    text: str
    kind: str
    """The kind of trigger; empty for other words."""


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Why a job was routed as it was."""

    found: Explanation
    pieces: tuple[Piece, ...]
    """The prompt, split at the triggers."""
    decider: Decider
    is_as_decided: bool
    """Whether today's rules agree with the recorded decision."""


def reasons_of(session: Session, job: Job, *, policy: Policy, vocabularies: Vocabularies) -> Reasons | None:
    """Return the reasons; None for a request that was refused before it was routed."""
    try:
        request = parse_request({**job.request, "prompt": job.prompt})
    except InvalidJobError:
        return None
    site = job.route.get("site")
    signals = signals_of(
        request, site=read_stored(SiteSignals, site) if isinstance(site, dict) else None, debated=frozenset()
    )
    words = vocabularies.of(job.tenant)
    found = explain(signals, effective_policy(session, job.tenant, policy), words)
    decider = decider_of(job.route, is_pivot=bool(job.result.get("failure_debate")))
    is_same = is_as_decided(job.route, found.route, decider=decider)
    return Reasons(found=found, pieces=_pieces(job.prompt, found), decider=decider, is_as_decided=is_same)


def decider_of(route: Mapping[str, Any], *, is_pivot: bool = False) -> Decider:
    """Return what determined a route.

    With `is_pivot` a debate about the job's failures may have changed its tier.
    """
    if route.get("rule") == WORK_SO_FAR:
        return "work"
    return "model" if is_pivot or route.get("classifier", CLASSIFIER) != CLASSIFIER else "rules"


def is_as_decided(then: Mapping[str, Any], today: Route, *, decider: Decider) -> bool:
    """Whether today's rules agree with a recorded decision.

    The minimum tier of the work so far hides any lower one; what the rules said before a model is not on record.
    """
    if decider == "model":
        return True
    if decider == "work":
        return (
            then.get("mode") == today.mode.value and today.tier is not None and today.tier < int(then.get("tier") or 0)
        )
    shown = today.model_dump(mode="json")
    return all(then.get(name) == shown[name] for name in _DECIDED)


def _pieces(prompt: str, found: Explanation) -> tuple[Piece, ...]:
    marks: list[tuple[int, int, str]] = [
        (one.start, one.end, one.kind) for one in (*found.triggers, *found.not_counted)
    ]
    marks += [(one.start, one.end, "rule") for one in found.winner.evidence]
    return tuple(_cut(prompt, sorted(marks)))


def _cut(prompt: str, marks: Sequence[tuple[int, int, str]]) -> list[Piece]:
    pieces, at = [], 0
    for start, end, kind in marks:
        if start < at or end <= start:  # what overlaps is marked once
            continue
        pieces += [Piece(text=prompt[at:start], kind=""), Piece(text=prompt[start:end], kind=kind)]
        at = end
    return [piece for piece in (*pieces, Piece(text=prompt[at:], kind="")) if piece.text]


router = APIRouter()

_REFRESH_SECONDS = 0.7
"""Shortest time between two refreshes of a page."""


class Wanted(BaseModel, frozen=True, str_strip_whitespace=True):
    """Which jobs a page lists, as its URL says it; an empty field restricts nothing."""

    state: tuple[State | Literal[""], ...] = ()
    tier: TierName | Literal[""] = ""
    site: str = Field(default="", max_length=64)
    text: str = Field(default="", max_length=200)
    source: Source | Literal[""] = ""
    who: str = Field(default="", max_length=200)
    """Part of the name of who asked."""
    cost: Literal["", "cent", "dime", "dollar"] = ""
    """A key of `COSTS`: what it cost at least."""
    period: Literal["", "1h", "24h", "7d"] = ""
    """A key of `PERIODS`: how long ago the oldest may have been accepted."""
    cursor: str | None = Field(default=None, max_length=2000)

    @property
    def states(self) -> tuple[State, ...]:
        """The chosen states."""
        return tuple(one for one in self.state if one)

    @property
    def is_filtered(self) -> bool:
        """Whether it leaves out any job."""
        return bool(self.query(cursor=self.cursor))

    def query(self, **changed: Any) -> str:
        """Return the query of the page's URL with some values changed."""
        facts = {**dict(self), "state": self.states, "cursor": None, **changed}
        return urlencode({name: value for name, value in facts.items() if value}, doseq=True)


COSTS = {"cent": nanousd_of("0.01"), "dime": nanousd_of("0.10"), "dollar": nanousd_of("1")}
PERIODS = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
GROUPS: Mapping[str, tuple[State, ...]] = {
    "all": (),
    "needs a person": ASKING,
    "under way": tuple(state for state in State if state not in ENDS and state not in ASKING),
    "published": (State.PUBLISHED,),
    "answered": (State.ANSWERED,),
    "failed": tuple(state for state in State if state in FAILURES),
    "given up": (State.REJECTED, State.EXPIRED, State.CANCELLED),
}


@router.get("/jobs")
def show_jobs(
    viewer: ViewerDep,
    wanted: Annotated[Wanted, Query()],
) -> Response:
    """List the tenant's jobs, newest first, filtered by state, tier, site, source, cost, time, who and words."""
    return _list(viewer, wanted)


def _list(
    viewer: Viewer,
    wanted: Wanted,
    *,
    draft: Mapping[str, str] | None = None,
    refusal: str = "",
) -> Response:
    """Show a page of jobs, with the form that was refused."""
    tenant = viewer.caller.tenant
    try:
        with refusals_on("/jobs"), viewer.resources.ledger.begin() as session:
            counts = open_jobs_by_state(session, tenant)
            found = JobFilter(
                tenant=tenant,
                states=wanted.states,
                tiers=(parse_tier(wanted.tier),) if wanted.tier else (),
                site_id=find_site(session, tenant, wanted.site).id if wanted.site else None,
                text=wanted.text,
                source=wanted.source or None,
                requested_by=wanted.who,
                least_nanousd=COSTS.get(wanted.cost, 0),
                since=datetime.now(UTC) - PERIODS[wanted.period] if wanted.period else None,
            )
            page = page_of_jobs(session, found, cursor=wanted.cursor, limit=PAGE)
    except SiteNotFoundError:
        page = JobsPage(jobs=[], next_cursor=None)
    shown = {
        "page": page,
        "wanted": wanted,
        "states": tuple(State),
        "periods": PERIODS,
        "costs": COSTS,
        "sources": tuple(Source),
        "groups": [(name, states, sum(counts.get(state, 0) for state in states)) for name, states in GROUPS.items()],
        "sites": [one.name for one in viewer.resources.sites.all(tenant)] if not is_part(viewer.request) else [],
        "draft": draft,
        "refusal": refusal,
    }
    return viewer.render("jobs.html", status=200 if draft is None else 422, **shown)


@router.post("/jobs")
def submit(
    viewer: Submitter,
    prompt: Annotated[str, Form()],
    site: Annotated[str, Form()] = "",
    new_site: Annotated[str, Form()] = "",
    tier: Annotated[str, Form()] = "",
    budget: Annotated[str, Form()] = "",
) -> Response:
    """Submit a job from the form, which keeps what was written in it when it is refused."""
    sites = {"site": site.strip(), "new_site": new_site.strip()}
    body = {"prompt": prompt, **sites, "tier": tier, "budget_usd": budget}
    try:
        with refusals_on("/jobs"):
            accepted = viewer.resources.submitter.submit(
                {name: value for name, value in body.items() if value},
                tenant=viewer.caller.tenant,
                source=Source.HTTP,
                actor=viewer.caller.actor,
            )
    except ActionRefusedError as refused:
        return _list(viewer, Wanted(), draft=body, refusal=refused.why)
    return viewer.redirect(f"/jobs/{accepted.job.id}")


@router.get("/jobs/{job_id}")
def show_job(
    viewer: ViewerDep,
    job_id: UUID,
    page: Annotated[str, Query(max_length=500)] = "",
) -> Response:
    """Show one job, its question or preview first; `page` is the changed page in its frames."""
    facts = facts_of(viewer.resources, job_id, tenant=viewer.caller.tenant, path=page)
    return viewer.render("job.html", **facts)


@router.get("/jobs/{job_id}/events")
def show_events(
    viewer: ViewerDep,
    job_id: UUID,
    before: Annotated[int, Query(ge=0, lt=2**63)] = 2**63 - 1,
) -> Response:
    """Show the page of a job's events that ends before one of them."""
    page = events_of(viewer.resources, job_id, tenant=viewer.caller.tenant, before_id=before)
    return viewer.render("events.html", job_id=job_id, page=page)


@router.get("/jobs/{job_id}/why")
def show_why(viewer: ViewerDep, job_id: UUID) -> Response:
    """Show which words and rules decided a job's route, and what would change it."""
    with viewer.resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=viewer.caller.tenant)
        found = reasons_of(session, job, policy=viewer.resources.policy, vocabularies=viewer.resources.vocabularies)
    return viewer.render("why.html", job_id=job_id, why=found, decided=job.route.get("reason", ""))


@router.get("/jobs/{job_id}/stream")
async def stream(
    viewer: ViewerDep,
    job_id: UUID,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, lt=2**63)] = None,
) -> Response:
    """Stream a job's events as lines of its page; a browser resumes a lost stream by itself."""
    after = after if last_event_id is None else last_event_id
    tenant = viewer.caller.tenant
    first = await run_in_threadpool(read_events, viewer.resources.ledger, job_id, tenant=tenant, after=after)
    line = load_templates().get_template("parts/event.html")
    streams = viewer.resources.streams
    holder = Holder(viewer.session.holder, viewer.session.nonce)
    news = streams.follow(job_id, holder=holder, after=after, first=first, tick_seconds=_REFRESH_SECONDS)
    return streams.open(viewer.caller.key_id, _lines(news, line.render))


async def _lines(news: AsyncIterator[News], render_line: Callable[..., str]) -> AsyncIterator[ServerSentEvent]:
    """Yield each event's line and, at intervals and after the last event, that the page has changed."""
    is_stale, refreshed_at = False, 0.0
    async for one in news:
        for event in one.events:
            yield ServerSentEvent(data=render_line(event=event).strip(), event="line", id=str(event.id))
        is_stale = is_stale or bool(one.events)
        if one.is_over or (is_stale and time.monotonic() - refreshed_at >= _REFRESH_SECONDS):
            yield ServerSentEvent(data="changed", event="changed")
            is_stale, refreshed_at = False, time.monotonic()
        if one.is_over:
            yield ServerSentEvent(data="over", event="over")


decisions_router = APIRouter(prefix="/jobs/{job_id}")

Reason = Annotated[str, Form(max_length=2000)]
UNDO_SECONDS = 10
"""How long the publish of what is approved on its page waits: enough to see what one has pressed."""


@decisions_router.post("/approve")
def approve_job(
    viewer: Approver,
    job_id: UUID,
    release_id: Annotated[UUID, Form()],
    report_digest: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """Approve exactly the release that the page showed; for some seconds this can be undone."""
    with refusals_on(f"/jobs/{job_id}"):
        approve_shown(viewer.resources, viewer.caller, job_id, Seen(release_id, report_digest))
    return viewer.redirect(f"/jobs/{job_id}", notice=f"Approved; for {UNDO_SECONDS} seconds this can be undone.")


def approve_shown(resources: Resources, caller: Caller, job_id: UUID, seen: Seen) -> None:
    """Approve what a page showed of a job."""
    with resources.ledger.begin() as session:
        approve(
            session,
            job_id,
            actor=caller.actor,
            policy=resources.policy,
            tenant=caller.tenant,
            seen=seen,
            undo_seconds=UNDO_SECONDS,
        )


@decisions_router.post("/undo")
def undo_job_approval(viewer: Approver, job_id: UUID) -> Response:
    """Undo an approval whose publish still waits."""
    with refusals_on(f"/jobs/{job_id}"), viewer.resources.ledger.begin() as session:
        job = undo_approval(session, job_id, actor=viewer.caller.actor, tenant=viewer.caller.tenant)
    is_open = job.state == State.AWAITING_APPROVAL
    then = "the preview waits for a decision again" if is_open else "a newer job had replaced this one"
    return viewer.redirect(f"/jobs/{job_id}", notice=f"Undone; {then}.")


@decisions_router.post("/reject")
def reject_job(viewer: Approver, job_id: UUID, reason: Reason = "") -> Response:
    """Reject the preview; the live site stays as it is."""
    if not reason.strip():
        return viewer.redirect(f"/jobs/{job_id}", notice="Give a reason, which the owner will see.", is_error=True)

    with refusals_on(f"/jobs/{job_id}"), viewer.resources.ledger.begin() as session:
        reject(session, job_id, actor=viewer.caller.actor, reason=reason.strip(), tenant=viewer.caller.tenant)
    return viewer.redirect(f"/jobs/{job_id}", notice="Rejected; the live site is unchanged.")


@decisions_router.post("/cancel")
def cancel_job(viewer: Submitter, job_id: UUID) -> Response:
    """Cancel a job: at once, or at its next model call or step."""
    with refusals_on(f"/jobs/{job_id}"), viewer.resources.ledger.begin() as session:
        request_cancel(session, lock_job(session, job_id, tenant=viewer.caller.tenant), actor=viewer.caller.actor)
    return viewer.redirect(f"/jobs/{job_id}", notice="Cancelled, or will be at its next step.")


@decisions_router.post("/reply")
def reply(
    viewer: Submitter,
    job_id: UUID,
    option: Annotated[str, Form(max_length=200)] = "",
    text: Annotated[str, Form(max_length=MAX_REPLY_CHARACTERS)] = "",
) -> Response:
    """Answer a job's question with a button or in words."""
    whose = {"tenant": viewer.caller.tenant, "actor": viewer.caller.actor}
    with refusals_on(f"/jobs/{job_id}"):
        if option:
            taken = viewer.resources.clarifier.choose(job_id, option, **whose)
        else:
            taken = viewer.resources.clarifier.reply(job_id, text.strip(), **whose)
    said = "Answered." if taken.handled else "That did not answer the question, which stays open."
    return viewer.redirect(f"/jobs/{job_id}", notice=said)


@decisions_router.post("/revise")
def revise(
    viewer: Submitter,
    job_id: UUID,
    text: Annotated[str, Form()] = "",
    tier: Annotated[TierName | Literal[""], Form()] = "",
) -> Response:
    """Request changes to a job's result, on the same bill and possibly another tier."""
    with refusals_on(f"/jobs/{job_id}"):
        order = parse_as(ReviseOrder, {"text": text} | ({"tier": tier} if tier else {}))
        new = viewer.resources.rounds.revise(job_id, order, requester=requester_of(viewer.caller))
    page = "runs" if is_run(new.job) else "jobs"
    return viewer.redirect(f"/{page}/{new.job.id}", notice="This round continues the previous one.")


@decisions_router.post("/override")
def override(viewer: Submitter, job_id: UUID, tier: Annotated[TierName, Form()]) -> Response:
    """Repeat the request on another tier, in place of this job."""
    with refusals_on(f"/jobs/{job_id}"):
        new = viewer.resources.replays.override(job_id, tier, requester=requester_of(viewer.caller))
    return viewer.redirect(f"/jobs/{new.job.id}", notice=f"This job replaces the previous one, on tier {tier}.")


@decisions_router.post("/resume")
def resume(viewer: Submitter, job_id: UUID, budget: Annotated[str, Form()] = "") -> Response:
    """Add budget and continue the same work."""
    with refusals_on(f"/jobs/{job_id}"):
        order = parse_as(ResumeOrder, {"budget_usd": budget})
        new = viewer.resources.rounds.resume(job_id, order, requester=requester_of(viewer.caller))
    return viewer.redirect(f"/jobs/{new.job.id}", notice="Resumed with the added budget.")


@decisions_router.post("/retry")
def retry(viewer: Submitter, job_id: UUID) -> Response:
    """Repeat a failed job's request on the same bill, from the site as it is now."""
    with refusals_on(f"/jobs/{job_id}"):
        new = viewer.resources.replays.replay(job_id, requester=requester_of(viewer.caller))
    return viewer.redirect(f"/jobs/{new.job.id}", notice="Tried again, on the same bill.")
