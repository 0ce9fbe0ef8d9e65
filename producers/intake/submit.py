"""Submit jobs from any source: validate, decide, insert, push. No model is called.

A job is accepted when its row commits; nothing that the broker does afterwards can lose it. Requests that arrive
together are decided and inserted together; a single one is a batch of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlmodel import Session

from ledger.dispatch_window import Push
from ledger.errors import IdempotencyConflictError
from ledger.job_control import supersede
from ledger.job_ends import owe_notices
from ledger.releases import ensure_site
from ledger.runs.run import new_run
from ledger.store import LEDGER_UNREACHABLE, Ledger
from ledger.submission import AcceptedJob, Headroom, KnownKey, accept_all, load_submission_context
from ledger.tables import Job, NewJob
from monitoring import traces
from producers.dispatch.broker import Publisher
from producers.errors import AdmissionRefusedError, LedgerAwayError, PublishError, UnknownTenantError
from producers.intake.decisions import (
    BatchItem,
    Decide,
    RoutedRequest,
    SeenTenant,
    check_callback,
    check_headroom,
    check_means_something,
    check_uploads,
    decide_on,
    decide_on_seen,
    decider,
    limits_of,
    policy_on,
    refuse_if_full,
)
from producers.intake.refusals import Refusal, Refused, record_refusals
from routing.errors import FieldError, InvalidJobError
from routing.estimate import estimate_run
from routing.ids import new_id
from routing.jobs import JobRequest, Source, parse_request
from routing.policy.platform import Policy
from routing.prompt.vocabulary import Vocabularies, shipped_vocabularies
from routing.queues import Limits
from routing.scheduling import WaitReason

logger = logging.getLogger(__name__)

Environment = Callable[[], Mapping[str, str]]
"""Switches that are read for every decision (`ENABLE_HARD_ROUTING`, `INTENT_CLASSIFIER`)."""

BATCH = 500
"""The most jobs that one transaction accepts."""


class Submitted(NamedTuple):
    """An accepted request."""

    job: AcceptedJob
    is_new: bool
    """False when the same request was accepted before; `job` is that one."""


Outcome = Submitted | Refusal


class Requester(NamedTuple):
    """Who requests work, and through which source."""

    tenant: str
    source: Source
    actor: str
    """As the audit trail names actors."""


@dataclass(eq=False)
class Submitter:
    """Accepts jobs for one installation."""

    ledger: Ledger
    publisher: Publisher
    policy: Policy
    environment: Environment = dict
    vocabularies: Vocabularies = field(default_factory=shipped_vocabularies)
    private_callbacks: bool = False
    _seen: dict[str, SeenTenant] = field(default_factory=dict, init=False)

    def submit(
        self, body: object, *, tenant: str, source: Source, job_id: UUID | None = None, actor: str | None = None
    ) -> Submitted:
        """Accept a job, or refuse it with a reason for every field at fault.

        Args:
            body: the untrusted request, or our own.
            tenant: the owner.
            source: where it came from.
            job_id: the caller's own id for it (a Celery task id).
            actor: who asks, as the audit trail names actors; by default the source itself.

        Raises:
            InvalidJobError: the caller's fault; the refusal is recorded.
            UnknownTenantError: the caller's fault.
            IdempotencyConflictError: the caller's fault.
            AdmissionRefusedError: nobody's fault: no headroom now; it says when to come back.
        """
        requester = _requester(tenant, source, actor)
        with traces.begin("submit", facts={"pointsman.source": source.value, "pointsman.tenant": tenant}) as span:
            (outcome,) = self._submit(requester, [body], [job_id])
            if not isinstance(outcome, Submitted):
                raise outcome
            _note_submitted(span, outcome)
        return outcome

    def submit_on_seen(self, body: object, *, tenant: str, actor: str, key: KnownKey) -> Submitted | None:
        """Accept a job over HTTP of a caller whom this process has seen before, with one statement.

        That statement checks that the key is still good. Returns None, and nothing has happened, where more than that
        is needed, a refusal above all: `submit` is for that, once the caller is authenticated.
        """
        requester = Requester(tenant, Source.HTTP, actor)
        with traces.begin("submit", facts={"pointsman.source": Source.HTTP.value, "pointsman.tenant": tenant}) as span:
            with suppress(InvalidJobError):
                item = self._parse(0, body, None)
                if (submitted := self._accept_on_seen(item, requester, key)) is not None:
                    _note_submitted(span, submitted)
                    return submitted
            span.discard()
        return None

    def submit_many(
        self, bodies: Sequence[object], *, tenant: str, source: Source, actor: str | None = None
    ) -> list[Outcome]:
        """Accept jobs in this order, each as if it came alone; a refused one affects no other.

        Args:
            bodies: the untrusted requests.
            tenant: the owner.
            source: where they came from.
            actor: as for `submit`.

        Returns:
            For each request what `submit` returns or raises. If the ledger went away half-way through, LedgerAwayError
            for all that may not have been accepted.

        Raises:
            UnknownTenantError: the caller's fault.
        """
        requester = _requester(tenant, source, actor)
        facts: traces.Facts = {
            "pointsman.source": source.value,
            "pointsman.tenant": tenant,
            "pointsman.jobs": len(bodies),
        }
        with traces.begin("submit many", facts=facts) as span:
            outcomes = self._submit(requester, bodies, [None] * len(bodies))
            span.note({"pointsman.refused": sum(not isinstance(one, Submitted) for one in outcomes)})
        return outcomes

    def find_or_refuse(self, request: JobRequest, *, tenant: str, source: Source) -> Submitted | None:
        """Return the job that a request of ours made before, or None where it would be accepted now.

        Raises:
            InvalidJobError, IdempotencyConflictError, AdmissionRefusedError, UnknownTenantError: as `submit` does.
        """
        requester, outcomes = _requester(tenant, source, None), dict[int, Outcome]()
        with self.ledger.begin() as session:
            for routed in self._decide(session, [BatchItem(0, new_id(), request)], requester, outcomes):
                check_headroom(session, routed.stage.queue, tenant, policy=routed.policy)
                check_uploads(session, tenant, policy=routed.policy)
        if (outcome := outcomes.get(0)) is not None and not isinstance(outcome, Submitted):
            raise outcome
        return outcome

    def record_refusal(
        self,
        error: InvalidJobError,
        *,
        tenant: str,
        source: Source,
        job_id: UUID | None = None,
        actor: str | None = None,
    ) -> None:
        """Record a refusal: all that is written about a request that breaks a rule; `actor` is as for `submit`."""
        requester = _requester(tenant, source, actor)
        with self.ledger.begin() as session:
            record_refusals(session, [Refused(error, job_id)], **requester._asdict())

    def _submit(self, requester: Requester, bodies: Sequence[object], ids: Sequence[UUID | None]) -> list[Outcome]:
        items: list[BatchItem] = []
        outcomes: dict[int, Outcome] = {}
        for place, body in enumerate(bodies):
            try:
                items.append(self._parse(place, body, ids[place]))
            except InvalidJobError as error:
                outcomes[place] = error
        if len(bodies) == len(items) == 1 and (told := self._accept_on_seen(items[0], requester)) is not None:
            return [told]
        try:
            for batch in batches(items):
                self._accept(batch, requester, outcomes)
            refused = [Refused(one, ids[place]) for place, one in outcomes.items() if not isinstance(one, Submitted)]
            if refused:
                with self.ledger.begin() as session:
                    record_refusals(session, refused, **requester._asdict())
        except LEDGER_UNREACHABLE:
            if not any(isinstance(one, Submitted) for one in outcomes.values()):
                raise
            logger.warning("batch_broken_off", extra={"answered": len(outcomes), "asked": len(bodies)})
        return [outcomes[place] if place in outcomes else LedgerAwayError() for place in range(len(bodies))]

    def _parse(self, place: int, body: object, job_id: UUID | None) -> BatchItem:
        request = body if isinstance(body, JobRequest) else _sent_request(body)
        check_callback(request, allow_private=self.private_callbacks)
        if not (request.options or request.upload or request.project):
            check_means_something(request.prompt)
        return BatchItem(place, job_id or new_id(), request)

    def _accept_on_seen(self, item: BatchItem, requester: Requester, key: KnownKey | None = None) -> Submitted | None:
        """Accept an ordinary request with one statement, which checks what it was decided on.

        Returns:
            None, and nothing was written, for a request that is not ordinary, was made before, has no headroom, or was
            decided on what is so no longer: `_accept` looks at the ledger first.
        """
        seen = self._seen.get(requester.tenant)
        if seen is None or (context := seen.context_of(item.request, requester.tenant)) is None:
            return None
        decide = self._decider(requester.tenant, seen.policy)
        decision = decide_on_seen(item, context, policy=seen.policy, decide=decide)
        if decision is None:
            return None
        new = _new_job(decision, requester, decision.route.stored(), site_id=None)
        with self.ledger.look() as connection:
            receipts = accept_all(connection, [new], limits=seen.limits, seen=context.seen(item.request.site, key))
        if not receipts or not receipts[0].is_new:
            return None
        if receipts[0].is_pushed:
            self._push([_push_of(new, decision)])
        return Submitted(_known_job(new), is_new=True)

    def _accept(self, batch: Sequence[BatchItem], requester: Requester, outcomes: dict[int, Outcome]) -> None:
        """Accept a batch in one transaction, then push what may run at once."""
        batch_outcomes: dict[int, Outcome] = {}
        pushes = []
        with self.ledger.begin() as session:
            routed = self._decide(session, batch, requester, batch_outcomes)
            try:
                distinct = {id(one.route): one.route for one in routed}
                routes = {key: route.stored() for key, route in distinct.items()}
                jobs = [
                    _new_job(one, requester, routes[id(one.route)], site_id=_site_of(session, one, requester.tenant))
                    for one in routed
                ]
            except AdmissionRefusedError as error:  # for a job that makes its site, which is alone in its batch
                batch_outcomes[batch[0].place] = error
                routed, jobs = [], []
            limits = limits_of(routed[0].policy) if routed else None  # a run, which has its own, is alone in its batch
            receipts = accept_all(session, jobs, limits=limits) if jobs else []
            for new, decision, receipt in zip(jobs, routed, receipts, strict=True):
                if receipt.is_new:
                    batch_outcomes[decision.item.place] = Submitted(_known_job(new), is_new=True)
                    _finish_accepting(session, new, decision)
                    if receipt.is_pushed:
                        pushes.append(_push_of(new, decision))
                elif receipt.shortage is not None:
                    batch_outcomes[decision.item.place] = _refusal(receipt.shortage, requester.tenant, decision.policy)
                else:
                    batch_outcomes[decision.item.place] = _find_duplicate(session, new)
        outcomes |= batch_outcomes
        self._push(pushes)

    def _decide(
        self, session: Session, batch: Sequence[BatchItem], requester: Requester, outcomes: dict[int, Outcome]
    ) -> list[RoutedRequest]:
        """Decide about each request of a batch; refusals and repeats go to `outcomes`."""
        tenant = requester.tenant
        ids = [item.job_id for item in batch] if requester.source is Source.CELERY else []
        context = load_submission_context(session, tenant, [item.request for item in batch], ids=ids)
        if context is None:
            raise UnknownTenantError(tenant)
        try:
            policy = policy_on(context, self.policy)
        except InvalidJobError as error:
            outcomes |= dict.fromkeys((item.place for item in batch), error)
            return []
        self._seen[tenant] = SeenTenant.learn(self._seen.get(tenant), context, policy)
        decide = cache(self._decider(tenant, policy))  # one prompt often comes for many sites
        routed = []
        for item in batch:
            try:
                # Before the target is checked: the first submission may have made the site.
                earlier = context.find_accepted(item.request, item.job_id)
                if earlier is not None:
                    outcomes[item.place] = Submitted(earlier, is_new=False)
                else:
                    routed.append(decide_on(session, item, context, policy=policy, decide=decide))
            except (InvalidJobError, IdempotencyConflictError) as error:
                outcomes[item.place] = error
        return routed

    def _decider(self, tenant: str, policy: Policy) -> Decide:
        return decider(policy, self.vocabularies.of(tenant), switches=self.environment())

    def _push(self, pushes: Sequence[tuple[Push, Limits]]) -> None:
        try:
            if pushes:
                self.publisher.push_all(pushes)
        except PublishError:
            logger.warning(
                "push_failed_dispatcher_will_retry", extra={"jobs": [str(push.job_id) for push, _ in pushes]}
            )


def _requester(tenant: str, source: Source, actor: str | None) -> Requester:
    return Requester(tenant, source, actor or f"{source.value}:{tenant}")


def _sent_request(body: object) -> JobRequest:
    request = parse_request(body)
    if request.upload is not None:
        raise InvalidJobError((FieldError("upload", "is not a field of this request"),))
    return request


def batches(items: Sequence[BatchItem]) -> Iterator[Sequence[BatchItem]]:
    """Split requests into batches whose members cannot affect each other's decision.

    A request that makes a site, supersedes jobs or begins a run gets its own batch. A repeated idempotency key starts
    a new batch, in which its first job is found.
    """
    batch: list[BatchItem] = []
    keys: set[str | None] = set()
    for item in items:
        request = item.request
        alone = (request.new_site, request.upload, request.supersede_key, request.project)
        is_alone = alone.count(None) < len(alone)
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


def _refusal(shortage: Headroom, tenant: str, policy: Policy) -> AdmissionRefusedError:
    try:
        refuse_if_full(shortage, tenant, policy=policy)
    except AdmissionRefusedError as error:
        return error
    raise AssertionError("the ledger counts what is full as this does")


def _site_of(session: Session, decision: RoutedRequest, tenant: str) -> UUID | None:
    """Return the site of a job, which is made if it asks for that and there is headroom for the job."""
    if decision.site is not None:
        return decision.site.id
    if (name := decision.new_site) is not None:
        check_headroom(session, decision.stage.queue, tenant, policy=decision.policy)
        return ensure_site(session, tenant, name).id
    return None


def _new_job(
    decision: RoutedRequest, requester: Requester, route_facts: Mapping[str, Any], *, site_id: UUID | None
) -> NewJob:
    request, route = decision.request, decision.route
    is_early = request.start_at is not None and decision.question is None
    return NewJob(
        id=decision.item.job_id,
        tenant=requester.tenant,
        source=requester.source,
        requested_by=requester.actor,
        request=request,
        state=decision.stage.state,
        queue=decision.stage.queue,
        mode=route.mode.value,
        tier=route.tier.value if route.tier else None,
        route=route_facts,
        site_id=site_id,
        cap_nanousd=decision.cap_nanousd,
        clarification=decision.question.model_dump(mode="json") if decision.question else None,
        clarify_hours=decision.policy.approval.hours,
        trace=traces.current(),
        held_for=WaitReason.TIME if is_early else None,
        held_until=request.start_at if is_early else None,
    )


def _push_of(new: NewJob, decision: RoutedRequest) -> tuple[Push, Limits]:
    return Push(new.id, 0, new.queue, new.tenant, new.trace), decision.policy.queues[new.queue]


def _known_job(new: NewJob) -> AcceptedJob:
    own = {name: getattr(new, name) for name in AcceptedJob._fields if name not in ("detail", "idempotency_key")}
    return AcceptedJob(**own, detail=None, idempotency_key=new.request.idempotency_key)


def _finish_accepting(session: Session, new: NewJob, decision: RoutedRequest) -> None:
    """Notify the owner of a question, supersede older jobs, and start a run for a project's work."""
    if new.clarification is not None:
        owe_notices(session, session.get_one(Job, new.id))
    if new.request.supersede_key is not None:
        supersede(session, session.get_one(Job, new.id))
    if decision.project is not None and not decision.route.trivial:
        estimate = estimate_run(decision.policy, decision.route.intent)
        new_run(session, session.get_one(Job, new.id), decision.project, estimate=estimate)


def _find_duplicate(session: Session, new: NewJob) -> Outcome:
    """Return the job that a concurrent submission of the same request made first."""
    context = load_submission_context(session, new.tenant, [new.request], ids=[new.id])
    try:
        earlier = context.find_accepted(new.request, new.id) if context is not None else None
    except IdempotencyConflictError as error:
        return error
    return Submitted(earlier, is_new=False) if earlier is not None else IdempotencyConflictError(new.id)


def _note_submitted(span: traces.Span, submitted: Submitted) -> None:
    job = submitted.job
    span.note(
        {
            "pointsman.job.id": str(job.id),
            "pointsman.job.is_new": submitted.is_new,
            "pointsman.queue": job.queue,
            "pointsman.tier": job.tier,
        }
    )
    traces.refer_to(job.trace)
