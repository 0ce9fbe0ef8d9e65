"""Jobs: the list with filter and search, one job with everything about it, and what a person decides about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Form, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from monitoring.errors import MonitoringError
from monitoring.ledger.approvals import Seen, approve, reject
from monitoring.ledger.cancelling import request_cancel
from monitoring.ledger.events import events_after
from monitoring.ledger.jobs import find_job, lock_job
from monitoring.ledger.releases import ReleaseNotFoundError, ReleaseSweptError
from monitoring.ledger.tables import Job, Release
from producers.api.resources import Resources
from producers.api.stream import News, Tail, look, watch
from producers.comparison import Comparison
from producers.console import listing
from producers.console.web import (
    Approver,
    ConsoleDep,
    ConsoleResources,
    Submitter,
    Viewer,
    ViewerDep,
    go,
    is_part,
    render,
    told,
)
from producers.errors import ProducerError
from producers.jobs import CONSOLE_AUDIENCE, describe, describe_events
from producers.review import changes_of_job
from producers.rounds import Asker, ResumeOrder, ReviseOrder
from routing.errors import RoutingError
from routing.jobs import RESUMABLE, REVISABLE, Door, State, parse_as

router = APIRouter()

REFUSALS = (MonitoringError, ProducerError, RoutingError)
"""How the layers below say no to a person: told on the page, and nothing was done."""
_EVENTS_SHOWN = 200


@router.get("/jobs")
def show_jobs(
    request: Request,
    resources: ConsoleResources,
    viewer: ViewerDep,
    state: Annotated[list[State | Literal[""]] | None, Query()] = None,
    site: Annotated[str, Query(max_length=64)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    before: Annotated[datetime | None, Query()] = None,
) -> Response:
    """List the tenant's jobs, newest first, by state, site and words of the prompt."""
    states = tuple(one for one in state or () if one)
    wanted = listing.Filter(states=states, site=site.strip(), text=text.strip(), before=before)
    with resources.ledger.begin() as session:
        page = listing.page_of(session, viewer.caller.tenant, wanted)
    template = "parts/jobs.html" if is_part(request) else "jobs.html"
    return render(request, template, viewer=viewer, page=page, wanted=wanted, states=tuple(State))


@router.post("/jobs")
def submit(
    request: Request,
    resources: ConsoleResources,
    viewer: Submitter,
    prompt: Annotated[str, Form()],
    site: Annotated[str, Form()] = "",
    tier: Annotated[str, Form()] = "",
    budget: Annotated[str, Form()] = "",
) -> Response:
    """Submit a job by hand."""
    body = {"prompt": prompt, "site": site, "tier": tier, "budget_usd": budget}
    try:
        accepted = resources.submitter.submit(
            {name: value for name, value in body.items() if value}, tenant=viewer.caller.tenant, door=Door.HTTP,
            actor=viewer.caller.actor,
        )  # fmt: skip
    except REFUSALS as error:
        return go(request, "/jobs", notice=told(error), is_error=True)
    return go(request, f"/jobs/{accepted.job.id}")


@router.get("/jobs/{job_id}")
def show_job(request: Request, resources: ConsoleResources, viewer: ViewerDep, job_id: UUID) -> Response:
    """Show one job: its question or preview first, since somebody may be waited for."""
    facts = _facts(resources, viewer, job_id)
    template = "parts/job.html" if is_part(request) else "job.html"
    return render(request, template, viewer=viewer, **facts)


@router.get("/jobs/{job_id}/stream")
async def stream(
    request: Request, resources: ConsoleResources, console: ConsoleDep, viewer: ViewerDep, job_id: UUID, after: int = 0
) -> Response:
    """Send a job's events as lines of its page, while they happen."""
    tail = Tail(after)
    tenant = viewer.caller.tenant
    first = await run_in_threadpool(look, resources.ledger, job_id, tenant=tenant, tail=tail)
    line = console.templates.get_template("parts/event.html")
    news = watch(
        resources.ledger, job_id, tenant=tenant, tail=tail, first=first, poll_seconds=resources.poll_seconds,
        stopping=request.app.state.stopping,
    )  # fmt: skip
    return EventSourceResponse(_lines(news, line.render), ping=15, headers={"Cache-Control": "no-store"})


async def _lines(news: AsyncIterator[News], render_line: Callable[..., str]) -> AsyncIterator[ServerSentEvent]:
    async for one in news:
        for event in one.events:
            yield ServerSentEvent(data=render_line(event=event).strip(), event="line", id=str(event.id))
        if one.events:
            yield ServerSentEvent(data="changed", event="changed")
        if one.is_over:
            yield ServerSentEvent(data="over", event="over")


def _facts(resources: Resources, viewer: Viewer, job_id: UUID) -> dict[str, Any]:
    tenant = viewer.caller.tenant
    with resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=tenant)
        view = describe(session, job, links=resources.links)
        events = describe_events(session, events_after(session, job_id, after_id=0, limit=_EVENTS_SHOWN))
        offered = session.get(Release, job.release_id) if job.release_id else None
        base = session.get(Release, offered.base_release_id) if offered and offered.base_release_id else None
        before = _frame(resources, base) if base is not None and base.published_at is not None else None
        after = _frame(resources, offered) if offered is not None and _is_offered(job, offered) else None
    return {
        "job": view, "events": events, "before_url": before, "after_url": after,
        "changes": _changes(resources, job_id, tenant=tenant), "can_resume": view.state in RESUMABLE,
        "can_revise": view.state in REVISABLE and view.continued_as is None, "last_event": _last(events),
    }  # fmt: skip


