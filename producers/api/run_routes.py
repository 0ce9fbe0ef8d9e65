"""Runs, gates and projects over HTTP. A run is a job as well: events and cancelling are those of `/v1/jobs`."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from ledger.runs.run import Verdict, decide_gate, find_gate, open_gates
from producers.api.examples import body_of
from producers.api.requests import (
    Admin,
    Approver,
    Reader,
    Resources,
    ResourcesDep,
    SubmitCaller,
    body_reader,
    parse_model,
    read_body,
)
from producers.intake.ticket_webhooks import MAX_DELIVERY_BYTES, Ignored, TicketDoor, Tracker
from producers.use_cases.runs import GateView, Projects, ProjectView, RunView, describe_run, gate_view
from producers.use_cases.tenants import Caller
from producers.use_cases.tickets import TicketBody, job_body
from routing.errors import FieldError, InvalidJobError
from routing.jobs import Door, State

router = APIRouter(prefix="/v1")

Body = Annotated[bytes, Depends(read_body)]

_TICKET = {
    "project": "shop",
    "title": "The cart forgets its items",
    "body": "Reload the page: it is empty.",
    "labels": ["bug"],
    "priority": "P1",
    "url": "https://tracker.example/SHOP-17",
}


class NewProjectBody(BaseModel):
    """A project's name and its file."""

    model_config = ConfigDict(extra="forbid")

    name: str
    file: str = Field(min_length=1, max_length=65_536)
    """YAML: repo, stack, keys, models, budgets, rules, integrations. It names keys and never holds one."""


class DecisionBody(BaseModel):
    """Why a gate is passed or failed."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    reason: str = Field(default="", max_length=2000)


class AcceptedRunView(BaseModel):
    """A run was accepted: it will reach exactly one end."""

    id: UUID
    state: State
    is_new: bool
    """False when the idempotency key had been used for the same ticket: this is the run from then."""
    estimate: dict[str, Any]
    """What it will probably cost."""
    url: str
    events_url: str


@router.get("/projects", tags=["projects"])
def get_projects(resources: ResourcesDep, caller: Reader) -> list[ProjectView]:
    """List the tenant's code projects by name."""
    return list(_projects(resources).all(caller.tenant))


@router.post(
    "/projects",
    status_code=201,
    tags=["projects"],
    openapi_extra=body_of(NewProjectBody, {"name": "shop", "file": "repo: {url: https://forge.example/acme/shop.git}"}),
)
def put_project(resources: ResourcesDep, caller: Admin, raw: Body) -> ProjectView:
    """Add a project from its file, or give the one of this name another configuration."""
    body = parse_model(NewProjectBody, raw)
    return _projects(resources).put(caller.tenant, body.name, body.file, source="file", actor=caller.actor)


@router.post("/runs", status_code=202, tags=["runs"], openapi_extra=body_of(TicketBody, _TICKET))
def submit_run(
    resources: ResourcesDep,
    caller: SubmitCaller,
    raw: Body,
    response: Response,
    idempotency_key: Annotated[str | None, Header(description="The same key and body return the same run.")] = None,
) -> AcceptedRunView:
    """Submit a ticket. Its run plans itself: callers never say who works on it, or in which order."""
    ticket = _with_key(parse_model(TicketBody, raw), idempotency_key)
    accepted = resources.submitter.submit(job_body(ticket), tenant=caller.tenant, door=Door.HTTP, actor=caller.actor)
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
    """Return a run: its steps as a tree with state, tries, cost and seconds, its gates, its plans and its bill."""
    with resources.ledger.begin() as session:
        return describe_run(session, job_id, tenant=caller.tenant)


@router.get("/gates", tags=["runs"])
def get_gates(resources: ResourcesDep, caller: Reader) -> list[GateView]:
    """List the gates that wait for a person, the oldest first."""
    with resources.ledger.begin() as session:
        return [gate_view(gate) for gate in open_gates(session, caller.tenant)]


@router.post("/gates/{gate_id}/pass", tags=["runs"], openapi_extra=body_of(DecisionBody, {"reason": "Looks right."}))
def pass_gate(resources: ResourcesDep, caller: Approver, gate_id: UUID, raw: Body) -> GateView:
    """Let a run go on behind a gate."""
    return _decide(resources, caller, gate_id, "passed", raw)


@router.post("/gates/{gate_id}/fail", tags=["runs"], openapi_extra=body_of(DecisionBody, {"reason": "Not like this."}))
def fail_gate(resources: ResourcesDep, caller: Approver, gate_id: UUID, raw: Body) -> GateView:
    """Stop a run at a gate; what was done is kept."""
    return _decide(resources, caller, gate_id, "failed", raw)


def _decide(resources: Resources, caller: Caller, gate_id: UUID, verdict: Verdict, raw: bytes) -> GateView:
    body = parse_model(DecisionBody, raw)
    with resources.ledger.begin() as session:
        decide_gate(
            session,
            gate_id,
            verdict,
            actor=caller.actor,
            policy=resources.policy,
            note=body.reason,
            tenant=caller.tenant,
        )
        return gate_view(find_gate(session, gate_id))


def _with_key(ticket: TicketBody, key: str | None) -> TicketBody:
    if key is None:
        return ticket
    if ticket.idempotency_key not in (None, key):
        rule = "differs from the header Idempotency-Key; give one of them, or the same in both"
        raise InvalidJobError((FieldError("idempotency_key", rule),))
    return ticket.model_copy(update={"idempotency_key": key})


def _projects(resources: Resources) -> Projects:
    return Projects(resources.ledger, resources.policy)


# Webhooks of trackers over HTTP: signed by the tracker, and so without an API key.

tickets_router = APIRouter(prefix="/v1/tickets", tags=["tickets"])

Delivery = Annotated[bytes, Depends(body_reader(MAX_DELIVERY_BYTES))]


class DeliveryView(BaseModel):
    """What became of a delivery."""

    run_id: UUID | None = None
    is_new: bool = False
    """False when the ticket was being worked on already, or the delivery came again."""
    ignored: str | None = None
    """Why nothing was done."""


@tickets_router.post("/{tracker}/{tenant}/{project}", response_model=DeliveryView)
def take_delivery(
    tracker: Tracker,
    tenant: str,
    project: str,
    resources: ResourcesDep,
    body: Delivery,
    request: Request,
    response: Response,
) -> DeliveryView:
    """Take a webhook of GitHub or Linear: a ticket that gets the project's label becomes a run (202)."""
    door = TicketDoor(resources.ledger, resources.submitter, resources.accounts)
    taken = door.take(body, dict(request.headers), tenant=tenant, project=project, tracker=tracker)
    if isinstance(taken, Ignored):
        return DeliveryView(ignored=taken.why)
    response.status_code = 202
    return DeliveryView(run_id=taken.run_id, is_new=taken.is_new)
