"""Sites, code projects, and runs over HTTP. A run is also a job: `/v1/jobs` has its events and cancels it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Header, Query, Request, Response
from pydantic import BaseModel, Field

from ledger.runs.run import Verdict, decide_gate, find_gate, open_gates
from producers.api.http_rules import create_router
from producers.api.job_routes import AcceptedView, Body, Key, accepted_view, respond
from producers.api.openapi import KEY_LENGTH, NO_ROOM, body_of
from producers.api.requests import (
    Admin,
    Approver,
    Reader,
    Resources,
    ResourcesDep,
    SubmitCaller,
    body_reader,
    parse_model,
)
from producers.intake.ticket_webhooks import Ignored
from producers.intake.webhook_receiver import MAX_DELIVERY_BYTES, Tracker, Waiting, WebhookReceiver
from producers.use_cases.changes import Comparison
from producers.use_cases.imports import Order
from producers.use_cases.run_work import ChangedFile
from producers.use_cases.runs import GateView, ProjectView, RunView, describe_run
from producers.use_cases.sites import ReleaseView, SiteView, release_view, site_view
from producers.use_cases.tenants import Caller
from producers.use_cases.tickets import TicketBody, job_body, may_write
from routing.jobs import SiteName, State
from sites.directories import write_tar

router = create_router("/v1")


class NewSiteBody(BaseModel, extra="forbid"):
    """A site to create, without content."""

    name: SiteName
    profile: str = "default"


class RollbackBody(BaseModel, extra="forbid"):
    """The release to return to."""

    release_id: UUID | None = None
    """A published release of the site; default: the one that the active release replaced."""


class RevokeBody(BaseModel, extra="forbid"):
    """The release whose preview links are revoked."""

    release_id: UUID | None = None
    """A release of the site, published or not; default: all of them."""


class RevokedView(BaseModel):
    """How many releases had their preview links revoked."""

    releases: int
    """New links to them are available at once."""


@router.get("/sites", tags=["sites"])
def list_sites(resources: ResourcesDep, caller: Reader) -> list[SiteView]:
    """List the tenant's sites by name."""
    return [site_view(site, pages_url=resources.pages_url) for site in resources.sites.all(caller.tenant)]


@router.post("/sites", status_code=201, tags=["sites"], openapi_extra=body_of(NewSiteBody, {"name": "bakery"}))
def create_site(resources: ResourcesDep, caller: Admin, raw: Body, response: Response) -> SiteView:
    """Create an empty site."""
    body = parse_model(NewSiteBody, raw)
    site = resources.sites.create(caller.tenant, body.name, profile=body.profile, actor=caller.actor)
    response.headers["Location"] = f"/v1/sites/{site.name}/releases"
    return site_view(site, pages_url=resources.pages_url)


