"""One submit under all three doors: validate, decide, write the row, push. It never calls a model.

A job is accepted when its row commits; what the broker does after that cannot lose it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring import traces
from monitoring.errors import SiteNotFoundError
from monitoring.ledger import audit
from monitoring.ledger.attempts import effective_policy
from monitoring.ledger.clock import now
from monitoring.ledger.debates import debated_keys
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.jobs import Accepted, accept, same_request
from monitoring.ledger.new_jobs import NewJob
from monitoring.ledger.projects import ProjectNotFoundError, find_project
from monitoring.ledger.releases import ensure_site, find_shown, find_site
from monitoring.ledger.run_tables import Project
from monitoring.ledger.runs import new_run
from monitoring.ledger.runway import Place, Push, find_place
from monitoring.ledger.store import Ledger
from monitoring.ledger.superseding import supersede
from monitoring.ledger.tables import Job, Site, Tenant
from producers.admission import check_room, check_start
from producers.errors import AdmissionRefusedError, PublishError, QueueFullError, UnknownTenantError
from producers.projects import policy_of_project
from producers.publisher import Publisher
from routing.clarification import MAX_SITES, Clarification, open_clarification
from routing.errors import FieldError, InvalidJobError, PolicyError
from routing.jobs import Door, JobRequest, Reason, State, parse_request
from routing.messages import read_stored
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD
from routing.project import MissingKeyError
from routing.router import Mode, Route, SiteSignals, decide
from routing.run_estimate import estimate_run
from routing.signals import signals_of
from routing.stages import Stage, first_stage
from routing.tiers import QueueName
from routing.vocabularies import Vocabularies, shipped_vocabularies
from routing.waits import Hold

logger = logging.getLogger(__name__)

Environment = Callable[[], Mapping[str, str]]
"""Switches that are read for every decision (`ENABLE_HARD_ROUTING`, `INTENT_CLASSIFIER`)."""

_ASKING = Stage(State.CLARIFYING, QueueName.INTAKE)
_NOWHERE = Place(is_pushed=False)


class _Target(NamedTuple):
    site: Site | None = None
    signals: SiteSignals | None = None
    project: Project | None = None


class Submitter:
    """Takes jobs in for one installation."""

    def __init__(
        self, ledger: Ledger, publisher: Publisher, policy: Policy, *, environment: Environment = dict,
        vocabularies: Vocabularies | None = None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._publisher = publisher
        self._policy = policy
        self._environment = environment
        self._vocabularies = vocabularies or shipped_vocabularies()

    def submit(
        self, body: object, *, tenant: str, door: Door, job_id: UUID | None = None, actor: str | None = None
    ) -> Accepted:
        """Accept a job, or refuse it with a reason for every field at fault.

        Args:
            body: the request as it came from outside.
            tenant: whose job it is.
            door: how it came in.
            job_id: the caller's own id for it (the Celery door's task id).
            actor: who asks, as the audit trail names actors; the door itself where it knows nobody by name.

        Raises:
            InvalidJobError: the caller's fault; nothing was enqueued, the refusal is on record.
            UnknownTenantError: the caller's fault.
            IdempotencyConflictError: the caller's fault.
            AdmissionRefusedError: nobody's fault: there is no room now; it says when to come back.
        """
        with traces.begin("submit", facts={"pointsman.door": door.value, "pointsman.tenant": tenant}) as span:
            accepted = self._submit(body, tenant=tenant, door=door, job_id=job_id, actor=actor)
            _note_accepted(span, accepted)
        return accepted

    def _submit(self, body: object, *, tenant: str, door: Door, job_id: UUID | None, actor: str | None) -> Accepted:
        try:
            request = parse_request(body)
            requested_by = actor or f"{door.value}:{tenant}"
            accepted, policy = self._accept(
                request, tenant=tenant, door=door, job_id=job_id or uuid4(), requested_by=requested_by
            )
        except InvalidJobError as error:
            self.record_refusal(error, tenant=tenant, door=door, job_id=job_id)
            raise
        except AdmissionRefusedError as error:
            self._record_full(error, tenant=tenant, door=door, job_id=job_id)
            raise
        job = accepted.job
        if accepted.is_new and job.pushed_at is not None:
            self._push(Push(job.id, job.fence, QueueName(job.queue), tenant, job.trace), policy=policy)
        return accepted

    def _accept(
        self, request: JobRequest, *, tenant: str, door: Door, job_id: UUID, requested_by: str
    ) -> tuple[Accepted, Policy]:  # fmt: skip
        with self._ledger.begin() as session:
            owner = session.get(Tenant, tenant)  # held, or the session forgets it and asks again
            if owner is None:
                raise UnknownTenantError(tenant)
            policy = policy_of(session, tenant, self._policy)
            if request.idempotency_key is not None or door == Door.CELERY:
                # Before its target is looked at: the first submission may have made the site it asks for.
                same = same_request(session, tenant, request, job_id=job_id)
                if same is not None:
                    return Accepted(same, is_new=False), policy
            check_start(session, request.start_at)
            target = _find_target(session, request, tenant=tenant)
            route = self._decide(session, request, target, tenant=tenant, policy=policy)
            asked = _question(session, request, route, tenant=tenant)
            if request.new_site is not None and route.mode == Mode.ACTION and not route.trivial:
                target = _Target(ensure_site(session, tenant, request.new_site), target.signals)
            site_id = target.site.id if target.site else None
            stage = _ASKING if asked else first_stage(route, policy, environment=self._environment())
            policy = _policy_of_run(session, target.project, policy) if target.project else policy
            place = _NOWHERE
            if asked is None:
                place = _place(session, stage, request, tenant=tenant, site_id=site_id, policy=policy)
            new = NewJob(
                id=job_id,
                tenant=tenant,
                door=door,
                requested_by=requested_by,
                request=request,
                state=stage.state,
                queue=stage.queue,
                mode=route.mode.value,
                tier=route.tier.value if route.tier else None,
                route=route.model_dump(mode="json"),
                site_id=site_id,
                cap_nanousd=_cap(policy, request),
                clarification=asked.model_dump(mode="json") if asked else None,
                clarify_hours=policy.approval.hours,
                trace=traces.current(),
                is_pushed=place.is_pushed,
                hold=place.hold,
                held_until=request.start_at if place.hold is Hold.TIME else None,
            )
            accepted = accept(session, new)
            if accepted.is_new:
                _go_with(session, accepted.job, target.project, route, policy=policy)
            return accepted, policy

    def _decide(
        self, session: Session, request: JobRequest, target: _Target, *, tenant: str, policy: Policy
    ) -> Route:  # fmt: skip
        debated = debated_keys(session, tenant, request.session) if request.session else frozenset()
        return decide(signals_of(request, site=target.signals, debated=debated), policy, self._vocabularies.of(tenant))

    def _push(self, push: Push, *, policy: Policy) -> None:
        try:
            self._publisher.push(push, limits=policy.queues[push.queue])
        except PublishError:
            logger.warning("push_failed_dispatcher_will_retry", extra={"job_id": str(push.job_id)})

    def record_refusal(
        self, error: InvalidJobError, *, tenant: str, door: Door, job_id: UUID | None = None
    ) -> None:  # fmt: skip
        """Put a refusal on record: the one thing that is written of a request that breaks a rule."""
        fields = [{"field": item.field, "rule": item.rule} for item in error.errors]
        with self._ledger.begin() as session:
            if session.get(Tenant, tenant) is None:
                return
            first = error.errors[0].field.split(".")[0]
            known = first if first in JobRequest.model_fields else "other"
            record(session, EventKind.REFUSED, door=door.value, field=known)
            audit.append(
                session, "job_refused", actor=f"tenant:{tenant}", tenant=tenant, door=door.value, errors=fields
            )
            if door == Door.CELERY and job_id is not None:
                detail = "; ".join(f"{item['field']}: {item['rule']}" for item in fields)
                row = _rejected_row(
                    job_id, tenant, reason=Reason.INVALID_REQUEST, detail=detail, result={"errors": fields}
                )
                session.execute(insert(Job).values(row).on_conflict_do_nothing())

    def _record_full(self, error: AdmissionRefusedError, *, tenant: str, door: Door, job_id: UUID | None) -> None:
        """Count a job for which there was no room. A flood of them leaves no audit trail: nothing was decided."""
        reason = Reason.QUEUE_FULL if isinstance(error, QueueFullError) else Reason.COST_CAP
        with self._ledger.begin() as session:
            record(session, EventKind.REFUSED, door=door.value, field=reason.value)
            if door == Door.CELERY and job_id is not None:
                told = {"retry_after_seconds": error.retry_after_seconds}
                row = _rejected_row(job_id, tenant, reason=reason, detail=str(error), result=told)
                session.execute(insert(Job).values(row).on_conflict_do_nothing())


def _note_accepted(span: traces.Span, accepted: Accepted) -> None:
    job = accepted.job
    span.note({
        "pointsman.job.id": str(job.id), "pointsman.job.is_new": accepted.is_new, "pointsman.queue": job.queue,
        "pointsman.tier": job.tier,
    })  # fmt: skip
    traces.refer_to(job.trace)


def _go_with(
    session: Session, job: Job, project: Project | None, route: Route, *, policy: Policy
) -> None:  # fmt: skip
    """Do what goes with accepting a job: it takes the place of older ones, and a project's work becomes a run."""
    supersede(session, job)
    if project is not None and not route.trivial:
        new_run(session, job, project, estimate=estimate_run(policy, route.intent))


