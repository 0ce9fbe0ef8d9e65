"""Go on from what a job saved in a new one on the same bill: `resume` and `revise` (H-041).

The active release stays until a round is published. The old job keeps its row; at most its preview is sent back or it
is cancelled. The new one is accepted, routed and queued like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field
from sqlmodel import Session

from ledger import audit
from ledger.decisions import debated_keys
from ledger.errors import NotContinuableError
from ledger.job_control import send_back
from ledger.job_ends import is_run
from ledger.jobs import INHERITED_FACTS, lock_job
from ledger.releases import RoundContext, continued_work, load_round_context, rounds_of
from ledger.runs.run import continue_run
from ledger.store import Ledger
from ledger.submission import Accepted, accept, same_request
from ledger.tables import Job, NewJob, Release, Site, digest_request
from monitoring import traces
from producers.intake.decisions import check_headroom, check_means_something, policy_of
from producers.intake.submit import Environment, Requester
from routing.config import Text
from routing.decision.llm_router import first_stage
from routing.decision.router import Route, SiteSignals, decide, signals_of
from routing.errors import FieldError, InvalidJobError
from routing.ids import new_id
from routing.jobs import (
    ANSWERS,
    OPEN_QUESTION,
    RESUMABLE,
    REVISABLE,
    REVISABLE_RUNS,
    JobRequest,
    State,
    parse_request,
    read_stored,
)
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import QueueName, TierName
from routing.rounds import (
    Verb,
    added_nanousd,
    can_go_on,
    check_changes_something,
    choose_resume_queue,
    earlier_requests,
    fit_route,
    higher_stakes,
    work_begun,
)

Result = dict[str, Any]
"""A job's `result` column."""
_INHERITED_FIELDS = ("session", "callback_url", "priority", "preference", "advanced_edit")
"""Request fields that a revision takes over."""


class ResumeOrder(BaseModel, frozen=True, extra="forbid"):
    """The terms of a resume."""

    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)]
    """USD on top of what its bill has spent: at most what one job may cost here."""
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None


class ReviseOrder(BaseModel, frozen=True, extra="forbid"):
    """The change to make to a job's work."""

    text: Text
    """What to change, in plain words, at most 32 KiB of UTF-8."""
    tier: TierName | None = None
    """The tier to use; by default the rules decide, and never go below what the work so far needs."""
    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)] | None = None
    """What this round may cost, in USD; by default what the session's first request said, or what one job may cost."""
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None


@dataclass(frozen=True)
class Continuation:
    """What rounds and replays share."""

    ledger: Ledger
    policy: Policy
    environment: Environment = dict
    vocabularies: Vocabularies = field(default_factory=shipped_vocabularies)

    def _decide(
        self, session: Session, job: Job, request: JobRequest, *, site: SiteSignals | None, policy: Policy
    ) -> Route:
        debated = debated_keys(session, job.tenant, request.session or str(job.root_id))
        signals = signals_of(request, site=site, debated=debated)
        signals = signals.model_copy(update={"new_site": signals.new_site and site is None})
        return decide(signals, policy, self.vocabularies.of(job.tenant))

    def _routed(
        self, new: NewJob, route: Route, policy: Policy, *, start: Release | None, cap_nanousd: int, result: Result
    ) -> NewJob:
        stage = first_stage(route, policy, environment=self.environment())
        return replace(
            new,
            state=stage.state,
            queue=stage.queue,
            mode=route.mode.value,
            tier=route.tier.value if route.tier else None,
            route=route.stored(),
            start_release_id=start.id if start is not None else None,
            cap_nanousd=cap_nanousd,
            result=result,
        )