@router.get("/sites/{name}/releases", tags=["sites"])
def list_releases(
    resources: ResourcesDep, caller: Reader, name: SiteName, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> list[ReleaseView]:
    """List a site's published releases, newest first."""
    site, releases = resources.sites.releases(caller.tenant, name, limit=limit)
    return [release_view(release, is_active=release.id == site.active_release_id) for release in releases]


@router.post("/sites/{name}/rollback", tags=["sites"], openapi_extra=body_of(RollbackBody, {}))
def roll_back_site(resources: ResourcesDep, caller: Approver, name: SiteName, raw: Body) -> ReleaseView:
    """Make an earlier release the active one again."""
    body = parse_model(RollbackBody, raw)
    release = resources.sites.rollback(caller.tenant, name, to=body.release_id, actor=caller.actor)
    return release_view(release, is_active=True)


@router.post("/sites/{name}/revoke-previews", tags=["sites"], openapi_extra=body_of(RevokeBody, {}))
def revoke_previews(resources: ResourcesDep, caller: Approver, name: SiteName, raw: Body) -> RevokedView:
    """Revoke every preview link of a site, for example because one leaked."""
    body = parse_model(RevokeBody, raw)
    revoked = resources.sites.revoke_previews(caller.tenant, name, release=body.release_id, actor=caller.actor)
    return RevokedView(releases=revoked)


@router.get("/sites/{name}/diff", tags=["sites"])
def get_site_diff(
    resources: ResourcesDep,
    caller: Reader,
    name: SiteName,
    before: Annotated[UUID | None, Query(description="Default: the release that `after` replaced.")] = None,
    after: Annotated[UUID | None, Query(description="Default: the active release.")] = None,
) -> Comparison:
    """Return what changed between two releases, file by file, with unified diffs of text."""
    return resources.sites.diff(caller.tenant, name, before, after)


@router.get(
    "/sites/{name}/export",
    tags=["sites"],
    response_class=Response,
    responses={200: {"description": "A tar archive.", "content": {"application/x-tar": {}}}},
)
def export_site(
    resources: ResourcesDep,
    caller: Reader,
    name: SiteName,
    release: Annotated[UUID | None, Query(description="Default: the active release.")] = None,
    sources: Annotated[bool, Query(description="Include the sources of a built site.")] = False,
) -> Response:
    """Return what a release serves as a tar archive, with its spec as `site.json` if it has one."""
    exported, files = resources.sites.read(caller.tenant, name, release=release, with_sources=sources)
    headers = {"Content-Disposition": f'attachment; filename="{name}-{exported.digest[:12]}.tar"'}
    return Response(write_tar(files, name), media_type="application/x-tar", headers=headers)


_ARCHIVE = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/imports",
    status_code=202,
    tags=["sites"],
    response_model=AcceptedView,
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": _ARCHIVE}}},
    responses=NO_ROOM,
)
async def import_site(
    resources: ResourcesDep,
    caller: SubmitCaller,
    request: Request,
    name: Annotated[SiteName, Query(description="The site, which is made if there is none of this name.")],
    idempotency_key: Key = None,
) -> Response:
    """Import a site from a zip or tar.gz archive: a job unpacks and scans it, and offers it for approval."""
    order = Order(caller, name, idempotency_key, stated_bytes(request))
    with resources.imports.one_more(caller.tenant):
        submitted = await resources.imports.take(order, request.stream())
    return respond(accepted_view(submitted), status=202, headers={"Location": f"/v1/jobs/{submitted.job.id}"})


def stated_bytes(request: Request) -> int | None:
    """Return the length that a request states for its body, if it does."""
    text = request.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


_TICKET = {
    "project": "shop",
    "title": "The cart forgets its items",
    "body": "Reload the page: it is empty.",
    "labels": ["bug"],
    "priority": "P1",
    "url": "https://tracker.example/SHOP-17",
}


_PROJECT = """repo: {url: https://forge.example/acme/shop.git}
stack: {language: typescript}
keys: {anthropic: acme}
"""


class NewProjectBody(BaseModel, extra="forbid"):
    """A project's name and its file."""

    name: SiteName
    file: str = Field(min_length=1, max_length=65_536)
    """YAML: repo, stack, keys, models, budgets, rules, integrations. It names keys but never holds one."""


class DecisionBody(BaseModel, extra="forbid", str_strip_whitespace=True):
    """Why a gate passes or fails."""

    reason: str = Field(default="", max_length=2000)


class PassBody(DecisionBody):
    """Why a gate passes, and at what work."""

    head: str | None = Field(default=None, max_length=64)
    """The `head` of the gate's facts that was looked at; given, the gate is passed at no other one."""


class ReworkBody(BaseModel, extra="forbid", str_strip_whitespace=True):
    """Why the work at a gate is sent back."""

    reason: str = Field(min_length=1, max_length=2000)
    """What to change; the agents that rework are told."""


class AcceptedRunView(BaseModel):
    """A run was accepted: it will reach exactly one end."""

    id: UUID
    state: State
    is_new: bool
    """False when the idempotency key was used before for the same ticket: this is that run."""
    estimate: dict[str, Any]
    """What it will probably cost."""
    url: str
    events_url: str


