"""`resume` and `revise`: a new job that goes on from one that is over, on one bill, from what that one kept (H-041).

Nothing of the old job changes but its preview's judgement: the new one is accepted, routed and queued like any other.
The active release stays what it is until a round is published.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args
from uuid import UUID, uuid4

from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from ledger import audit
from ledger.approvals import send_back
from ledger.cancelling import WORKED_ON, request_cancel
from ledger.decisions import debated_keys
from ledger.errors import NotContinuableError, ProjectNotFoundError, WrongStateError
from ledger.jobs import KEPT_FACTS, end, lock_job
from ledger.money import OF_THE_DAY, last_budget_exceeded
from ledger.releases import active_release
from ledger.rounds import (
    RoundContext,
    is_about_earlier_work,
    load_round_context,
    rounds_of,
    successor_of,
    verb_of,
    work_so_far,
)
from ledger.run_tables import Project
from ledger.runs import find_project, new_run
from ledger.step_ends import is_run, is_step
from ledger.store import Ledger
from ledger.submission import Accepted, accept, same_request
from ledger.tables import Job, NewJob, Release, Site, digest_request
from monitoring import traces
from producers.intake.decisions import check_room, policy_of, policy_of_project
from producers.intake.submit import Environment
from routing.config import Text
from routing.decision.llm_router import first_stage
from routing.decision.router import Mode, Route, SiteSignals, decide, signals_of
from routing.errors import FieldError, InvalidJobError, MissingKeyError, PolicyError
from routing.estimate import estimate_run
from routing.jobs import ENDS, RESUMABLE, REVISABLE, Door, JobRequest, Reason, State, parse_request, read_stored
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import QueueName, TierName, tier_named
from routing.rounds import (
    Verb,
    Work,
    added_nanousd,
    can_go_on,
    check_changes_something,
    earlier_requests,
    fit_to,
    higher_stakes,
    place_of_resumed,
)

_PASSED_ON = ("session", "callback_url", "priority", "preference", "advanced_edit")
"""What a revision keeps of the request that it revises."""


class ResumeOrder(BaseModel):
    """What a job is resumed with."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)]
    """Money on top of what its bill has spent, in USD: at most what one job may cost here."""
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None


