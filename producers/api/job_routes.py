"""Jobs over HTTP: submit, list, follow, reply, cancel, approve, undo, resume and revise."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, BaseModel, Field, model_validator
from starlette.concurrency import run_in_threadpool

from ledger.job_control import MOST_UNDO_SECONDS, Seen, approve, reject, request_cancel, undo_approval
from ledger.jobs import find_job, lock_job
from ledger.releases import find_site
from ledger.submission import Accepted, KnownKey
from ledger.tables import Job
from producers.api.event_streams import as_json, read_events
from producers.api.http_rules import create_router, refuse_unknown_query
from producers.api.key_limits import Presented
from producers.api.openapi import BATCH_BODY, EVENT_STREAM, KEY_LENGTH, NO_ROOM, SUBMIT_BODY, body_of
from producers.api.problems import Problem, problem_of
from producers.api.requests import (
    Approver,
    Reader,
    Resources,
    ResourcesDep,
    SubmitCaller,
    SubmitKey,
    body_reader,
    parse_json,
    parse_model,
    presented_for_submit,
    read_body,
    requester_of,
    resources_of,
    with_key,
)
from producers.errors import BodyTooLargeError, BrokenBodyError
from producers.intake.submit import Submitted
from producers.use_cases.changes import Comparison, ScanView, changes_of_job, scan_of_job
from producers.use_cases.clarify import MAX_REPLY_CHARACTERS
from producers.use_cases.job_search import JobFilter
from producers.use_cases.jobs import EventView, JobsPage, JobView, describe, page_of_jobs, tier_name
from producers.use_cases.people import Holder
from producers.use_cases.rounds import ResumeOrder, ReviseOrder
from producers.use_cases.tenants import Caller, Scope
from producers.use_cases.waits import cause_of
from routing.errors import FieldError, InvalidJobError
from routing.jobs import SiteName, State, parse_as
from routing.policy.prices import decimal_usd
from routing.queues import TierName, parse_tier

router = create_router("/v1/jobs", tags=["jobs"])

Body = Annotated[bytes, Depends(read_body)]
Cursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the previous page.")]
Key = Annotated[
    str | None, Header(description="The same key and body return the same job.", json_schema_extra=KEY_LENGTH)
]


class AcceptedView(BaseModel):
    """An accepted job. It will reach exactly one final state."""

    id: UUID
    state: State
    mode: str | None
    tier: str | None
    queue: str
    rule: str | None
    why: str | None
    is_new: bool
    """False when the idempotency key was used before for the same request: this is that job."""
    url: str
    events_url: str


class RejectBody(BaseModel, extra="forbid", str_strip_whitespace=True):
    """Why a preview is rejected."""

    reason: str = Field(min_length=1, max_length=2000)


class ApproveBody(BaseModel, extra="forbid"):
    """What the reviewer saw; a given `release_id` or `report_digest` must match what would be published."""

    release_id: UUID | None = None
    report_digest: str | None = Field(default=None, max_length=64)
    undo_seconds: int = Field(default=0, ge=0, le=MOST_UNDO_SECONDS)
    """How long the publish waits, so that the approval can be undone (`POST /v1/jobs/{id}/undo`)."""


class ReplyBody(BaseModel, extra="forbid", str_strip_whitespace=True):
    """An answer to a job's question: in words, or an option's id."""

    text: str | None = Field(default=None, min_length=1, max_length=MAX_REPLY_CHARACTERS)
    option: str | None = Field(default=None, min_length=1, max_length=200)

    @model_validator(mode="after")
    def _is_one(self) -> ReplyBody:
        if (self.text is None) == (self.option is None):
            raise ValueError("give text or option, and only one of them")
        return self


class ReplyView(BaseModel):
    """The effect of a reply, and the job after it."""

    handled: bool
    """False when the text does not answer the question, which stays open: a question, a command, a new request."""
    handled_by_tier: str | None
    outcome: str
    job: JobView


class _SubmitRoute(APIRoute):
    """The busiest route. FastAPI documents its parameters; to solve them would cost as much as the job's row."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what serves a request."""

        async def handle(request: Request) -> Response:
            await refuse_unknown_query(request)
            key = await presented_for_submit(request)
            raw = await read_body(request)
            return await run_in_threadpool(
                submit_job, resources_of(request), key, raw, request.headers.get("idempotency-key")
            )

        return handle


