"""A job's request once more, on its bill, decided by today's policy, from today's release: `replay` and `override`.

A replay is for jobs that a defect, a fault or a limit ended, after it was mended. An override is for a person who knows
better which tier fits: it takes the job's place, whether that is live or over. What the job kept is left alone
(`resume` goes on from it); only a request that was about unpublished work starts from that work again, since it means
nothing without it. Asking twice makes one job: the second time finds the first one's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args
from uuid import UUID, uuid4

from sqlmodel import Session

from ledger import audit
from ledger.decisions import debated_keys
from ledger.errors import NotContinuableError, ProjectNotFoundError, WrongStateError
from ledger.job_control import WORKED_ON, request_cancel
from ledger.job_ends import is_run, is_step
from ledger.jobs import end, lock_job
from ledger.money import OF_THE_DAY, last_budget_exceeded
from ledger.releases import (
    RoundContext,
    active_release,
    is_about_earlier_work,
    load_round_context,
    rounds_of,
    successor_of,
    verb_of,
    work_so_far,
)
from ledger.runs.run import find_project, new_run
from ledger.runs.tables import Project
from ledger.store import Ledger
from ledger.submission import Accepted, accept
from ledger.tables import Job, NewJob, Release, digest_request
from monitoring import traces
from producers.intake.decisions import check_room, policy_of
from producers.intake.submit import Environment
from producers.use_cases.projects import policy_of_project
from producers.use_cases.rounds import Asker
from routing.decision.llm_router import first_stage
from routing.decision.router import Mode, Route, SiteSignals, decide, signals_of
from routing.errors import MissingKeyError, PolicyError
from routing.estimate import estimate_run
from routing.jobs import ENDS, JobRequest, Reason, State, parse_request, read_stored
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import TierName, tier_named
from routing.rounds import Verb, added_nanousd, can_go_on, fit_to, higher_stakes

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
