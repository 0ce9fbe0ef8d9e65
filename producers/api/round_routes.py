"""Rounds over HTTP: resume what was cut short, revise what was made. Both answer with a new job."""

from __future__ import annotations

from typing import Annotated, TypeVar
from uuid import UUID

from fastapi import APIRouter, Header, Response
from pydantic import BaseModel

from monitoring.ledger.insert_jobs import Accepted
from producers.api.bodies import parse_json, with_key
from producers.api.examples import body_of
from producers.api.job_routes import Body
from producers.api.resources import ResourcesDep, SubmitCaller, asker_of
from producers.jobs import tier_name
from producers.rounds import ResumeOrder, ReviseOrder
from routing.jobs import State, parse_as
from routing.prices import decimal_usd

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Key = Annotated[str | None, Header(description="The same key and body return the same job.")]
WantedT = TypeVar("WantedT", ResumeOrder, ReviseOrder)


class ContinuedView(BaseModel):
    """A job that goes on from another one was accepted: it will reach exactly one end."""

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
    """The kept work that it starts from; null when nothing was kept, so that it starts from the site as it is."""
    cap_usd: str
    """What the whole session may have cost when this job ends, in USD."""
    is_new: bool
    """False when the idempotency key had been used for the same order: this is the job from then."""
    url: str
    events_url: str


@router.post("/{job_id}/resume", status_code=202, openapi_extra=body_of(ResumeOrder, {"budget_usd": 0.25}))
def resume_job(
    resources: ResourcesDep, caller: SubmitCaller, job_id: UUID, raw: Body, response: Response,
    idempotency_key: Key = None,
) -> ContinuedView:  # fmt: skip
    """Go on with a job that a limit or a failure ended: the same request, from what was kept, with added budget."""
    order = _order(ResumeOrder, raw, idempotency_key)
    return _view(resources.rounds.resume(job_id, order, asker=asker_of(caller)), job_id, response)


@router.post("/{job_id}/revise", status_code=202, openapi_extra=body_of(ReviseOrder, {"text": "Make the logo smaller"}))
def revise_job(
    resources: ResourcesDep, caller: SubmitCaller, job_id: UUID, raw: Body, response: Response,
    idempotency_key: Key = None,
) -> ContinuedView:  # fmt: skip
    """Change what a job made by a new request. A preview that waits for approval ends `rejected`, reason `revised`."""
    order = _order(ReviseOrder, raw, idempotency_key)
    return _view(resources.rounds.revise(job_id, order, asker=asker_of(caller)), job_id, response)


def _order(model: type[WantedT], raw: bytes, key: str | None) -> WantedT:
    body = parse_json(raw) if raw.strip() else {}
    return parse_as(model, body if key is None else with_key(body, key))


def _view(accepted: Accepted, parent_id: UUID, response: Response) -> ContinuedView:
    job = accepted.job
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    return ContinuedView(
        id=job.id,
        parent_id=parent_id,
        session=job.root_id,
        state=State(job.state),
        tier=tier_name(job.tier),
        queue=job.queue,
        rule=job.route.get("rule"),
        why=job.route.get("reason"),
        start_release_id=job.start_release_id,
        cap_usd=decimal_usd(job.cap_nanousd),
        is_new=accepted.is_new,
        url=f"/v1/jobs/{job.id}",
        events_url=f"/v1/jobs/{job.id}/events",
    )
