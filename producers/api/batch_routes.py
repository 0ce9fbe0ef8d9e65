"""Many jobs in one request: each is taken in or refused for itself, in the order in which they stand."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from producers.api.bodies import body_reader, parse_json
from producers.api.examples import BATCH_BODY
from producers.api.job_routes import AcceptedView, as_it_is, refusing, show_accepted
from producers.api.problems import Problem, problem_of
from producers.api.resources import ResourcesDep, SubmitCaller
from producers.submit import Outcome, Submitted
from routing.jobs import Door, parse_as

MAX_JOBS = 1_000
"""Of one request."""
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""What a request of many jobs may hold."""

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

BatchBytes = Annotated[bytes, Depends(body_reader(MAX_BATCH_BYTES))]


class BatchBody(BaseModel):
    """Jobs that are submitted together."""

    model_config = ConfigDict(extra="forbid")

    jobs: list[Any] = Field(min_length=1, max_length=MAX_JOBS)
    """Each the body of `POST /v1/jobs`, with an `idempotency_key` of its own if it has one."""


class BatchItem(BaseModel):
    """What became of one of them: a job, or the problem that submitting it alone would have answered with."""

    job: AcceptedView | None = None
    problem: Problem | None = None


class BatchView(BaseModel):
    """What became of jobs that were submitted together."""

    accepted: int
    refused: int
    jobs: list[BatchItem]
    """In the order of the request."""


@router.post("/batch", response_model=BatchView, openapi_extra=BATCH_BODY)
def submit_jobs(resources: ResourcesDep, caller: SubmitCaller, raw: BatchBytes) -> Response:
    """Submit up to 1,000 jobs, each as if it came alone: one that is refused takes no other with it."""
    with refusing(resources, caller):
        bodies = parse_as(BatchBody, parse_json(raw, max_bytes=MAX_BATCH_BYTES)).jobs
    told = resources.submitter.submit_many(bodies, tenant=caller.tenant, door=Door.HTTP, actor=caller.actor)
    accepted = sum(isinstance(one, Submitted) for one in told)
    return as_it_is(BatchView(accepted=accepted, refused=len(told) - accepted, jobs=[_show(one) for one in told]))


def _show(told: Outcome) -> BatchItem:
    if isinstance(told, Submitted):
        return BatchItem(job=show_accepted(told))
    return BatchItem(problem=problem_of(told))