@router.get("/projects", tags=["projects"])
def list_projects(resources: ResourcesDep, caller: Reader) -> list[ProjectView]:
    """List the tenant's code projects by name."""
    return list(resources.projects.all(caller.tenant))


@router.post(
    "/projects",
    status_code=201,
    tags=["projects"],
    openapi_extra=body_of(NewProjectBody, {"name": "shop", "file": _PROJECT}),
)
def put_project(resources: ResourcesDep, caller: Admin, raw: Body) -> ProjectView:
    """Add a project from its file, or replace the one of this name."""
    body = parse_model(NewProjectBody, raw)
    return resources.projects.put(caller.tenant, body.name, body.file, source="file", actor=caller.actor)


@router.post("/runs", status_code=202, tags=["runs"], openapi_extra=body_of(TicketBody, _TICKET), responses=NO_ROOM)
def submit_run(
    resources: ResourcesDep,
    caller: SubmitCaller,
    raw: Body,
    response: Response,
    idempotency_key: Annotated[
        str | None, Header(description="The same key and body return the same run.", json_schema_extra=KEY_LENGTH)
    ] = None,
) -> AcceptedRunView:
    """Submit a ticket. Its run plans itself: callers do not choose agents or their order."""
    ticket = parse_model(TicketBody, raw, key=idempotency_key)
    accepted = resources.submitter.submit(
        job_body(ticket), tenant=caller.tenant, source=caller.source, actor=caller.actor
    )
    run_id = accepted.job.id
    with resources.ledger.begin() as session:
        view = describe_run(session, run_id, tenant=caller.tenant)
    response.headers["Location"] = f"/v1/runs/{run_id}"
    return AcceptedRunView(
        id=run_id,
        state=view.state,
        is_new=accepted.is_new,
        estimate=view.cost.estimate,
        url=f"/v1/runs/{run_id}",
        events_url=f"/v1/jobs/{run_id}/events",
    )


@router.get("/runs/{job_id}", tags=["runs"])
def get_run(resources: ResourcesDep, caller: Reader, job_id: UUID) -> RunView:
    """Return a run: its steps with state, attempts, cost and duration, its gates, plans and costs."""
    with resources.ledger.begin() as session:
        return describe_run(session, job_id, tenant=caller.tenant)


@router.get("/runs/{job_id}/diff", tags=["runs"])
def get_run_diff(
    resources: ResourcesDep,
    caller: Reader,
    job_id: UUID,
    step: Annotated[str | None, Query(max_length=200, description="Only what this step's last try changed.")] = None,
    since_last: Annotated[bool, Query(description="Only what is new since the last decided gate.")] = False,
) -> list[ChangedFile]:
    """Return what a run has changed, whatever its end. Files with secrets are named and not shown."""
    return resources.run_work.diff(job_id, tenant=caller.tenant, step=step, since_last=since_last)


@router.get(
    "/runs/{job_id}/bundle",
    tags=["runs"],
    response_class=Response,
    responses={
        200: {"description": "A git bundle.", "content": {"application/x-git-bundle": {}}},
        409: {"description": "Nothing was changed, it is too large, or a changed file holds a secret."},
    },
)
def get_run_bundle(resources: ResourcesDep, caller: Reader, job_id: UUID) -> Response:
    """Return the work of a run, whatever its end, as a git bundle of one branch with one commit on the run's base."""
    return bundle_response(resources, job_id, caller)


def bundle_response(resources: Resources, run_id: UUID, caller: Caller) -> Response:
    """Return the bundle of a run as a file to be saved; raises what `RunWork.bundle` raises."""
    headers = {"Content-Disposition": f'attachment; filename="{run_id}.bundle"'}
    bundle = resources.run_work.bundle(run_id, tenant=caller.tenant)
    return Response(bundle, media_type="application/x-git-bundle", headers=headers)


@router.get("/gates/{gate_id}", tags=["runs"])
def get_gate(resources: ResourcesDep, caller: Reader, gate_id: UUID) -> GateView:
    """Return a gate; its facts hold the findings that a person decides about."""
    with resources.ledger.begin() as session:
        return GateView.of(find_gate(session, gate_id, tenant=caller.tenant))