def _place(
    session: Session, stage: Stage, request: JobRequest, *, tenant: str, site_id: UUID | None, policy: Policy
) -> Place:  # fmt: skip
    """Find a place for a job on its first queue, or refuse it where there is none."""
    check_room(session, stage.queue, tenant, policy=policy)
    if request.start_at is not None:
        return Place(is_pushed=False, hold=Hold.TIME)
    return find_place(
        session, stage.queue, tenant, site_id=site_id, runway=policy.runway, admission=policy.admission
    )  # fmt: skip


def _rejected_row(
    job_id: UUID, tenant: str, *, reason: Reason, detail: str, result: dict[str, Any]
) -> dict[str, Any]:  # fmt: skip
    """A caller at the Celery door has nothing but its task id: the refusal stands under that id, if it is free."""
    return {
        "id": job_id,
        "tenant": tenant,
        "door": Door.CELERY.value,
        "requested_by": f"{Door.CELERY.value}:{tenant}",
        "state": State.REJECTED.value,
        "prompt": "",
        "request": {},
        "request_digest": "",
        "priority": "P2",
        "root_id": job_id,
        "route": {},
        "queue": QueueName.INTAKE.value,
        "fence": 0,
        "lost_attempts": 0,
        "cap_nanousd": 0,
        "reason": reason.value,
        "detail": detail,
        "result": result,
        "ended_at": now(),
    }


