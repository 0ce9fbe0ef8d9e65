"""Repeat a job's request in a new one on the same bill: `replay` and `override` (H-041).

It runs under today's policy, from today's release. Only a request about unpublished work starts from that work again,
since it means nothing without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args
from uuid import UUID

from sqlmodel import Session

from ledger import audit
from ledger.errors import NotContinuableError, ProjectNotFoundError, WrongStateError
from ledger.events import last_budget_exceeded
from ledger.job_control import WORKED_ON, request_cancel
from ledger.job_ends import is_import, is_run, is_step
from ledger.jobs import end, lock_job
from ledger.money import OF_THE_DAY
from ledger.releases import (
    RoundContext,
    active_release,
    continued_work,
    is_about_earlier_work,
    load_round_context,
    rounds_of,
    successor_of,
    verb_of,
)
from ledger.runs.run import continue_run, find_project, new_run
from ledger.runs.tables import Project, Run
from ledger.submission import Accepted, accept
from ledger.tables import Job, NewJob, Release
from producers.intake.decisions import check_headroom, policy_of, policy_of_project
from producers.intake.submit import Requester
from producers.use_cases.rounds import Continuation, new_job, with_stakes_of
from routing.decision.router import Mode, Route, SiteSignals
from routing.errors import MissingKeyError, PolicyError
from routing.estimate import estimate_run
from routing.jobs import ANSWERS, ENDS, JobRequest, Reason, State, parse_request, read_stored
from routing.policy.platform import Policy
from routing.queues import TierName, parse_tier
from routing.rounds import Verb, added_nanousd, can_go_on, fit_route

_TRANSIENT_FIELDS = ("idempotency_key", "supersede_key", "start_at")
"""Request fields that a replay drops: it must not take a newer job's place."""
_INHERITED_RESULTS = ("debate", "needs_person", ANSWERS)
"""Results that bind a replay."""
_SETTLED = frozenset({State.PUBLISHING, State.PUBLISHED, State.ANSWERED, State.CLARIFYING})
"""Published work is changed by a new job, and a question is answered first: no override."""


@dataclass(frozen=True)
class _ReplayContext:
    policy: Policy
    """Today's, as tenant and project leave it."""
    round: RoundContext
    project: Project | None


class Replays(Continuation):
    """Repeats requests, each at most once: a second order finds the first one's job."""

    def replay(self, job_id: UUID, *, requester: Requester, budget_usd: float | None = None) -> Accepted:
        """Replay a dead letter once its cause is fixed.

        `budget_usd` comes on top of what its bill has spent; it is needed where its whole budget is.

        Raises:
            InvalidJobError: the caller's fault: too much money, or a request that would be refused today.
            JobNotFoundError: the caller's fault.
            NotContinuableError: the caller's fault, or nobody's.
            AdmissionRefusedError: nobody's fault: no headroom now; it says when to come back.
        """
        with self.ledger.begin() as session:
            job = lock_job(session, job_id, tenant=requester.tenant)
            if (earlier := _earlier_repeat(session, job, Verb.REPLAY)) is not None:
                return Accepted(earlier, is_new=False)
            _check_dead(job)
            context = self._load_context(session, job)
            request = _repeated_request(job) if budget_usd is None else _repeated_request(job, budget_usd=budget_usd)
            route = self._route(session, job, request, context)
            cap_nanousd = _replay_cap(session, job, context, budget_usd)
            new = self._repeated(
                job, context, request, route, requester=requester, cap_nanousd=cap_nanousd, verb=Verb.REPLAY
            )
            check_headroom(session, new.queue, job.tenant, policy=context.policy)
            accepted = accept(session, new, actor=requester.actor)
            before = session.get(Run, job.id)
            if before is not None and before.workspace_id is not None:
                continue_run(session, accepted.job, job)
            elif context.project is not None and not route.trivial:
                estimate = estimate_run(context.policy, route.intent)
                new_run(session, accepted.job, context.project, estimate=estimate)
            audit.append(
                session,
                "job_replayed",
                actor=requester.actor,
                job=job,
                continued_as=str(new.id),
                cap_nanousd=new.cap_nanousd,
            )
            return accepted

    def override(self, job_id: UUID, tier: TierName, *, requester: Requester) -> Accepted:
        """Do a job's request over on another tier, in its place; a refusal changes nothing.

        Raises:
            InvalidJobError: the caller's fault: the request would be refused today, or the tier cannot hold its work.
            JobNotFoundError: the caller's fault.
            WrongStateError: the caller's fault: the job cannot be done over, or not on this tier.
            NotContinuableError: the caller's fault, or nobody's.
            AdmissionRefusedError: nobody's fault: no headroom now; it says when to come back.
        """
        with self.ledger.begin() as session:
            job = lock_job(session, job_id, tenant=requester.tenant)
            earlier = _earlier_repeat(session, job, Verb.OVERRIDE)
            if earlier is not None and earlier.request.get("tier") == tier:
                return Accepted(earlier, is_new=False)
            if tier not in tiers_instead(job):
                raise WrongStateError(job.id, job.state, "an edit of a site that is not published, and another tier")
            context = self._load_context(session, job)
            request = _repeated_request(job, tier=tier)
            route = self._route(session, job, request, context)
            cap_nanousd = context.round.spent_nanousd + context.policy.job_cap_nanousd(request.budget_usd)
            new = self._repeated(
                job, context, request, route, requester=requester, cap_nanousd=cap_nanousd, verb=Verb.OVERRIDE
            )
            check_headroom(session, new.queue, job.tenant, policy=context.policy)
            accepted = _accept_instead(session, job, new, actor=requester.actor)
            audit.append(session, "tier_overridden", actor=requester.actor, job=job, to=tier, continued_as=str(new.id))
            return accepted

    def _load_context(self, session: Session, job: Job) -> _ReplayContext:
        policy = policy_of(session, job.tenant, self.policy)
        name, project = job.request.get("project"), None
        if name is not None:
            try:
                project = find_project(session, job.tenant, str(name))
                policy = policy_of_project(session, project, policy)
            except (ProjectNotFoundError, PolicyError, MissingKeyError) as error:
                raise NotContinuableError(job.id, "project", str(error)) from None
        return _ReplayContext(policy, load_round_context(session, job, keeps_work=False), project)

    def _repeated(
        self,
        job: Job,
        context: _ReplayContext,
        request: JobRequest,
        route: Route,
        *,
        requester: Requester,
        cap_nanousd: int,
        verb: Verb,
    ) -> NewJob:
        if route.mode is Mode.ACTION and not route.trivial and job.site_id is None and context.project is None:
            raise NotContinuableError(job.id, "unbound")
        facts = {name: job.result[name] for name in _INHERITED_RESULTS if name in job.result}
        begun = {"begun": job.result["begun"]} if is_about_earlier_work(job) else {}
        return self._routed(
            new_job(job, request, verb=verb, requester=requester),
            route,
            context.policy,
            start=context.round.start,
            cap_nanousd=cap_nanousd,
            result={**facts, **begun, "verb": verb.value},
        )

    def _route(self, session: Session, job: Job, request: JobRequest, context: _ReplayContext) -> Route:
        site = _site_signals(session, context.round, is_new=request.new_site is not None)
        route = self._decide(session, job, request, site=site, policy=context.policy)
        if (start := context.round.start) is not None:
            work = continued_work(start, [one for one in rounds_of(session, job.root_id) if one.id != job.id])
            route = fit_route(route, work, context.policy, is_chosen=request.tier is not None)
        return with_stakes_of(job, route)