@router.get("/gates", tags=["runs"])
def list_gates(resources: ResourcesDep, caller: Reader) -> list[GateView]:
    """List the open gates, the oldest first."""
    with resources.ledger.begin() as session:
        return [*map(GateView.of, open_gates(session, caller.tenant))]


@router.post("/gates/{gate_id}/pass", tags=["runs"], openapi_extra=body_of(PassBody, {"reason": "Looks right."}))
def pass_gate(resources: ResourcesDep, caller: Approver, gate_id: UUID, raw: Body) -> GateView:
    """Pass a gate, so that its run continues."""
    body = parse_model(PassBody, raw)
    return _decide(resources, caller, gate_id, "passed", body.reason, seen=body.head)


@router.post(
    "/gates/{gate_id}/rework", tags=["runs"], openapi_extra=body_of(ReworkBody, {"reason": "Keep the border."})
)
def rework_gate(resources: ResourcesDep, caller: Approver, gate_id: UUID, raw: Body) -> GateView:
    """Send the work at a gate back to its agents, with a reason; once it is reworked, a person is asked again."""
    return _decide(resources, caller, gate_id, "rework", parse_model(ReworkBody, raw).reason)


@router.post("/gates/{gate_id}/fail", tags=["runs"], openapi_extra=body_of(DecisionBody, {"reason": "Not like this."}))
def fail_gate(resources: ResourcesDep, caller: Approver, gate_id: UUID, raw: Body) -> GateView:
    """Fail a gate, which ends its run; the work done so far is kept."""
    return _decide(resources, caller, gate_id, "failed", parse_model(DecisionBody, raw).reason)


def _decide(
    resources: Resources, caller: Caller, gate_id: UUID, verdict: Verdict, reason: str, *, seen: str | None = None
) -> GateView:
    who: dict[str, Any] = {"actor": caller.actor, "tenant": caller.tenant}
    with resources.ledger.begin() as session:
        decide_gate(session, gate_id, verdict, policy=resources.policy, note=reason, seen=seen, **who)
        return GateView.of(find_gate(session, gate_id, tenant=caller.tenant))


webhook_router = create_router("/v1/tickets", tags=["tickets"], is_strict=False)

Delivery = Annotated[bytes, Depends(body_reader(MAX_DELIVERY_BYTES))]


class DeliveryView(BaseModel):
    """What became of a delivery."""

    run_id: UUID | None = None
    is_new: bool = False
    """False when the ticket already has a run, the delivery is a repetition, or what it says of the run's pull request
    is kept for its next round."""
    ignored: str | None = None
    """Why the delivery was ignored."""
    waits: str | None = None
    """Why it is kept: it is tried again each minute, for three days."""


@webhook_router.post(
    "/{tracker}/{tenant}/{project}",
    response_model=DeliveryView,
    responses={
        202: {"model": DeliveryView, "description": "The ticket is a run, or the comment or the delivery is kept."},
        413: {"description": "The delivery is too long."},
    },
)
def receive_ticket(
    tracker: Tracker,
    tenant: str,
    project: str,
    resources: ResourcesDep,
    body: Delivery,
    request: Request,
    response: Response,
) -> DeliveryView:
    """Receive a webhook of GitHub, GitLab or Linear: a ticket that gets the project's label becomes a run (202).

    Reviews, comments and failed checks of a run's pull request start further rounds of it.
    """
    receiver = WebhookReceiver(resources.ledger, resources.submitter, resources.accounts, may_write=may_write)
    taken = receiver.take(body, dict(request.headers), tenant=tenant, project=project, tracker=tracker)
    if isinstance(taken, Ignored):
        return DeliveryView(ignored=taken.why)
    response.status_code = 202
    if isinstance(taken, Waiting):
        return DeliveryView(waits=taken.why)
    return DeliveryView(run_id=taken.run_id, is_new=taken.is_new)