class ReviseOrder(BaseModel):
    """How a job's work is to be changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Text
    """What to change of it, in plain words, at most 32 KiB of UTF-8."""
    tier: TierName | None = None
    """The tier to do it on; without one the rules decide, and never below what the work so far needs."""
    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)] | None = None
    """What this round may cost, in USD; without it what the session's first request said, or what one job may cost."""
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=200)] | None = None


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Who asks for a round, and how."""

    tenant: str
    door: Door
    actor: str
    """As the audit trail names actors."""


class Rounds:
    """Lets jobs go on from others, for one installation."""

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        *,
        environment: Environment = dict,
        vocabularies: Vocabularies | None = None,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._environment = environment
        self._vocabularies = vocabularies or shipped_vocabularies()

    def resume(self, job_id: UUID, order: ResumeOrder, *, asker: Asker) -> Accepted:
        """Go on with a job that a limit or a failure ended: the same request, from what was kept, with more money.

        Raises:
            InvalidJobError: the caller's fault: more money than one job may cost.
            JobNotFoundError: the caller's fault.
            NotContinuableError: the caller's fault, or nobody's.
            IdempotencyConflictError: the caller's fault.
        """
        with self._ledger.begin() as session:
            job = lock_job(session, job_id, tenant=asker.tenant)
            new = _new_job(job, _resumed_request(job, order), verb=Verb.RESUME, asker=asker)
            if (known := _known(session, new)) is not None:
                return known
            _check_state(job, Verb.RESUME)
            ground = load_round_context(session, job)
            policy = policy_of(session, job.tenant, self._policy)
            added = added_nanousd(order.budget_usd, policy)
            accepted = accept(session, _resumed(new, job, ground, added=added), actor=asker.actor)
            _audit(session, job, accepted.job, verb=Verb.RESUME, asker=asker)
            return accepted

    def revise(self, job_id: UUID, order: ReviseOrder, *, asker: Asker) -> Accepted:
        """Change what a job made by a new request; a preview that waits for approval is sent back by it.

        Raises:
            InvalidJobError: the caller's fault: the text orders no change, or the tier cannot do it.
            JobNotFoundError: the caller's fault.
            NotContinuableError: the caller's fault, or nobody's.
            IdempotencyConflictError: the caller's fault.
        """
        with self._ledger.begin() as session:
            job = lock_job(session, job_id, tenant=asker.tenant)
            request = _revised_request(session, job, order)
            new = _new_job(job, request, verb=Verb.REVISE, asker=asker)
            if (known := _known(session, new)) is not None:
                return known
            _check_state(job, Verb.REVISE)
            ground = load_round_context(session, job)
            new = self._revised(session, new, job, ground)
            if job.state == State.AWAITING_APPROVAL:
                send_back(session, job, actor=asker.actor, text=order.text, successor=new)
                accepted = Accepted(lock_job(session, new.id), is_new=True)
            else:
                accepted = accept(session, new, actor=asker.actor)
            _audit(session, job, accepted.job, verb=Verb.REVISE, asker=asker)
            return accepted

    def _revised(self, session: Session, new: NewJob, job: Job, ground: RoundContext) -> NewJob:
        start = ground.start
        if start is None:
            raise NotContinuableError(job.id, "nothing_kept")
        policy = policy_of(session, job.tenant, self._policy)
        so_far = rounds_of(session, job.root_id)
        signals = read_stored(SiteSignals, start.signals)
        route = self._route(session, new.request, job, signals, work=work_so_far(start, so_far), policy=policy)
        stage = first_stage(route, policy, environment=self._environment())
        return replace(
            new,
            state=stage.state,
            queue=stage.queue,
            mode=route.mode.value,
            tier=route.tier.value if route.tier else None,
            route=route.model_dump(mode="json"),
            start_release_id=start.id,
            cap_nanousd=ground.spent_nanousd + policy.job_cap_nanousd(new.request.budget_usd),
            result=_told_of_revision(job, [one.prompt for one in so_far]),
        )

    def _route(
        self, session: Session, request: JobRequest, job: Job, signals: SiteSignals, *, work: Work, policy: Policy
    ) -> Route:
        """Decide about a revision by the rules, on the site as the work so far would make it."""
        debated = debated_keys(session, job.tenant, request.session or str(job.root_id))
        asked = signals_of(request, site=signals, debated=debated)
        route = decide(asked, policy, self._vocabularies.of(job.tenant))
        check_changes_something(route)
        route = fit_to(route, work, policy, is_chosen=request.tier is not None)
        return route.model_copy(update={"stakes": higher_stakes(job.route.get("stakes"), route.stakes)})


def _resumed(new: NewJob, job: Job, ground: RoundContext, *, added: int) -> NewJob:
    """Return the job that goes on with the same work on the same tier."""
    begun = job.result.get("begun") or {}
    is_kept = job.release_id is not None or bool(begun.get("is_kept"))
    begun = {**begun, "report": _report(job), "is_kept": is_kept}
    known = {name: job.result[name] for name in KEPT_FACTS if name in job.result}
    is_debated = "debate" in job.result or bool(job.result.get("failure_debate"))
    queue = place_of_resumed(tier=job.tier, queue=job.queue, route=job.route, is_debated=is_debated)
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
        start_release_id=ground.start.id if ground.start is not None else None,
        cap_nanousd=ground.spent_nanousd + added,
        result={**known, "verb": Verb.RESUME.value, "begun": begun},
    )


def _told_of_revision(job: Job, prompts: Sequence[str]) -> dict[str, Any]:
    """Return what a revision has to know: what its files were made for, and whether that was finished."""
    begun: dict[str, Any] = {"earlier": earlier_requests(prompts)}
    if job.state in RESUMABLE:
        begun["cut_short"] = _report(job)
    told = {"verb": Verb.REVISE.value, "begun": begun}
    return {**told, "needs_person": True} if job.result.get("needs_person") else told


def _report(job: Job) -> str:
    """Return what became of a job, in the words that its owner was told, and its worker's own."""
    said = (job.detail, job.result.get("summary") if job.result.get("is_salvaged") else None)
    return " ".join(str(part) for part in said if part)