class Rounds(Continuation):
    """Resumes and revises jobs."""

    def resume(self, job_id: UUID, order: ResumeOrder, *, requester: Requester) -> Accepted:
        """Continue a job that a limit or a failure ended: the same request, from what was saved, with more money.

        Raises:
            InvalidJobError: the caller's fault: more money than one job may cost.
            JobNotFoundError: the caller's fault.
            NotContinuableError: the caller's fault, or nobody's.
            IdempotencyConflictError: the caller's fault.
            AdmissionRefusedError: nobody's fault: no headroom now; nothing has changed, and it says when to come back.
        """
        with self.ledger.begin() as session:
            job = lock_job(session, job_id, tenant=requester.tenant)
            request = parse_request({**job.request, "prompt": job.prompt, **order.model_dump()})
            new = new_job(job, request, verb=Verb.RESUME, requester=requester)
            if (earlier := _same_order(session, new)) is not None:
                return earlier
            _check_state(job, Verb.RESUME)
            context = load_round_context(session, job)
            policy = policy_of(session, job.tenant, self.policy)
            cap_nanousd = context.spent_nanousd + added_nanousd(order.budget_usd, policy)
            new = _resumed(new, job, context, cap_nanousd=cap_nanousd)
            check_headroom(session, new.queue, job.tenant, policy=policy)
            accepted = accept(session, new, actor=requester.actor)
            _audit(session, job, accepted.job, verb=Verb.RESUME, requester=requester)
            return accepted

    def revise(self, job_id: UUID, order: ReviseOrder, *, requester: Requester) -> Accepted:
        """Change what a job made by a new request; a preview that awaits approval is sent back.

        Raises:
            InvalidJobError: the caller's fault: the text orders no change, or the tier cannot do it.
            JobNotFoundError: the caller's fault.
            NotContinuableError: the caller's fault, or nobody's.
            IdempotencyConflictError: the caller's fault.
            AdmissionRefusedError: nobody's fault: no headroom now; nothing has changed, and it says when to come back.
        """
        with self.ledger.begin() as session:
            job = lock_job(session, job_id, tenant=requester.tenant)
            return self.revise_in(session, job, order, requester=requester)

    def revise_in(self, session: Session, job: Job, order: ReviseOrder, *, requester: Requester) -> Accepted:
        """Revise a locked job within a transaction; raises as `revise` does."""
        request = _revised_request(session, job, order)
        new = new_job(job, request, verb=Verb.REVISE, requester=requester)
        if (earlier := _same_order(session, new)) is not None:
            return earlier
        _check_state(job, Verb.REVISE)
        context = load_round_context(session, job)
        policy = policy_of(session, job.tenant, self.policy)
        if is_run(job):
            new = _revised_run(new, job, context, policy)
        else:
            new = self._revised(session, new, job, context, policy)
        check_headroom(session, new.queue, job.tenant, policy=policy)
        if job.state == State.AWAITING_APPROVAL:
            send_back(session, job, actor=requester.actor, text=order.text, successor=new)
            accepted = Accepted(lock_job(session, new.id), is_new=True)
        else:
            accepted = accept(session, new, actor=requester.actor)
        if is_run(job):
            continue_run(session, accepted.job, job)
        _audit(session, job, accepted.job, verb=Verb.REVISE, requester=requester)
        return accepted

    def _revised(self, session: Session, new: NewJob, job: Job, context: RoundContext, policy: Policy) -> NewJob:
        """Route a revision by the rules, on the site as the work so far would make it."""
        start, request = context.start, new.request
        if start is None:
            raise NotContinuableError(job.id, "nothing_kept")
        rounds = rounds_of(session, job.root_id)
        route = self._decide(session, job, request, site=read_stored(SiteSignals, start.signals), policy=policy)
        check_changes_something(route)
        route = fit_route(route, continued_work(start, rounds), policy, is_chosen=request.tier is not None)
        return self._routed(
            new,
            with_stakes_of(job, route),
            policy,
            start=start,
            cap_nanousd=context.spent_nanousd + policy.job_cap_nanousd(request.budget_usd),
            result=_result_of_revision(job, rounds),
        )


def _resumed(new: NewJob, job: Job, context: RoundContext, *, cap_nanousd: int) -> NewJob:
    """Return the job that continues the same work on the same tier."""
    begun = work_begun(job.result, report=_report(job), keeps=job.release_id is not None)
    facts = {name: job.result[name] for name in INHERITED_FACTS if name in job.result}
    is_debated = "debate" in job.result or bool(job.result.get("failure_debate"))
    queue = choose_resume_queue(tier=job.tier, queue=job.queue, route=job.route, is_debated=is_debated)
    if queue is None:
        raise NotContinuableError(job.id, "unbound")
    return replace(
        new,
        state=State.DEBATING if queue == QueueName.INTAKE else State.QUEUED,
        queue=queue,
        mode=job.mode,
        tier=job.tier,
        route=job.route,
        keeps_route=True,
        start_release_id=context.start.id if context.start is not None else None,
        cap_nanousd=cap_nanousd,
        result={**facts, "verb": Verb.RESUME.value, "begun": begun},
    )


def _revised_run(new: NewJob, job: Job, context: RoundContext, policy: Policy) -> NewJob:
    """Return the round of a run: planned anew, on the session's budget unless the order adds money."""
    if new.request.tier is not None:
        raise InvalidJobError((FieldError("tier", "is none of a run's: its plan chooses the agents"),))
    cap_nanousd = job.cap_nanousd
    if (budget := new.request.budget_usd) is not None:
        cap_nanousd = context.spent_nanousd + added_nanousd(budget, policy, is_run=True)
    if context.spent_nanousd >= cap_nanousd:
        raise NotContinuableError(job.id, "spent")
    return replace(
        new,
        queue=QueueName.CONTROL,
        mode=job.mode,
        route=job.route,
        keeps_route=True,
        cap_nanousd=cap_nanousd,
        result={"verb": Verb.REVISE.value},
    )


