"""Submitting, under all doors: validate, decide, write the rows, push. It never calls a model.

A job is accepted when its row commits; what the broker does after that cannot lose it. Requests that come together are
looked up, decided and written together; one that comes alone is a batch of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session

from ledger import audit
from ledger.dispatch_window import Push
from ledger.errors import IdempotencyConflictError
from ledger.events import EventKind, record
from ledger.job_control import supersede
from ledger.releases import ensure_site
from ledger.runs.run import new_run
from ledger.store import Ledger, now
from ledger.submission import KnownJob, Placement, accept_all, load_headroom, load_submission_context
from ledger.tables import Job, NewJob, Tenant
from monitoring import traces
from producers.dispatch.broker import Publisher
from producers.errors import AdmissionRefusedError, LedgerAwayError, PublishError, UnknownTenantError
from producers.intake.decisions import BatchItem, RoutedRequest, check, decide_on, policy_on
from routing.decision.llm_router import RouteRules
from routing.errors import InvalidJobError
from routing.estimate import estimate_run
from routing.jobs import Door, JobRequest, Reason, State, parse_request
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import Limits, QueueName
from routing.scheduling import Hold

# What is kept of a request that is not taken in: the refusal and its reason; at the Celery door a row that says so.

Refusal = InvalidJobError | IdempotencyConflictError | AdmissionRefusedError | LedgerAwayError
"""Why a request is not taken in, of which nothing else was written."""


class Refused(NamedTuple):
    """A request that was not taken in."""

    error: Refusal
    job_id: UUID | None = None
    """The id that its sender at the Celery door gave it, under which it finds the refusal."""


def record_refusals(session: Session, refused: Iterable[Refused], *, tenant: str, door: Door) -> None:
    """Put refusals on record; of a tenant that there is not nothing is written, and neither of a key's conflict."""
    if session.get(Tenant, tenant) is None:
        return
    for error, job_id in refused:
        if isinstance(error, InvalidJobError):
            row = _record_invalid(session, error, tenant=tenant, door=door)
        elif isinstance(error, AdmissionRefusedError):
            row = _record_full(session, error, door=door)
        else:
            continue
        if door is Door.CELERY and job_id is not None:
            session.execute(insert(Job).values(_rejected_row(job_id, tenant, **row)).on_conflict_do_nothing())


def _record_invalid(session: Session, error: InvalidJobError, *, tenant: str, door: Door) -> dict[str, Any]:
    fields = [{"field": item.field, "rule": item.rule} for item in error.errors]
    first = error.errors[0].field.split(".")[0]
    known = first if first in JobRequest.model_fields else "other"
    record(session, EventKind.REFUSED, door=door.value, field=known)
    audit.append(session, "job_refused", actor=f"tenant:{tenant}", tenant=tenant, door=door.value, errors=fields)
    detail = "; ".join(f"{item['field']}: {item['rule']}" for item in fields)
    return {"reason": Reason.INVALID_REQUEST, "detail": detail, "result": {"errors": fields}}


def _record_full(session: Session, error: AdmissionRefusedError, *, door: Door) -> dict[str, Any]:
    """Count a job for which there was no room. A flood of them leaves no audit trail: nothing was decided."""
    record(session, EventKind.REFUSED, door=door.value, field=error.reason.value)
    told = {"retry_after_seconds": error.retry_after_seconds}
    return {"reason": error.reason, "detail": str(error), "result": told}


def _rejected_row(job_id: UUID, tenant: str, *, reason: Reason, detail: str, result: dict[str, Any]) -> dict[str, Any]:
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


logger = logging.getLogger(__name__)

Environment = Callable[[], Mapping[str, str]]
"""Switches that are read for every decision (`ENABLE_HARD_ROUTING`, `INTENT_CLASSIFIER`)."""

BATCH = 500
"""Jobs that one transaction accepts at most."""
_NOWHERE = Placement(is_pushed=False)
_LEDGER_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)


class Submitted(NamedTuple):
    """What became of a request that was taken in."""

    job: KnownJob
    is_new: bool
    """False when the same request was accepted before: the caller gets that job."""


Outcome = Submitted | Refusal


class _Origin(NamedTuple):
    tenant: str
    door: Door
    actor: str