def _revised_request(session: Session, job: Job, order: ReviseOrder) -> JobRequest:
    site = session.get(Site, job.site_id) if job.site_id is not None else None
    first = session.get_one(Job, job.root_id).request
    body: dict[str, Any] = {name: job.request[name] for name in _PASSED_ON if name in job.request}
    body |= {"budget_usd": first["budget_usd"]} if "budget_usd" in first else {}
    body |= {"site": site.name} if site is not None else {}
    body |= order.model_dump(exclude={"text"}, exclude_none=True)
    try:
        return parse_request({**body, "prompt": order.text})
    except InvalidJobError as error:
        fields = (FieldError("text" if one.field == "prompt" else one.field, one.rule) for one in error.errors)
        raise InvalidJobError(tuple(fields)) from None


def _resumed_request(job: Job, order: ResumeOrder) -> JobRequest:
    return parse_request({**job.request, "prompt": job.prompt, **order.model_dump()})


def _new_job(job: Job, request: JobRequest, *, verb: Verb, asker: Asker) -> NewJob:
    """Return the part of a round that its parent and its asker decide, before anything is looked at."""
    asked = json.dumps([verb.value, str(job.id), digest_request(request)])
    return NewJob(
        id=uuid4(),
        tenant=job.tenant,
        door=asker.door,
        requested_by=asker.actor,
        request=request,
        state=State.QUEUED,
        queue=QueueName(job.queue),
        site_id=job.site_id,
        trace=traces.current(),
        parent_id=job.id,
        root_id=job.root_id,
        digest=hashlib.sha256(asked.encode()).hexdigest(),
    )


def _known(session: Session, new: NewJob) -> Accepted | None:
    """Return the job that the same order, under the same idempotency key, has made already."""
    if new.request.idempotency_key is None:
        return None
    known = same_request(session, new.tenant, new.request, job_id=new.id, digest=new.digest)
    return Accepted(known, is_new=False) if known is not None else None


def _check_state(job: Job, verb: Verb) -> None:
    if not can_go_on(verb, State(job.state), job.reason):
        wanted = sorted(state.value for state in (RESUMABLE if verb is Verb.RESUME else REVISABLE))
        raise NotContinuableError(job.id, "state", f"{job.state}; {verb.value} needs {', '.join(wanted)}")


def _audit(session: Session, job: Job, new: Job, *, verb: Verb, asker: Asker) -> None:
    """Put on record, on the job that is gone on from, who let it go on and at what cap."""
    audit.append(
        session,
        f"job_{verb.value}d",
        actor=asker.actor,
        job=job,
        continued_as=str(new.id),
        start=str(new.start_release_id) if new.start_release_id else None,
        cap_nanousd=new.cap_nanousd,
    )


# A job's request once more, on its bill, decided by today's policy, from today's release: `replay` and `override`.
#
# A replay is for jobs that a defect, a fault or a limit ended, after it was mended. An override is for a person who
# knows
# better which tier fits: it takes the job's place, whether that is live or over. What the job kept is left alone
# (`resume` goes on from it); only a request that was about unpublished work starts from that work again, since it
# means
# nothing without it. Asking twice makes one job: the second time finds the first one's.

_OF_THEIR_TIME = ("idempotency_key", "supersede_key", "start_at")
"""Fields of a request that were about the moment it was made: a replay must not take a newer job's place."""
_SETTLED = frozenset({State.PUBLISHING, State.PUBLISHED, State.ANSWERED, State.CLARIFYING})
"""What is published is changed by a new job; a question is answered first."""
_KEPT = ("debate", "needs_person")
"""What is known of a job that a replay of it has to keep to."""


@dataclass(frozen=True)
class _Today:
    """What a replay is decided by."""

    policy: Policy
    ground: RoundContext
    project: Project | None