def tiers_instead(job: Job) -> Sequence[TierName]:
    """Return the tiers on which a job can be done over; none where that makes no sense."""
    is_edit = job.mode == Mode.ACTION.value and job.tier is not None and job.site_id is not None
    is_over_for_good = State(job.state) in _SETTLED or job.reason == Reason.INVALID_REQUEST
    if not is_edit or is_over_for_good or is_run(job) or is_step(job) or is_import(job):
        return ()
    return [name for name in get_args(TierName) if parse_tier(name) != job.tier]


def _accept_instead(session: Session, job: Job, new: NewJob, *, actor: str) -> Accepted:
    """Accept a job in place of a locked one; it gets the site as soon as nobody works on it."""
    if State(job.state) in ENDS:
        return accept(session, new, actor=actor)
    if State(job.state) in WORKED_ON:
        accepted = accept(session, new, actor=actor)
        request_cancel(session, job, actor=actor)
        return accepted
    end(session, job, State.CANCELLED, reason=Reason.CANCELLED, actor=actor, successor=new)
    return Accepted(lock_job(session, new.id), is_new=True)


def _earlier_repeat(session: Session, job: Job, verb: Verb) -> Job | None:
    child_id = successor_of(session, job.id)
    child = session.get(Job, child_id) if child_id is not None else None
    return child if child is not None and verb_of(child) == verb else None


def _check_dead(job: Job) -> None:
    if is_step(job):
        raise NotContinuableError(job.id, "state", "a step of a run; replay its run")
    if not can_go_on(Verb.REPLAY, State(job.state), job.reason):
        raise NotContinuableError(job.id, "state", f"{job.state}, which is no dead letter")


def _repeated_request(job: Job, **changes: Any) -> JobRequest:
    body = {name: value for name, value in job.request.items() if name not in _TRANSIENT_FIELDS}
    return parse_request({**body, "prompt": job.prompt, **changes})


def _site_signals(session: Session, context: RoundContext, *, is_new: bool) -> SiteSignals | None:
    """Return the signals of the files that the work starts from; None for a site still to be made."""
    if context.site is None:
        return None
    release: Release | None = context.start or active_release(session, context.site)
    if release is None:
        return None if is_new else SiteSignals()
    return read_stored(SiteSignals, release.signals)


def _replay_cap(session: Session, job: Job, context: _ReplayContext, budget_usd: float | None) -> int:
    """Return what the bill may have spent when the replay ends, in nanodollars.

    Raises:
        InvalidJobError: the caller's fault: more than one job may cost.
        NotContinuableError: the caller's fault: the budget is spent, and nothing is added.
    """
    spent = context.round.spent_nanousd
    if budget_usd is not None:
        return spent + added_nanousd(budget_usd, context.policy, is_run=context.project is not None)
    if _has_spent_its_own(session, job) or (job.cap_nanousd and spent >= job.cap_nanousd):
        raise NotContinuableError(job.id, "spent")
    return job.cap_nanousd


def _has_spent_its_own(session: Session, job: Job) -> bool:
    """Whether a job ended at its own budget, not at one that is whole again tomorrow."""
    if job.state != State.BUDGET_EXCEEDED:
        return False
    exceeded = last_budget_exceeded(session, job.id)
    return exceeded is None or exceeded.scope not in OF_THE_DAY