def submit_job(resources: ResourcesDep, key: SubmitKey, raw: Body, idempotency_key: Key = None) -> Response:
    """Submit a job. After a 202 it is durable: no failure of the broker can lose it."""
    submitted = _submit_as_seen(resources, key, raw, idempotency_key)
    if submitted is None:
        caller = resources.caller(key, Scope.SUBMIT)
        with record_refusals(resources, caller):
            body = _job_body(raw, idempotency_key)
        submitted = resources.submitter.submit(body, tenant=caller.tenant, source=caller.source, actor=caller.actor)
    return respond(accepted_view(submitted), status=202, headers={"Location": f"/v1/jobs/{submitted.job.id}"})


router.add_api_route(
    "",
    submit_job,
    methods=["POST"],
    status_code=202,
    response_model=AcceptedView,
    openapi_extra=SUBMIT_BODY,
    responses=NO_ROOM,
    route_class_override=_SubmitRoute,
)


def _job_body(raw: bytes, idempotency_key: str | None) -> Any:
    body = parse_json(raw)
    return body if idempotency_key is None else with_key(body, idempotency_key)


def _submit_as_seen(resources: Resources, key: Presented, raw: bytes, idempotency_key: str | None) -> Submitted | None:
    """Accept a job in one round trip, which checks the key, too; None where the caller must be authenticated first."""
    caller = resources.seen_caller(key, Scope.SUBMIT)
    if caller is None or caller.key_id is None:
        return None
    try:
        body = _job_body(raw, idempotency_key)
    except (BrokenBodyError, BodyTooLargeError, InvalidJobError):
        return None
    known = KnownKey(caller.key_id, sorted(caller.scopes))
    return resources.submitter.submit_on_seen(body, tenant=caller.tenant, actor=caller.actor, key=known)


