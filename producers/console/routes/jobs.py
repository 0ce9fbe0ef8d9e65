"""Jobs as they are looked at: the list with filter and search, one job with all about it, and its live events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Form, Header, Query, Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from monitoring.ledger.jobs import find_job
from producers.api.stream import News, look, watch
from producers.console import listing
from producers.console.job_facts import events_of, facts_of
from producers.console.reasons import reasons_of
from producers.console.web import (
    REFUSALS,
    ConsoleDep,
    ConsoleResources,
    Submitter,
    ViewerDep,
    go,
    is_part,
    render,
    told,
)
from routing.jobs import Door, State

router = APIRouter()

_REFRESH_SECONDS = 0.7
"""How long a page is left as it is at least, however much happens."""


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
    sites = [one.name for one in resources.sites.all(viewer.caller.tenant)] if not is_part(request) else []
    template = "parts/jobs.html" if is_part(request) else "jobs.html"
    return render(request, template, viewer=viewer, page=page, wanted=wanted, states=tuple(State), sites=sites)


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
    body = {"prompt": prompt, "site": site.strip(), "tier": tier, "budget_usd": budget}
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
    facts = facts_of(resources, job_id, tenant=viewer.caller.tenant)
    template = "parts/job.html" if is_part(request) else "job.html"
    return render(request, template, viewer=viewer, **facts)


@router.get("/jobs/{job_id}/events")
def show_events(
    request: Request,
    resources: ConsoleResources,
    viewer: ViewerDep,
    job_id: UUID,
    before: Annotated[int, Query(ge=0, lt=2**63)] = 2**63 - 1,
) -> Response:
    """Show a page of a job's events that ends before one of them: the way back from the newest."""
    page = events_of(resources, job_id, tenant=viewer.caller.tenant, before_id=before)
    template = "parts/events.html" if is_part(request) else "events.html"
    return render(request, template, viewer=viewer, job_id=job_id, page=page)


@router.get("/jobs/{job_id}/why")
def show_why(request: Request, resources: ConsoleResources, viewer: ViewerDep, job_id: UUID) -> Response:
    """Tell which words and rules decided where a job went, and what would have changed it."""
    with resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=viewer.caller.tenant)
        found = reasons_of(session, job, policy=resources.policy, vocabularies=resources.vocabularies)
    template = "parts/why.html" if is_part(request) else "why.html"
    return render(request, template, viewer=viewer, job_id=job_id, why=found, decided=job.route.get("reason", ""))


@router.get("/jobs/{job_id}/stream")
async def stream(
    request: Request,
    resources: ConsoleResources,
    console: ConsoleDep,
    viewer: ViewerDep,
    job_id: UUID,
    after: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    last_event_id: Annotated[int | None, Header(ge=0, lt=2**63)] = None,
) -> Response:
    """Send a job's events as lines of its page, while they happen; a browser that was cut off goes on by itself."""
    after = after if last_event_id is None else last_event_id
    tenant = viewer.caller.tenant
    first = await run_in_threadpool(look, resources.ledger, job_id, tenant=tenant, after=after)
    line = console.templates.get_template("parts/event.html")
    news = watch(
        resources.ledger, job_id, tenant=tenant, after=after, first=first, poll_seconds=resources.poll_seconds,
        stopping=request.app.state.stopping,
    )  # fmt: skip
    return EventSourceResponse(_lines(news, line.render), ping=15, headers={"Cache-Control": "no-store"})


async def _lines(news: AsyncIterator[News], render_line: Callable[..., str]) -> AsyncIterator[ServerSentEvent]:
    """Yield each event's line, and now and then that the page has changed: never later than with the last event."""
    is_owed, told_at = False, 0.0
    async for one in news:
        for event in one.events:
            yield ServerSentEvent(data=render_line(event=event).strip(), event="line", id=str(event.id))
        is_owed = is_owed or bool(one.events)
        if one.is_over or (is_owed and time.monotonic() - told_at >= _REFRESH_SECONDS):
            yield ServerSentEvent(data="changed", event="changed")
            is_owed, told_at = False, time.monotonic()
        if one.is_over:
            yield ServerSentEvent(data="over", event="over")