class Submitter:
    """Takes jobs in for one installation."""

    def __init__(
        self,
        ledger: Ledger,
        publisher: Publisher,
        policy: Policy,
        *,
        environment: Environment = dict,
        vocabularies: Vocabularies | None = None,
    ) -> None:
        self._ledger = ledger
        self._publisher = publisher
        self._policy = policy
        self._environment = environment
        self._vocabularies = vocabularies or shipped_vocabularies()

    def submit(
        self, body: object, *, tenant: str, door: Door, job_id: UUID | None = None, actor: str | None = None
    ) -> Submitted:
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
        origin = _Origin(tenant, door, actor or f"{door.value}:{tenant}")
        with traces.begin("submit", facts={"pointsman.door": door.value, "pointsman.tenant": tenant}) as span:
            (told,) = self._take_in([body], [job_id], origin)
            if not isinstance(told, Submitted):
                raise told
            _note_submitted(span, told)
        return told

    def submit_many(
        self, bodies: Sequence[object], *, tenant: str, door: Door, actor: str | None = None
    ) -> list[Outcome]:
        """Accept jobs in this order, each as if it came alone; one that is refused takes no other with it.

        Args:
            bodies: the requests as they came from outside.
            tenant: whose jobs they are.
            door: how they came in.
            actor: who asks, see `submit`.

        Returns:
            What became of each, in their order: what `submit` returns for it, or the error that it raises. If the
            ledger went away half-way through, LedgerAwayError for all that may not have been accepted.

        Raises:
            UnknownTenantError: the caller's fault.
        """
        origin = _Origin(tenant, door, actor or f"{door.value}:{tenant}")
        facts: traces.Facts = {"pointsman.door": door.value, "pointsman.tenant": tenant, "pointsman.jobs": len(bodies)}
        with traces.begin("submit many", facts=facts) as span:
            told = self._take_in(bodies, [None] * len(bodies), origin)
            span.note({"pointsman.refused": sum(not isinstance(one, Submitted) for one in told)})
        return told

    def record_refusal(self, error: InvalidJobError, *, tenant: str, door: Door, job_id: UUID | None = None) -> None:
        """Put a refusal on record: the one thing that is written of a request that breaks a rule."""
        with self._ledger.begin() as session:
            record_refusals(session, [Refused(error, job_id)], tenant=tenant, door=door)

    def _take_in(self, bodies: Sequence[object], ids: Sequence[UUID | None], origin: _Origin) -> list[Outcome]:
        items: list[BatchItem] = []
        outcomes: dict[int, Outcome] = {}
        for place, body in enumerate(bodies):
            try:
                items.append(BatchItem(place, ids[place] or uuid4(), parse_request(body)))
            except InvalidJobError as error:
                outcomes[place] = error
        try:
            for batch in batches(items):
                self._accept(batch, origin, outcomes)
            refused = [Refused(one, ids[place]) for place, one in outcomes.items() if not isinstance(one, Submitted)]
            if refused:
                with self._ledger.begin() as session:
                    record_refusals(session, refused, tenant=origin.tenant, door=origin.door)
        except _LEDGER_AWAY:
            if not any(isinstance(one, Submitted) for one in outcomes.values()):
                raise
            logger.warning("batch_broken_off", extra={"answered": len(outcomes), "asked": len(bodies)})
        return [outcomes[place] if place in outcomes else LedgerAwayError() for place in range(len(bodies))]

    def _accept(self, batch: Sequence[BatchItem], origin: _Origin, outcomes: dict[int, Outcome]) -> None:
        """Accept what can be of a batch in one transaction, and push what goes to the broker at once."""
        ended: dict[int, Outcome] = {}
        with self._ledger.begin() as session:
            routed = self._decide(session, batch, origin, ended)
            news = _place(session, routed, origin, ended)
            taken = accept_all(session, [new for new, _ in news]) if news else frozenset()
            for new, decision in news:
                if new.id in taken:
                    ended[decision.item.place] = Submitted(_known(new), is_new=True)
                    _follow(session, new, decision)
                else:
                    ended[decision.item.place] = _duplicate(session, new)
        outcomes |= ended
        self._push(
            [
                (Push(new.id, 0, new.queue, new.tenant, new.trace), decision.policy.queues[new.queue])
                for new, decision in news
                if new.is_pushed and new.id in taken
            ]
        )

    def _decide(
        self, session: Session, batch: Sequence[BatchItem], origin: _Origin, outcomes: dict[int, Outcome]
    ) -> list[RoutedRequest]:
        """Decide about each request of a batch. Record early rejections."""
        tenant = origin.tenant
        ids = [item.job_id for item in batch] if origin.door is Door.CELERY else []
        context = load_submission_context(session, tenant, [item.request for item in batch], ids=ids)
        if context is None:
            raise UnknownTenantError(tenant)
        try:
            policy = policy_on(context, self._policy)
        except InvalidJobError as error:
            outcomes |= dict.fromkeys((item.place for item in batch), error)
            return []
        rules = RouteRules(self._environment(), self._vocabularies.of(tenant))
        routed = []
        for item in batch:
            try:
                # Before its target is looked at: the first submission may have made the site it asks for.
                earlier = context.made_before(item.request, item.job_id)
                if earlier is not None:
                    outcomes[item.place] = Submitted(earlier, is_new=False)
                else:
                    routed.append(decide_on(session, item, context, policy=policy, rules=rules))
            except (InvalidJobError, IdempotencyConflictError) as error:
                outcomes[item.place] = error
        return routed

    def _push(self, pushes: Sequence[tuple[Push, Limits]]) -> None:
        try:
            if pushes:
                self._publisher.push_all(pushes)
        except PublishError:
            logger.warning(
                "push_failed_dispatcher_will_retry", extra={"jobs": [str(push.job_id) for push, _ in pushes]}
            )


