"""What a person decides about a job: approve, reject, answer, cancel, revise, do over on another tier, add budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from ledger.errors import JobNotFoundError
from ledger.job_control import Seen, approve, reject, request_cancel
from ledger.jobs import lock_job
from producers.api.requests import asker_of
from producers.console.web import REFUSALS, Approver, ConsoleResources, Submitter, go, told
from producers.use_cases.clarify import MAX_REPLY_CHARACTERS
from producers.use_cases.rounds import ResumeOrder, ReviseOrder
from routing.jobs import parse_as
from routing.queues import TierName

router = APIRouter(prefix="/jobs/{job_id}")

Reason = Annotated[str, Form(max_length=2000)]


def _then(request: Request, job_id: UUID, do: Callable[[], str | UUID | None], *, done: str) -> Response:
    """Do what a person asks and show the job again, or the job that goes on from it."""
    try:
        outcome = do()
    except JobNotFoundError:  # of this tenant: nothing is told of it
        raise
    except REFUSALS as error:
        return go(request, f"/jobs/{job_id}", notice=told(error), is_error=True)
    following = outcome if isinstance(outcome, UUID) else job_id
    return go(request, f"/jobs/{following}", notice=outcome if isinstance(outcome, str) else done)


@router.post("/approve")
def approve_job(
    request: Request,
    resources: ConsoleResources,
    viewer: Approver,
    job_id: UUID,
    release_id: Annotated[UUID, Form()],
    report_digest: Annotated[str, Form(max_length=64)] = "",
) -> Response:
    """Approve exactly the release that the page showed."""

    def do() -> None:
        with resources.ledger.begin() as session:
            approve(
                session,
                job_id,
                actor=viewer.caller.actor,
                policy=resources.policy,
                tenant=viewer.caller.tenant,
                seen=Seen(release_id, report_digest),
            )

    return _then(request, job_id, do, done="Approved: it is being published.")


@router.post("/reject")
def reject_job(
    request: Request, resources: ConsoleResources, viewer: Approver, job_id: UUID, reason: Reason = ""
) -> Response:
    """Reject the preview; the live site stays as it is."""
    if not reason.strip():
        return go(request, f"/jobs/{job_id}", notice="Say why you reject it: its owner is told.", is_error=True)

    def do() -> None:
        with resources.ledger.begin() as session:
            reject(session, job_id, actor=viewer.caller.actor, reason=reason.strip(), tenant=viewer.caller.tenant)

    return _then(request, job_id, do, done="Rejected: the live site stays as it is.")


@router.post("/cancel")
def cancel_job(request: Request, resources: ConsoleResources, viewer: Submitter, job_id: UUID) -> Response:
    """Cancel a job: at once, or at its next call or step."""

    def do() -> None:
        with resources.ledger.begin() as session:
            job = lock_job(session, job_id, tenant=viewer.caller.tenant)
            request_cancel(session, job, actor=viewer.caller.actor)

    return _then(request, job_id, do, done="Cancelled, or about to be at its next step.")


@router.post("/reply")
def reply(
    request: Request,
    resources: ConsoleResources,
    viewer: Submitter,
    job_id: UUID,
    option: Annotated[str, Form(max_length=200)] = "",
    text: Annotated[str, Form(max_length=MAX_REPLY_CHARACTERS)] = "",
) -> Response:
    """Answer a job's question by a button or in words."""
    tenant, actor = viewer.caller.tenant, viewer.caller.actor

    def do() -> str:
        taken = (
            resources.clarifier.choose(job_id, option, tenant=tenant, actor=actor)
            if option
            else resources.clarifier.reply(job_id, text.strip(), tenant=tenant, actor=actor)
        )
        return "Answered." if taken.handled else "That did not answer the question, which stays open."

    return _then(request, job_id, do, done="")


@router.post("/revise")
def revise(
    request: Request,
    resources: ConsoleResources,
    viewer: Submitter,
    job_id: UUID,
    text: Annotated[str, Form()] = "",
    tier: Annotated[TierName | Literal[""], Form()] = "",
) -> Response:
    """Go on from what a job made with a new request, on the same bill; the tier may be chosen anew."""

    def do() -> UUID:
        order = parse_as(ReviseOrder, {"text": text} | ({"tier": tier} if tier else {}))
        return resources.rounds.revise(job_id, order, asker=asker_of(viewer.caller)).job.id

    return _then(request, job_id, do, done="This round goes on from the one before it.")


@router.post("/override")
def override(
    request: Request, resources: ConsoleResources, viewer: Submitter, job_id: UUID, tier: Annotated[TierName, Form()]
) -> Response:
    """Do the same request over on another tier, in place of this job."""

    def do() -> UUID:
        return resources.replays.override(job_id, tier, asker=asker_of(viewer.caller)).job.id

    return _then(request, job_id, do, done=f"This job does the same on tier {tier}, in place of the one before.")


@router.post("/resume")
def resume(
    request: Request, resources: ConsoleResources, viewer: Submitter, job_id: UUID, budget: Annotated[str, Form()] = ""
) -> Response:
    """Add budget and let the same work go on."""

    def do() -> UUID:
        order = parse_as(ResumeOrder, {"budget_usd": budget})
        return resources.rounds.resume(job_id, order, asker=asker_of(viewer.caller)).job.id

    return _then(request, job_id, do, done="It goes on with the budget you added.")