class Replays:
    """Replays dead letters, for one installation."""

    def __init__(
        self,
        ledger: Ledger,
        policy: Policy,
        *,
        environment: Environment = dict,
        vocabularies: Vocabularies | None = None,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._environment = environment
        self._vocabularies = vocabularies or shipped_vocabularies()

    def replay(self, job_id: UUID, *, asker: Asker, budget_usd: float | None = None) -> Accepted:
        """Replay one dead letter; the job that it was replayed as before, if it was.

        Args:
            job_id: the dead letter.
            asker: who asks.
            budget_usd: money on top of what its bill has spent; needed where that is all it was allowed.

        Raises:
            InvalidJobError: the caller's fault: too much money, or a request that would be refused today.
            JobNotFoundError: the caller's fault.
            NotContinuableError: the caller's fault, or nobody's.
            AdmissionRefusedError: nobody's fault: there is no room now; it says when to come back.
        """
        with self._ledger.begin() as session:
            job = lock_job(session, job_id, tenant=asker.tenant)
            if (known := _made_before(session, job, Verb.REPLAY)) is not None:
                return Accepted(known, is_new=False)
            _check(job)
            today = self._today(session, job)
            request = _request_of(job) if budget_usd is None else _request_of(job, budget_usd=budget_usd)
            route = self._route(session, job, request, today)
            new = self._new_job(job, today, request, route, asker=asker, cap=_cap(session, job, today, budget_usd))
            check_room(session, new.queue, job.tenant, policy=today.policy)
            accepted = accept(session, new, actor=asker.actor)
            if today.project is not None and not route.trivial:
                estimate = estimate_run(today.policy, route.intent)
                new_run(session, accepted.job, today.project, estimate=estimate)
            audit.append(
                session,
                "job_replayed",
                actor=asker.actor,
                job=job,
                continued_as=str(new.id),
                cap_nanousd=new.cap_nanousd,
            )
            return accepted

    def override(self, job_id: UUID, tier: TierName, *, asker: Asker) -> Accepted:
        """Do a job's request over on another tier, in its place; a refusal leaves everything as it is.

        Raises:
            InvalidJobError: the caller's fault: the request would be refused today, or the tier cannot hold its work.
            JobNotFoundError: the caller's fault.
            WrongStateError: the caller's fault: the job is not one that can be done over, or not on this tier.
            NotContinuableError: the caller's fault, or nobody's.
            AdmissionRefusedError: nobody's fault: there is no room now; it says when to come back.
        """
        with self._ledger.begin() as session:
            job = lock_job(session, job_id, tenant=asker.tenant)
            known = _made_before(session, job, Verb.OVERRIDE)
            if known is not None and known.request.get("tier") == tier:
                return Accepted(known, is_new=False)
            if tier not in tiers_instead(job):
                raise WrongStateError(job.id, job.state, "an edit of a site that is not published, and another tier")
            today = self._today(session, job)
            request = _request_of(job, tier=tier)
            route = self._route(session, job, request, today)
            cap = today.ground.spent_nanousd + today.policy.job_cap_nanousd(request.budget_usd)
            new = self._new_job(job, today, request, route, asker=asker, cap=cap, verb=Verb.OVERRIDE)
            check_room(session, new.queue, job.tenant, policy=today.policy)
            accepted = _take_place(session, job, new, actor=asker.actor)
            audit.append(session, "tier_overridden", actor=asker.actor, job=job, to=tier, continued_as=str(new.id))
            return accepted

    def _today(self, session: Session, job: Job) -> _Today:
        policy = policy_of(session, job.tenant, self._policy)
        name = job.request.get("project")
        if name is None:
            return _Today(policy, load_round_context(session, job, keeps_work=False), None)
        try:
            project = find_project(session, job.tenant, str(name))
            policy = policy_of_project(session, project, policy)
        except (ProjectNotFoundError, PolicyError, MissingKeyError) as error:
            raise NotContinuableError(job.id, "project", str(error)) from None
        return _Today(policy, load_round_context(session, job, keeps_work=False), project)

    def _new_job(
        self,
        job: Job,
        today: _Today,
        request: JobRequest,
        route: Route,
        *,
        asker: Asker,
        cap: int,
        verb: Verb = Verb.REPLAY,
    ) -> NewJob:
        if route.mode is Mode.ACTION and not route.trivial and job.site_id is None and today.project is None:
            raise NotContinuableError(job.id, "unbound")
        stage = first_stage(route, today.policy, environment=self._environment())
        start = today.ground.start
        return NewJob(
            id=uuid4(),
            tenant=job.tenant,
            door=asker.door,
            requested_by=asker.actor,
            request=request,
            state=stage.state,
            queue=stage.queue,
            mode=route.mode.value,
            tier=route.tier.value if route.tier else None,
            route=route.model_dump(mode="json"),
            site_id=job.site_id,
            cap_nanousd=cap,
            trace=traces.current(),
            parent_id=job.id,
            root_id=job.root_id,
            start_release_id=start.id if start is not None else None,
            digest=hashlib.sha256(json.dumps([verb.value, str(job.id), digest_request(request)]).encode()).hexdigest(),
            result=_told(job, verb),
        )

    def _route(self, session: Session, job: Job, request: JobRequest, today: _Today) -> Route:
        debated = debated_keys(session, job.tenant, request.session or str(job.root_id))
        site = _signals(session, today.ground, is_new=request.new_site is not None)
        asked = signals_of(request, site=site, debated=debated)
        asked = asked.model_copy(update={"new_site": asked.new_site and site is None})
        route = decide(asked, today.policy, self._vocabularies.of(job.tenant))
        if (start := today.ground.start) is not None:
            before = [one for one in rounds_of(session, job.root_id) if one.id != job.id]
            work = work_so_far(start, before)
            route = fit_to(route, work, today.policy, is_chosen=request.tier is not None)
        return route.model_copy(update={"stakes": higher_stakes(job.route.get("stakes"), route.stakes)})


def tiers_instead(job: Job) -> Sequence[TierName]:
    """Return the tiers that a job can be done over on, instead of its own; none where that makes no sense."""
    is_edit = job.mode == Mode.ACTION.value and job.tier is not None and job.site_id is not None
    if (
        not is_edit
        or State(job.state) in _SETTLED
        or job.reason == Reason.INVALID_REQUEST
        or is_run(job)
        or is_step(job)
    ):
        return ()
    return [name for name in get_args(TierName) if tier_named(name) != job.tier]


def _take_place(session: Session, job: Job, new: NewJob, *, actor: str) -> Accepted:
    """Accept a job in the place of a locked one, which gets its site as soon as nobody works on that."""
    if State(job.state) in ENDS:
        return accept(session, new, actor=actor)
    if State(job.state) in WORKED_ON:
        accepted = accept(session, new, actor=actor)
        request_cancel(session, job, actor=actor)
        return accepted
    end(session, job, State.CANCELLED, reason=Reason.CANCELLED, actor=actor, successor=new)
    return Accepted(lock_job(session, new.id), is_new=True)


def _made_before(session: Session, job: Job, verb: Verb) -> Job | None:
    """Return the job that a locked one was replayed or done over as, if it was."""
    child_id = successor_of(session, job.id)
    child = session.get(Job, child_id) if child_id is not None else None
    return child if child is not None and verb_of(child) == verb else None


def _check(job: Job) -> None:
    if is_step(job):
        raise NotContinuableError(job.id, "state", "a step of a run; replay its run")
    if not can_go_on(Verb.REPLAY, State(job.state), job.reason):
        raise NotContinuableError(job.id, "state", f"{job.state}, which is no dead letter")


def _request_of(job: Job, **changed: Any) -> JobRequest:
    kept = {name: value for name, value in job.request.items() if name not in _OF_THEIR_TIME}
    return parse_request({**kept, "prompt": job.prompt, **changed})


def _signals(session: Session, ground: RoundContext, *, is_new: bool) -> SiteSignals | None:
    """Return what is known of the files that the work starts from; None for a site that still is to be made."""
    if ground.site is None:
        return None
    release: Release | None = ground.start or active_release(session, ground.site)
    if release is None:
        return None if is_new else SiteSignals()
    return read_stored(SiteSignals, release.signals)


def _cap(session: Session, job: Job, today: _Today, budget_usd: float | None) -> int:
    """Return what the bill may have spent when the replay ends, in nanodollars.

    Raises:
        InvalidJobError: the caller's fault: more than one job may cost.
        NotContinuableError: the caller's fault: what was allowed is spent, and nothing is added.
    """
    spent = today.ground.spent_nanousd
    if budget_usd is not None:
        return spent + added_nanousd(budget_usd, today.policy, is_run=today.project is not None)
    if _has_spent_its_own(session, job) or (job.cap_nanousd and spent >= job.cap_nanousd):
        raise NotContinuableError(job.id, "spent")
    return job.cap_nanousd


def _told(job: Job, verb: Verb) -> dict[str, Any]:
    """Return what the same request has to know, once more, of what went before it."""
    told = {name: job.result[name] for name in _KEPT if name in job.result}
    begun = {"begun": job.result["begun"]} if is_about_earlier_work(job) else {}
    return {**told, **begun, "verb": verb.value}


def _has_spent_its_own(session: Session, job: Job) -> bool:
    """Whether a job ended at its own budget, and not at one that is whole again tomorrow."""
    if job.state != State.BUDGET_EXCEEDED:
        return False
    exceeded = last_budget_exceeded(session, job.id)
    return exceeded is None or exceeded.scope not in OF_THE_DAY