def _result_of_revision(job: Job, rounds: Sequence[Job]) -> Result:
    """Return what a revision's worker needs to know: what the files were made for, and what of it they lack."""
    done = {one.prompt: _said(one) for one in rounds if one.release_id is not None}
    begun: dict[str, Any] = {"earlier": earlier_requests(list(done.values()))}
    if question := job.result.get(OPEN_QUESTION):
        begun["asked"] = question
    if not_done := [_said(one) for one in rounds if one.prompt not in done]:
        begun["not_done"] = earlier_requests(not_done)
    if job.state in RESUMABLE and job.release_id is not None:
        begun["cut_short"] = _report(job)
    result = {"verb": Verb.REVISE.value, "begun": begun}
    return {**result, "needs_person": True} if job.result.get("needs_person") else result


def _said(job: Job) -> str:
    """Return a request with its owner's answers at work."""
    return "; ".join(
        (job.prompt, *(f"asked {one['question']!r}: {one['answer']}" for one in job.result.get(ANSWERS, ())))
    )


def _report(job: Job) -> str:
    """Return how a job ended, in the ledger's words and its worker's own."""
    parts = (job.detail, job.result.get("summary") if job.result.get("is_salvaged") else None)
    return " ".join(str(part) for part in parts if part)


def _revised_request(session: Session, job: Job, order: ReviseOrder) -> JobRequest:
    check_means_something(order.text, field="text")
    site = session.get(Site, job.site_id) if job.site_id is not None else None
    first = session.get_one(Job, job.root_id).request
    body: dict[str, Any] = {name: job.request[name] for name in _INHERITED_FIELDS if name in job.request}
    if is_run(job):
        body |= {name: job.request[name] for name in ("project", "ticket") if name in job.request}
    else:
        body |= {"budget_usd": first["budget_usd"]} if "budget_usd" in first else {}
    body |= {"site": site.name} if site is not None else {}
    body |= order.model_dump(exclude={"text"}, exclude_none=True)
    try:
        return parse_request({**body, "prompt": order.text})
    except InvalidJobError as error:
        fields = (FieldError("text" if one.field == "prompt" else one.field, one.rule) for one in error.errors)
        raise InvalidJobError(tuple(fields)) from None


def new_job(job: Job, request: JobRequest, *, verb: Verb, requester: Requester) -> NewJob:
    """Return the part of a round that its parent and its requester decide."""
    order = json.dumps([verb.value, str(job.id), digest_request(request)])
    return NewJob(
        id=new_id(),
        tenant=job.tenant,
        source=requester.source,
        requested_by=requester.actor,
        request=request,
        state=State.QUEUED,
        queue=QueueName(job.queue),
        site_id=job.site_id,
        trace=traces.current(),
        parent_id=job.id,
        root_id=job.root_id,
        digest=hashlib.sha256(order.encode()).hexdigest(),
    )


def with_stakes_of(job: Job, route: Route) -> Route:
    """Return the route with the stakes of the job before it, where these are higher."""
    return route.model_copy(update={"stakes": higher_stakes(job.route.get("stakes"), route.stakes)})


def _same_order(session: Session, new: NewJob) -> Accepted | None:
    """Return the job that the same order made before under the same idempotency key."""
    if new.request.idempotency_key is None:
        return None
    job = same_request(session, new.tenant, new.request, job_id=new.id, digest=new.digest)
    return Accepted(job, is_new=False) if job is not None else None


def _check_state(job: Job, verb: Verb) -> None:
    if not can_go_on(verb, State(job.state), job.reason, is_run=is_run(job)):
        revisable = REVISABLE_RUNS if is_run(job) else REVISABLE
        wanted = sorted(state.value for state in (RESUMABLE if verb is Verb.RESUME else revisable))
        needs = f"{verb.value} needs {', '.join(wanted)}"
        why = f"the same request would end as {job.reason} again" if job.state in wanted else needs
        raise NotContinuableError(job.id, "state", f"{job.state}; {why}")


def _audit(session: Session, job: Job, new: Job, *, verb: Verb, requester: Requester) -> None:
    audit.append(
        session,
        f"job_{verb.value}d",
        actor=requester.actor,
        job=job,
        continued_as=str(new.id),
        start=str(new.start_release_id) if new.start_release_id else None,
        cap_nanousd=new.cap_nanousd,
    )
