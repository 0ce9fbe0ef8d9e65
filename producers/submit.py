"""Submitting, under all doors: validate, decide, write the rows, push. It never calls a model.

A job is accepted when its row commits; what the broker does after that cannot lose it. Requests that come together are
looked up, decided and written together; one that comes alone is a batch of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID, uuid4

from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import Session

from monitoring import traces
from monitoring.errors import IdempotencyConflictError
from monitoring.ledger.accepting import accept_all
from monitoring.ledger.ground import survey
from monitoring.ledger.new_jobs import KnownJob, NewJob, known_of
from monitoring.ledger.releases import ensure_site
from monitoring.ledger.room import Place, look_for_room
from monitoring.ledger.runs import new_run
from monitoring.ledger.runway import Push
from monitoring.ledger.store import Ledger
from monitoring.ledger.superseding import supersede
from monitoring.ledger.tables import Job
from producers.admission import check
from producers.decisions import Decided, decide_on, policy_on
from producers.errors import AdmissionRefusedError, LedgerAwayError, PublishError, UnknownTenantError
from producers.publisher import Publisher
from producers.refusals import Refusal, Refused, record_refusals
from routing.errors import InvalidJobError
from routing.jobs import Door, JobRequest, parse_request
from routing.policy import Policy
from routing.queues import Limits, QueueName
from routing.run_estimate import estimate_run
from routing.stages import RouteRules
from routing.vocabularies import Vocabularies, shipped_vocabularies
from routing.waits import Hold

logger = logging.getLogger(__name__)

Environment = Callable[[], Mapping[str, str]]
"""Switches that are read for every decision (`ENABLE_HARD_ROUTING`, `INTENT_CLASSIFIER`)."""

BATCH = 500
"""Jobs that one transaction accepts at most."""
_NOWHERE = Place(is_pushed=False)
_LEDGER_AWAY = (OperationalError, InterfaceError, PoolTimeoutError)


class Submitted(NamedTuple):
    """What became of a request that was taken in."""

    job: KnownJob
    is_new: bool
    """False when the same request was accepted before: the caller gets that job."""


Outcome = Submitted | Refusal


class Asked(NamedTuple):
    """A well-formed request, and its place among those that came with it."""

    place: int
    job_id: UUID
    request: JobRequest


class _Origin(NamedTuple):
    tenant: str
    door: Door
    actor: str


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

    def record_refusal(
        self, error: InvalidJobError, *, tenant: str, door: Door, job_id: UUID | None = None
    ) -> None:  # fmt: skip
        """Put a refusal on record: the one thing that is written of a request that breaks a rule."""
        with self._ledger.begin() as session:
            record_refusals(session, [Refused(error, job_id)], tenant=tenant, door=door)

    def _take_in(self, bodies: Sequence[object], ids: Sequence[UUID | None], origin: _Origin) -> list[Outcome]:
        asked: list[Asked] = []
        told: dict[int, Outcome] = {}
        for place, body in enumerate(bodies):
            try:
                asked.append(Asked(place, ids[place] or uuid4(), parse_request(body)))
            except InvalidJobError as error:
                told[place] = error
        try:
            for batch in batches(asked):
                self._accept(batch, origin, told)
            refused = [Refused(one, ids[place]) for place, one in told.items() if not isinstance(one, Submitted)]
            if refused:
                with self._ledger.begin() as session:
                    record_refusals(session, refused, tenant=origin.tenant, door=origin.door)
        except _LEDGER_AWAY:
            if not any(isinstance(one, Submitted) for one in told.values()):
                raise
            logger.warning("batch_broken_off", extra={"answered": len(told), "asked": len(bodies)})
        return [told[place] if place in told else LedgerAwayError() for place in range(len(bodies))]

    def _accept(self, batch: Sequence[Asked], origin: _Origin, told: dict[int, Outcome]) -> None:
        """Accept what can be of a batch in one transaction, and push what goes to the broker at once."""
        outcomes: dict[int, Outcome] = {}
        with self._ledger.begin() as session:
            decided = self._decide(session, batch, origin, outcomes)
            news = _place(session, decided, origin, outcomes)
            taken = accept_all(session, [new for new, _ in news.values()]) if news else frozenset()
            for place, (new, about) in news.items():
                if new.id in taken:
                    outcomes[place] = Submitted(known_of(new), is_new=True)
                    _go_with(session, new, about)
                else:
                    outcomes[place] = _twin(session, new)
        told |= outcomes
        self._push([
            (Push(new.id, 0, new.queue, new.tenant, new.trace), about.policy.queues[new.queue])
            for new, about in news.values() if new.is_pushed and new.id in taken
        ])  # fmt: skip

    def _decide(
        self, session: Session, batch: Sequence[Asked], origin: _Origin, told: dict[int, Outcome]
    ) -> list[tuple[Asked, Decided]]:
        """Decide about each request of a batch; of one that ends here it is told how."""
        tenant = origin.tenant
        ids = [one.job_id for one in batch] if origin.door is Door.CELERY else []
        ground = survey(session, tenant, [one.request for one in batch], ids=ids)
        if ground is None:
            raise UnknownTenantError(tenant)
        try:
            policy = policy_on(ground, self._policy)
        except InvalidJobError as error:
            told |= dict.fromkeys((one.place for one in batch), error)
            return []
        rules = RouteRules(self._environment(), self._vocabularies.of(tenant))
        decided = []
        for one in batch:
            try:
                # Before its target is looked at: the first submission may have made the site it asks for.
                known = ground.made_before(one.request, one.job_id)
                if known is not None:
                    told[one.place] = Submitted(known, is_new=False)
                else:
                    decided.append((one, decide_on(session, one.request, ground, policy=policy, rules=rules)))
            except (InvalidJobError, IdempotencyConflictError) as error:
                told[one.place] = error
        return decided

    def _push(self, pushes: Sequence[tuple[Push, Limits]]) -> None:
        try:
            if pushes:
                self._publisher.push_all(pushes)
        except PublishError:
            logger.warning(
                "push_failed_dispatcher_will_retry", extra={"jobs": [str(push.job_id) for push, _ in pushes]}
            )


def batches(asked: Sequence[Asked]) -> Iterator[Sequence[Asked]]:
    """Cut what came together into parts that may be looked at before any of them is written.

    What changes what others stand on is alone: it makes a site, takes the place of other jobs, or begins a run; and a
    key that comes again is looked up when the first job with it is there.
    """
    batch: list[Asked] = []
    keys: set[str | None] = set()
    for one in asked:
        request = one.request
        is_alone = request.new_site is not None or request.supersede_key is not None or request.project is not None
        if batch and (is_alone or len(batch) == BATCH or request.idempotency_key in keys):
            yield batch
            batch, keys = [], set()
        if is_alone:
            yield [one]
            continue
        batch.append(one)
        keys |= {request.idempotency_key} - {None}
    if batch:
        yield batch


def _place(
    session: Session, decided: Sequence[tuple[Asked, Decided]], origin: _Origin, told: dict[int, Outcome]
) -> dict[int, tuple[NewJob, Decided]]:
    """Find a place for each job in its turn, those before it counted; of one without room it is told so."""
    wanted: dict[QueueName, set[UUID]] = {}
    for _, about in decided:
        if about.question is None:
            sites = wanted.setdefault(about.stage.queue, set())
            if about.writes is not None:
                sites.add(about.writes)
    rooms = look_for_room(session, origin.tenant, wanted) if wanted else {}
    news: dict[int, tuple[NewJob, Decided]] = {}
    for asked, about in decided:
        place = _NOWHERE
        if about.question is None:
            room, policy = rooms[about.stage.queue], about.policy
            try:
                check(room, origin.tenant, policy=policy)
            except AdmissionRefusedError as error:
                told[asked.place] = error
                continue
            is_early = about.request.start_at is not None
            place = room.take(about.writes, runway=policy.runway, admission=policy.admission, is_early=is_early)
        news[asked.place] = (_new_job(session, asked, about, place, origin), about)
    return news


def _new_job(session: Session, asked: Asked, about: Decided, place: Place, origin: _Origin) -> NewJob:
    request, route = asked.request, about.route
    site_id = about.site.id if about.site is not None else None
    if site_id is None and request.new_site is not None and about.makes_site:
        site_id = ensure_site(session, origin.tenant, request.new_site).id
    return NewJob(
        id=asked.job_id,
        tenant=origin.tenant,
        door=origin.door,
        requested_by=origin.actor,
        request=request,
        state=about.stage.state,
        queue=about.stage.queue,
        mode=route.mode.value,
        tier=route.tier.value if route.tier else None,
        route=route.model_dump(mode="json"),
        site_id=site_id,
        cap_nanousd=about.cap_nanousd,
        clarification=about.question.model_dump(mode="json") if about.question else None,
        clarify_hours=about.policy.approval.hours,
        trace=traces.current(),
        is_pushed=place.is_pushed,
        hold=place.hold,
        held_until=request.start_at if place.hold is Hold.TIME else None,
    )


def _go_with(session: Session, new: NewJob, about: Decided) -> None:
    """Do what goes with accepting a job: it takes the place of older ones, and a project's work becomes a run."""
    if new.request.supersede_key is not None:
        supersede(session, session.get_one(Job, new.id))
    if about.project is not None and not about.route.trivial:
        estimate = estimate_run(about.policy, about.route.intent)
        new_run(session, session.get_one(Job, new.id), about.project, estimate=estimate)


def _twin(session: Session, new: NewJob) -> Outcome:
    """Return what became of a request that somebody else made at the same moment, and first."""
    ground = survey(session, new.tenant, [new.request], ids=[new.id])
    try:
        known = ground.made_before(new.request, new.id) if ground is not None else None
    except IdempotencyConflictError as error:
        return error
    return Submitted(known, is_new=False) if known is not None else IdempotencyConflictError(new.id)


def _note_submitted(span: traces.Span, told: Submitted) -> None:
    job = told.job
    span.note({
        "pointsman.job.id": str(job.id), "pointsman.job.is_new": told.is_new, "pointsman.queue": job.queue,
        "pointsman.tier": job.tier,
    })  # fmt: skip
    traces.refer_to(job.trace)