def batches(items: Sequence[BatchItem]) -> Iterator[Sequence[BatchItem]]:
    """Cut what came together into parts that may be looked at before any of them is written.

    Requests with side effects get their own batch: one that makes a site, takes the place of other jobs, or begins a
    run. A key that comes again is looked up when the first job with it is there.
    """
    batch: list[BatchItem] = []
    keys: set[str | None] = set()
    for item in items:
        request = item.request
        is_alone = request.new_site is not None or request.supersede_key is not None or request.project is not None
        if batch and (is_alone or len(batch) == BATCH or request.idempotency_key in keys):
            yield batch
            batch, keys = [], set()
        if is_alone:
            yield [item]
            continue
        batch.append(item)
        keys |= {request.idempotency_key} - {None}
    if batch:
        yield batch


def _place(
    session: Session, routed: Sequence[RoutedRequest], origin: _Origin, outcomes: dict[int, Outcome]
) -> list[tuple[NewJob, RoutedRequest]]:
    """Find a place for each job in its turn, those before it counted. Record those without room."""
    wanted: dict[QueueName, set[UUID]] = {}
    for decision in routed:
        if decision.question is None:
            sites = wanted.setdefault(decision.stage.queue, set())
            if decision.writes is not None:
                sites.add(decision.writes)
    headroom = load_headroom(session, origin.tenant, wanted) if wanted else {}
    news = []
    for decision in routed:
        placement = _NOWHERE
        if decision.question is None:
            room, policy = headroom[decision.stage.queue], decision.policy
            try:
                check(room, origin.tenant, policy=policy)
            except AdmissionRefusedError as error:
                outcomes[decision.item.place] = error
                continue
            is_early = decision.request.start_at is not None
            placement = room.take(decision.writes, runway=policy.runway, admission=policy.admission, is_early=is_early)
        news.append((_new_job(session, decision, placement, origin), decision))
    return news


def _new_job(session: Session, decision: RoutedRequest, placement: Placement, origin: _Origin) -> NewJob:
    request, route = decision.request, decision.route
    site_id = decision.site.id if decision.site is not None else None
    if site_id is None and request.new_site is not None and decision.makes_site:
        site_id = ensure_site(session, origin.tenant, request.new_site).id
    return NewJob(
        id=decision.item.job_id,
        tenant=origin.tenant,
        door=origin.door,
        requested_by=origin.actor,
        request=request,
        state=decision.stage.state,
        queue=decision.stage.queue,
        mode=route.mode.value,
        tier=route.tier.value if route.tier else None,
        route=route.model_dump(mode="json"),
        site_id=site_id,
        cap_nanousd=decision.cap_nanousd,
        clarification=decision.question.model_dump(mode="json") if decision.question else None,
        clarify_hours=decision.policy.approval.hours,
        trace=traces.current(),
        is_pushed=placement.is_pushed,
        held_for=placement.hold,
        held_until=request.start_at if placement.hold is Hold.TIME else None,
    )


def _known(new: NewJob) -> KnownJob:
    """Return what is told of a job that has just been accepted."""
    own = {name: getattr(new, name) for name in KnownJob._fields if name not in ("detail", "idempotency_key")}
    return KnownJob(**own, detail=None, idempotency_key=new.request.idempotency_key)


def _follow(session: Session, new: NewJob, decision: RoutedRequest) -> None:
    """Do what goes with accepting a job: it takes the place of older ones, and a project's work becomes a run."""
    if new.request.supersede_key is not None:
        supersede(session, session.get_one(Job, new.id))
    if decision.project is not None and not decision.route.trivial:
        estimate = estimate_run(decision.policy, decision.route.intent)
        new_run(session, session.get_one(Job, new.id), decision.project, estimate=estimate)


def _duplicate(session: Session, new: NewJob) -> Outcome:
    """Return what became of a request that somebody else made at the same moment, and first."""
    context = load_submission_context(session, new.tenant, [new.request], ids=[new.id])
    try:
        earlier = context.made_before(new.request, new.id) if context is not None else None
    except IdempotencyConflictError as error:
        return error
    return Submitted(earlier, is_new=False) if earlier is not None else IdempotencyConflictError(new.id)


def _note_submitted(span: traces.Span, told: Submitted) -> None:
    job = told.job
    span.note(
        {
            "pointsman.job.id": str(job.id),
            "pointsman.job.is_new": told.is_new,
            "pointsman.queue": job.queue,
            "pointsman.tier": job.tier,
        }
    )
    traces.refer_to(job.trace)