def policy_of(session: Session, tenant: str, policy: Policy) -> Policy:
    """Return the policy as a tenant's overrides leave it.

    Raises:
        InvalidJobError: the operator's fault, told to the caller: the overrides do not fit any more.
    """
    try:
        return effective_policy(session, tenant, policy)
    except PolicyError as error:
        logger.error("tenant_overrides_unfit", extra={"tenant": tenant, "rule": str(error)})
        rule = "has limits of its own that do not fit this installation's policy any more; ask its operator"
        raise InvalidJobError((FieldError("tenant", rule),)) from None


def _find_target(session: Session, request: JobRequest, *, tenant: str) -> _Target:
    """Look up what the job is about; existence is checked before anything is decided."""
    if request.project is not None:
        return _Target(project=_project(session, tenant, request.project))
    if request.new_site is not None:
        _check_new_site(session, tenant, request.new_site)
        return _Target()
    if request.site is None:
        return _Target()
    try:
        site, release = find_shown(session, tenant, request.site)
    except SiteNotFoundError:
        raise InvalidJobError((FieldError("site", "no site of this name belongs to the tenant"),)) from None
    return _Target(site, read_stored(SiteSignals, release.signals if release else {}))


def _project(session: Session, tenant: str, name: str) -> Project:
    try:
        return find_project(session, tenant, name)
    except ProjectNotFoundError:
        raise InvalidJobError((FieldError("project", "no project of this name belongs to the tenant"),)) from None


def _policy_of_run(session: Session, project: Project, policy: Policy) -> Policy:
    try:
        return policy_of_project(session, project, policy)
    except PolicyError as error:
        logger.error("project_unfit", extra={"project": project.name, "rule": str(error)})
        rule = "does not fit this installation's policy any more; add its file again"
        raise InvalidJobError((FieldError("project", rule),)) from None
    except MissingKeyError as error:
        raise InvalidJobError((FieldError("project", str(error)),)) from None


def _cap(policy: Policy, request: JobRequest) -> int:
    """Return what the job may spend: a run over everything that it does, any other over its tiers."""
    if request.project is None:
        return policy.job_cap_nanousd(request.budget_usd)
    run_usd = policy.budgets.run_usd
    return round(min(run_usd, request.budget_usd or run_usd) * NANOUSD_PER_USD)


def _check_new_site(session: Session, tenant: str, name: str) -> None:
    try:
        site = find_site(session, tenant, name)
    except SiteNotFoundError:
        return
    if site.active_release_id is not None or site.lock_job_id is not None:
        raise InvalidJobError((FieldError("new_site", "a site of this name exists already; use site"),))


def _question(session: Session, request: JobRequest, route: Route, *, tenant: str) -> Clarification | None:
    """Return what the owner is asked first, when the request says too little to be worked on and there is a choice.

    Raises:
        InvalidJobError: the caller's fault: an action without a target, and nothing to choose from.
    """
    if request.site or request.new_site or request.project:
        return None
    names = select(col(Site.name)).where(col(Site.tenant) == tenant).order_by(col(Site.name)).limit(MAX_SITES)
    question = open_clarification(route, own=request.options, sites=session.scalars(names).all())
    if question is None and route.mode == Mode.ACTION and not route.trivial:
        rule = "this asks for an action, which needs one of site, new_site and project"
        raise InvalidJobError((FieldError("site", rule),))
    return question