def respond(view: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response without FastAPI's second validation of the model."""
    return Response(view.model_dump_json(), status, headers, media_type="application/json")


def accepted_view(submitted: Submitted) -> AcceptedView:
    """Return the view of an accepted job."""
    return AcceptedView(**_common(submitted), mode=submitted.job.mode)


def _common(accepted: Submitted | Accepted) -> dict[str, Any]:
    """Return what every accepted job shows of itself."""
    job = accepted.job
    return {
        "id": job.id,
        "state": State(job.state),
        "tier": tier_name(job.tier),
        "queue": job.queue,
        "rule": job.route.get("rule"),
        "why": job.route.get("reason"),
        "is_new": accepted.is_new,
        "url": f"/v1/jobs/{job.id}",
        "events_url": f"/v1/jobs/{job.id}/events",
    }


@contextmanager
def record_refusals(resources: Resources, caller: Caller) -> Iterator[None]:
    """Record an unreadable body as a refused job, as the submitter does for what it refuses."""
    try:
        yield
    except (BrokenBodyError, BodyTooLargeError, InvalidJobError) as error:
        refusal = (
            error if isinstance(error, InvalidJobError) else InvalidJobError((FieldError("body", _rule_of(error)),))
        )
        resources.submitter.record_refusal(refusal, tenant=caller.tenant, source=caller.source, actor=caller.actor)
        raise


def _rule_of(error: Exception) -> str:
    return error.rule if isinstance(error, BrokenBodyError) else "is larger than any job request can be"


@router.get("")
def list_jobs(
    resources: ResourcesDep,
    caller: Reader,
    state: Annotated[list[State] | None, Query(description="Only jobs in these states; repeatable.")] = None,
    tier: Annotated[list[TierName] | None, Query(description="Only jobs on these tiers; repeatable.")] = None,
    site: Annotated[SiteName | None, Query(description="Only jobs of this site.")] = None,
    text: Annotated[str, Query(max_length=200, description="Words of the prompt, or the start or end of an id.")] = "",
    since: Annotated[AwareDatetime | None, Query(description="Only jobs accepted at this time or later.")] = None,
    until: Annotated[AwareDatetime | None, Query(description="Only jobs accepted before this time.")] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> JobsPage:
    """List the tenant's jobs, newest first."""
    with resources.ledger.begin() as session:
        wanted = JobFilter(
            tenant=caller.tenant,
            states=state or (),
            tiers=[parse_tier(name) for name in tier or ()],
            site_id=find_site(session, caller.tenant, site).id if site is not None else None,
            text=text.strip(),
            since=since,
            until=until,
        )
        return page_of_jobs(session, wanted, cursor=cursor, limit=limit)


@router.get("/{job_id}")
def get_job(resources: ResourcesDep, caller: Reader, job_id: UUID) -> JobView:
    """Return a job: state, route, attempts, cost, and the preview while it waits for approval."""
    return _view_of(resources, job_id, tenant=caller.tenant)


@router.get("/{job_id}/diff")
def get_job_diff(resources: ResourcesDep, caller: Reader, job_id: UUID) -> Comparison:
    """Return what a job's release changes, with unified diffs of text."""
    return changes_of_job(resources.ledger, resources.content_store, job_id, tenant=caller.tenant)


@router.get("/{job_id}/scan")
def get_job_scan(resources: ResourcesDep, caller: Reader, job_id: UUID) -> ScanView:
    """Return the scan report of a job's release: what a reviewer approves, or why there is no preview."""
    with resources.ledger.begin() as session:
        return scan_of_job(session, find_job(session, job_id, tenant=caller.tenant))


@router.get(
    "/{job_id}/events",
    response_model=list[EventView],
    response_class=JSONResponse,
    responses={
        200: {
            "description": "The events, as a stream or as one list.",
            "content": {"text/event-stream": {"example": EVENT_STREAM}},
        },
        204: {"description": "The job has ended and the client has every event: do not reconnect."},
        429: {"description": "The key has as many streams open as it may; `Retry-After` says when to come back."},
        503: {"description": "The process has as many streams open as it may; `Retry-After` says when to come back."},
    },
)
async def get_job_events(
    resources: ResourcesDep,
    caller: Reader,
    job_id: UUID,
    format: Annotated[Literal["sse", "json"], Query()] = "sse",
    after: Annotated[int, Query(ge=0, lt=2**63, description="Only events with a higher id.")] = 0,
    last_event_id: Annotated[
        int | None, Header(ge=0, lt=2**63, description="Resume a stream after this event.")
    ] = None,
) -> Response:
    """Follow a job: server-sent events until its final state, or with `format=json` the events so far."""
    after = after if last_event_id is None else last_event_id
    first = await run_in_threadpool(read_events, resources.ledger, job_id, tenant=caller.tenant, after=after)
    if format == "json":
        return JSONResponse([event.model_dump(mode="json") for event in first.events])
    if first.is_over and not first.events:
        return Response(status_code=204)
    streams = resources.streams
    holder = Holder(caller.key_id) if caller.key_id is not None else None
    return streams.open(caller.key_id, as_json(streams.follow(job_id, holder=holder, after=after, first=first)))


@router.post("/{job_id}/cancel")
def cancel_job(resources: ResourcesDep, caller: SubmitCaller, job_id: UUID) -> JobView:
    """Cancel a job: at once if it waits, otherwise at its next model call or step."""
    with resources.ledger.begin() as session:
        job = lock_job(session, job_id, tenant=caller.tenant)
        request_cancel(session, job, actor=caller.actor)
    return _view(resources, job)


@router.post("/{job_id}/reply", openapi_extra=body_of(ReplyBody, {"text": "the second one"}), responses=NO_ROOM)
def reply_to_job(resources: ResourcesDep, caller: SubmitCaller, job_id: UUID, raw: Body) -> ReplyView:
    """Answer a job's question, in words or by an option's id. Text that does not answer it leaves it open."""
    body = parse_model(ReplyBody, raw)
    clarifier = resources.clarifier
    if body.option is not None:
        taken = clarifier.choose(job_id, body.option, tenant=caller.tenant, actor=caller.actor)
    else:
        taken = clarifier.reply(job_id, body.text or "", tenant=caller.tenant, actor=caller.actor)
    return ReplyView(**taken._asdict(), job=_view_of(resources, job_id, tenant=caller.tenant))


@router.post("/{job_id}/approve", openapi_extra=body_of(ApproveBody, {"undo_seconds": 10}))
def approve_job(resources: ResourcesDep, caller: Approver, job_id: UUID, raw: Body) -> JobView:
    """Approve the preview: exactly this release, as scanned, goes live."""
    body = parse_model(ApproveBody, raw)
    seen = Seen(body.release_id, body.report_digest)
    with resources.ledger.begin() as session:
        job = approve(
            session,
            job_id,
            actor=caller.actor,
            policy=resources.policy,
            tenant=caller.tenant,
            seen=seen,
            undo_seconds=body.undo_seconds,
        )
    return _view(resources, job)


@router.post("/{job_id}/undo")
def undo_job_approval(resources: ResourcesDep, caller: Approver, job_id: UUID) -> JobView:
    """Undo the approval while its publish still waits (`undo_until`): the preview awaits a decision as before."""
    with resources.ledger.begin() as session:
        job = undo_approval(session, job_id, actor=caller.actor, tenant=caller.tenant)
    return _view(resources, job)


@router.post("/{job_id}/reject", openapi_extra=body_of(RejectBody, {"reason": "The logo is too large."}))
def reject_job(resources: ResourcesDep, caller: Approver, job_id: UUID, raw: Body) -> JobView:
    """Reject the preview and end the job; the live site stays as it is."""
    body = parse_model(RejectBody, raw)
    with resources.ledger.begin() as session:
        job = reject(session, job_id, actor=caller.actor, reason=body.reason, tenant=caller.tenant)
    return _view(resources, job)


def _view(resources: Resources, job: Job) -> JobView:
    return _view_of(resources, job.id, tenant=job.tenant)


def _view_of(resources: Resources, job_id: UUID, *, tenant: str) -> JobView:
    with resources.ledger.begin() as session:
        job = find_job(session, job_id, tenant=tenant)
        cause = cause_of(session, job, policy=resources.policy)
        return describe(session, job, links=resources.links, cause=cause)


MAX_JOBS = 1_000
"""Per request."""
MAX_BATCH_BYTES = 8 * 1024 * 1024

BatchBytes = Annotated[bytes, Depends(body_reader(MAX_BATCH_BYTES))]


class BatchBody(BaseModel, extra="forbid"):
    """Jobs to submit together."""

    jobs: list[Any] = Field(min_length=1, max_length=MAX_JOBS)
    """Each as the body of `POST /v1/jobs`, with its own `idempotency_key` if any."""


class BatchItem(BaseModel):
    """The outcome of one job: accepted, or the problem that submitting it alone would have returned."""

    job: AcceptedView | None = None
    problem: Problem | None = None


class BatchView(BaseModel):
    """The outcomes of jobs submitted together."""

    accepted: int
    refused: int
    jobs: list[BatchItem]
    """In the order of the request."""


@router.post("/batch", response_model=BatchView, openapi_extra=BATCH_BODY)
def submit_jobs(resources: ResourcesDep, caller: SubmitCaller, raw: BatchBytes) -> Response:
    """Submit up to 1,000 jobs, each accepted or refused on its own."""
    with record_refusals(resources, caller):
        bodies = parse_as(BatchBody, parse_json(raw, max_bytes=MAX_BATCH_BYTES)).jobs
    outcomes = resources.submitter.submit_many(bodies, tenant=caller.tenant, source=caller.source, actor=caller.actor)
    items = [
        BatchItem(job=accepted_view(one)) if isinstance(one, Submitted) else BatchItem(problem=problem_of(one))
        for one in outcomes
    ]
    accepted = sum(item.job is not None for item in items)
    return respond(BatchView(accepted=accepted, refused=len(items) - accepted, jobs=items))


class ContinuedView(BaseModel):
    """An accepted job that continues another one. It will reach exactly one final state."""

    id: UUID
    parent_id: UUID
    session: UUID
    """The first job of the session, whose bill this one adds to."""
    state: State
    tier: str | None
    queue: str
    rule: str | None
    why: str | None
    start_release_id: UUID | None
    """The kept work that it starts from; null when it starts from the live site."""
    cap_usd: str
    """Budget of the whole session up to this job's end, in USD."""
    is_new: bool
    """False when the idempotency key was used before for the same order: this is that job."""
    url: str
    events_url: str


@router.post(
    "/{job_id}/resume", status_code=202, openapi_extra=body_of(ResumeOrder, {"budget_usd": 0.25}), responses=NO_ROOM
)
def resume_job(
    resources: ResourcesDep,
    caller: SubmitCaller,
    job_id: UUID,
    raw: Body,
    response: Response,
    idempotency_key: Key = None,
) -> ContinuedView:
    """Resume a job that failed or hit a limit: the same request, from the kept work, with added budget."""
    order = parse_model(ResumeOrder, raw, key=idempotency_key)
    return _round_view(resources.rounds.resume(job_id, order, requester=requester_of(caller)), job_id, response)


@router.post(
    "/{job_id}/revise",
    status_code=202,
    openapi_extra=body_of(ReviseOrder, {"text": "Make the logo smaller"}),
    responses=NO_ROOM,
)
def revise_job(
    resources: ResourcesDep,
    caller: SubmitCaller,
    job_id: UUID,
    raw: Body,
    response: Response,
    idempotency_key: Key = None,
) -> ContinuedView:
    """Request changes to a job's result. A preview that waits for approval ends `rejected`, reason `revised`."""
    order = parse_model(ReviseOrder, raw, key=idempotency_key)
    return _round_view(resources.rounds.revise(job_id, order, requester=requester_of(caller)), job_id, response)


def _round_view(accepted: Accepted, parent_id: UUID, response: Response) -> ContinuedView:
    job = accepted.job
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return ContinuedView(
        **_common(accepted),
        parent_id=parent_id,
        session=job.root_id,
        start_release_id=job.start_release_id,
        cap_usd=decimal_usd(job.cap_nanousd),
    )