def _last(events: list[Any]) -> int:
    return max((event.id for event in events), default=0)


def _frame(resources: Resources, release: Release) -> str | None:
    """Return a link that the console may show in a frame; None where the files are gone."""
    return None if release.swept_at is not None else resources.links.url_of(release, audience=CONSOLE_AUDIENCE)


def _is_offered(job: Job, release: Release) -> bool:
    return job.state in (State.AWAITING_APPROVAL, State.PUBLISHING) or release.published_at is not None


def _changes(resources: Resources, job_id: UUID, *, tenant: str) -> Comparison | None:
    try:
        return changes_of_job(resources.ledger, resources.den, job_id, tenant=tenant)
    except (ReleaseNotFoundError, ReleaseSweptError):
        return None


def _then(request: Request, job_id: UUID, do: Callable[[], str | UUID | None], *, done: str) -> Response:
    """Do what a person asks and show the job again, or the job that goes on from it."""
    try:
        outcome = do()
    except REFUSALS as error:
        return go(request, f"/jobs/{job_id}", notice=told(error), is_error=True)
    following = outcome if isinstance(outcome, UUID) else job_id
    return go(request, f"/jobs/{following}", notice=outcome if isinstance(outcome, str) else done)


@router.post("/jobs/{job_id}/approve")
def approve_job(
    request: Request,
    resources: ConsoleResources,
    viewer: Approver,
    job_id: UUID,
    release_id: Annotated[UUID, Form()],
    report_digest: Annotated[str, Form(max_length=64)],
) -> Response:
    """Approve exactly the release that the page showed."""

    def do() -> None:
        with resources.ledger.begin() as session:
            approve(
                session, job_id, actor=viewer.caller.actor, policy=resources.policy, tenant=viewer.caller.tenant,
                seen=Seen(release_id, report_digest),
            )  # fmt: skip

    return _then(request, job_id, do, done="Approved: it is being published.")


@router.post("/jobs/{job_id}/reject")
def reject_job(
    request: Request, resources: ConsoleResources, viewer: Approver, job_id: UUID, reason: Annotated[str, Form()]
) -> Response:
    """Reject the preview; the live site stays as it is."""

    def do() -> None:
        with resources.ledger.begin() as session:
            reject(session, job_id, actor=viewer.caller.actor, reason=reason.strip(), tenant=viewer.caller.tenant)

    return _then(request, job_id, do, done="Rejected: the live site stays as it is.")


@router.post("/jobs/{job_id}/cancel")
def cancel_job(request: Request, resources: ConsoleResources, viewer: Submitter, job_id: UUID) -> Response:
    """Cancel a job: at once, or at its next call or step."""

    def do() -> None:
        with resources.ledger.begin() as session:
            job = lock_job(session, job_id, tenant=viewer.caller.tenant)
            request_cancel(session, job, actor=viewer.caller.actor)

    return _then(request, job_id, do, done="Cancelled, or about to be at its next step.")


@router.post("/jobs/{job_id}/reply")
def reply(
    request: Request,
    resources: ConsoleResources,
    viewer: Submitter,
    job_id: UUID,
    option: Annotated[str, Form(max_length=200)] = "",
    text: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Answer a job's question by a button or in words."""
    tenant, actor = viewer.caller.tenant, viewer.caller.actor

    def do() -> str:
        taken = (
            resources.clarifier.choose(job_id, option, tenant=tenant, actor=actor)
            if option
            else resources.clarifier.reply(job_id, text, tenant=tenant, actor=actor)
        )
        return "Answered." if taken.handled else "That did not answer the question, which stays open."

    return _then(request, job_id, do, done="")


@router.post("/jobs/{job_id}/revise")
def revise(
    request: Request,
    resources: ConsoleResources,
    viewer: Submitter,
    job_id: UUID,
    text: Annotated[str, Form()],
    tier: Annotated[Literal["", "spec", "patch", "agent"], Form()] = "",
) -> Response:
    """Go on from what a job made with a new request, on the same bill; the tier may be chosen anew."""

    def do() -> UUID:
        order = parse_as(ReviseOrder, {"text": text} | ({"tier": tier} if tier else {}))
        return resources.rounds.revise(job_id, order, asker=_asker(viewer)).job.id

    return _then(request, job_id, do, done="This round goes on from the one before it.")


@router.post("/jobs/{job_id}/resume")
def resume(
    request: Request, resources: ConsoleResources, viewer: Submitter, job_id: UUID, budget: Annotated[str, Form()]
) -> Response:
    """Add budget and let the same work go on."""

    def do() -> UUID:
        order = parse_as(ResumeOrder, {"budget_usd": budget})
        return resources.rounds.resume(job_id, order, asker=_asker(viewer)).job.id

    return _then(request, job_id, do, done="It goes on with the budget you added.")


def _asker(viewer: Viewer) -> Asker:
    return Asker(tenant=viewer.caller.tenant, door=Door.HTTP, actor=viewer.caller.actor)
