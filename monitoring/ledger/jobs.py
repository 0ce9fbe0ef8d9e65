"""The state of every job: accepted once, moved by the one table of legal moves, ended once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import cast, func, or_, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlmodel import Session, col

from monitoring.errors import IdempotencyConflictError, JobNotFoundError
from monitoring.ledger import audit
from monitoring.ledger.clock import after, now
from monitoring.ledger.events import EventKind, count_events, record, wake_dispatcher
from monitoring.ledger.failures import Consequence, count_end
from monitoring.ledger.record_tables import Event, Notification
from monitoring.ledger.run_usage import tokens_by_part
from monitoring.ledger.spending import WASTED_OUTCOMES, spent_by_attempt, spent_by_job, wasted_at_end
from monitoring.ledger.step_ends import is_run, is_step, note_end
from monitoring.ledger.storable import storable
from monitoring.ledger.tables import Attempt, Job, Site
from routing.failures import FailureAction
from routing.jobs import ENDS, Door, JobRequest, Reason, State, check_move
from routing.planning import Debate
from routing.router import Route
from routing.stages import work_queue
from routing.tiers import QueueName

WAITING_STATES = frozenset({State.RECEIVED, State.DEBATING, State.QUEUED, State.PUBLISHING})
"""States in which a job can wait for a worker."""

_UNDECIDED = frozenset({State.RECEIVED, State.CLARIFYING})
"""States in which a model or the job's owner may still change the decision."""

_LIMIT_OF_END = {
    State.TIMED_OUT: "time",
    State.BUDGET_EXCEEDED: "cost",
    State.OUTPUT_EXCEEDED: "output",
}


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job as it is about to be accepted: validated and routed."""

    id: UUID
    tenant: str
    door: Door
    request: JobRequest
    state: State
    queue: QueueName
    mode: str | None = None
    tier: int | None = None
    route: Mapping[str, Any] = field(default_factory=dict)
    site_id: UUID | None = None
    cap_nanousd: int = 0
    requested_by: str = ""
    parent_id: UUID | None = None
    root_id: UUID | None = None
    clarification: Mapping[str, Any] | None = None
    """What is asked, of a job that is accepted `clarifying`."""
    clarify_hours: float = 0.0
    """How long the question stays open."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What is known of it from the start, because of the job it goes on from."""
    is_pushed: bool = False
    """Whether the caller pushes its message right after the commit."""


class Accepted(NamedTuple):
    """The outcome of accepting a job."""

    job: Job
    is_new: bool
    """False when the same request was accepted before: the caller gets that job."""


def request_digest(request: JobRequest) -> str:
    """Return a hash of what was asked: equal for equal requests, whatever the order of their fields."""
    body = request.model_dump(mode="json", exclude={"idempotency_key"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def accept(session: Session, new: NewJob, *, actor: str | None = None) -> Accepted:
    """Write the row that makes a job accepted.

    Args:
        session: the caller's transaction.
        new: the job.
        actor: who asked for it; the tenant where nobody else is named.

    Raises:
        IdempotencyConflictError: the caller's fault: the key or the id was used with another body.
    """
    row = _row_of(new)
    job = session.scalars(insert(Job).values(row).on_conflict_do_nothing().returning(Job)).one_or_none()
    if job is None:
        same = same_request(session, new.tenant, new.request, job_id=new.id)
        if same is None:
            raise IdempotencyConflictError(new.id)
        return Accepted(same, is_new=False)
    decided = new.mode if new.parent_id is None else None  # a child keeps its parent's route, which is counted already
    record(
        session, EventKind.ACCEPTED, job=job, door=job.door, mode=decided, queue=job.queue, tier=job.tier,
        state=job.state, confidence=new.route.get("confidence"),
    )  # fmt: skip
    if job.waiting_since is not None:
        record(session, EventKind.WAITING, job=job, queue=job.queue, tier=job.tier)
        if not new.is_pushed:
            wake_dispatcher(session)
    by = actor or f"tenant:{new.tenant}"
    audit.append(session, "job_accepted", actor=by, job=job, door=job.door, route=dict(new.route))
    return Accepted(job, is_new=True)


def _row_of(new: NewJob) -> dict[str, Any]:
    """Return the columns of a new job's row."""
    return {
        "id": new.id,
        "tenant": new.tenant,
        "door": new.door.value,
        "requested_by": new.requested_by,
        "state": new.state.value,
        "prompt": new.request.prompt,
        "request": new.request.model_dump(mode="json", exclude={"prompt"}, exclude_defaults=True),
        "request_digest": request_digest(new.request),
        "idempotency_key": new.request.idempotency_key,
        "priority": new.request.priority,
        "site_id": new.site_id,
        "parent_id": new.parent_id,
        "root_id": new.root_id or new.id,
        "route": dict(new.route),
        "mode": new.mode,
        "tier": new.tier,
        "queue": new.queue.value,
        "waiting_since": now() if new.state in WAITING_STATES else None,
        "pushed_at": now() if new.is_pushed else None,
        "cap_nanousd": new.cap_nanousd,
        "clarification": new.clarification,
        "expires_at": after(new.clarify_hours * 3600) if new.clarification is not None else None,
        "fence": 0,
        "lost_attempts": 0,
        "result": dict(new.result),
    }


def same_request(session: Session, tenant: str, request: JobRequest, *, job_id: UUID) -> Job | None:
    """Return the job that was accepted before under this id or idempotency key, or None.

    Raises:
        IdempotencyConflictError: the caller's fault: it was accepted with another body.
    """
    same = col(Job.id) == job_id
    if request.idempotency_key is not None:
        own_key = (col(Job.tenant) == tenant) & (col(Job.idempotency_key) == request.idempotency_key)
        same = or_(same, own_key)
    job = session.scalars(select(Job).where(same).order_by(col(Job.id) != job_id)).first()
    if job is not None and (job.tenant != tenant or job.request_digest != request_digest(request)):
        raise IdempotencyConflictError(job.id if job.tenant == tenant else job_id)
    return job


def find_job(session: Session, job_id: UUID, *, tenant: str | None = None) -> Job:
    """Return a job; with `tenant`, only if it belongs to that tenant.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    job = session.get(Job, job_id)
    if job is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(job_id)
    return job


def lock_job(session: Session, job_id: UUID, *, tenant: str | None = None) -> Job:
    """Return a job with its row locked until the transaction ends: the start of every move.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    query = select(Job).where(col(Job.id) == job_id).with_for_update()
    job = session.scalars(query, execution_options={"populate_existing": True}).one_or_none()
    if job is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(job_id)
    return job


def list_jobs(
    session: Session, *, tenant: str | None = None, states: Sequence[State] = (), site_id: UUID | None = None,
    limit: int = 50,
) -> Sequence[Job]:  # fmt: skip
    """Return the newest jobs first; the steps of runs are shown by their runs."""
    query = select(Job).where(col(Job.queue) != QueueName.STEPS.value)
    query = query.order_by(col(Job.created_at).desc()).limit(limit)
    if tenant is not None:
        query = query.where(col(Job.tenant) == tenant)
    if states:
        query = query.where(col(Job.state).in_([state.value for state in states]))
    if site_id is not None:
        query = query.where(col(Job.site_id) == site_id)
    return session.scalars(query).all()


def move(session: Session, job: Job, target: State, *, reason: Reason | None = None, **data: Any) -> None:
    """Move a locked job to a state that is no end.

    Raises:
        IllegalMoveError: our fault.
    """
    origin = State(job.state)
    check_move(origin, target, is_run=is_run(job))
    job.state = target.value
    if target == State.CLARIFYING:
        data |= _decision(job)
    record(
        session, EventKind.STATE, job=job, origin=origin.value, target=target.value,
        reason=reason.value if reason else None, **_made(session, job, origin, State(job.state)), **data,
    )  # fmt: skip
    session.flush()


def _decision(job: Job) -> dict[str, Any]:
    return {"mode": job.mode, "confidence": job.route.get("confidence"), "tier": job.tier}


def _made(session: Session, job: Job, origin: State, target: State) -> dict[str, Any]:
    """Return what the event of a job's way out of intake, or of its owner's reply, says of the decision made there.

    So each accepted job's decision is told exactly once: here, or by its acceptance where nobody had a say.
    """
    if origin not in _UNDECIDED or target in _UNDECIDED:
        return {}
    told = select(col(Event.id)).where(col(Event.job_id) == job.id, cast(col(Event.data), JSONB).has_key("decision"))
    return {"decision": _decision(job)} if session.scalar(told.limit(1)) is None else {}


def route_job(session: Session, job: Job, route: Route) -> None:
    """Let a locked job that intake is done with wait on the queue of its route."""
    job.route = route.model_dump(mode="json")
    job.mode = route.mode.value
    job.tier = route.tier.value if route.tier else None
    job.fence += 1  # as in `await_approval`: intake's attempt is over
    if job.state == State.RECEIVED and route.debate is Debate.PLANNING:
        move(session, job, State.DEBATING)
    move(session, job, State.QUEUED)
    wait_on(session, job, work_queue(route))


def wait_on(session: Session, job: Job, queue: QueueName) -> None:
    """Let a locked job wait for a worker on `queue`; the dispatcher pushes its message."""
    left = _left_queue(job)
    job.queue = queue.value
    job.waiting_since = now()  # type: ignore[assignment]
    job.pushed_at = None
    session.flush()
    record(session, EventKind.WAITING, job=job, queue=queue.value, tier=job.tier, left=left)
    wake_dispatcher(session)


def _left_queue(job: Job) -> str | None:
    """Return the queue on which a job waits and which it is about to leave without a claim."""
    return job.queue if job.waiting_since is not None else None


def end(
    session: Session, job: Job, target: State, *, reason: Reason, detail: str = "",
    result: Mapping[str, Any] | None = None, actor: str = "pointsman",
) -> None:  # fmt: skip
    """End a locked job: final state, free site, one audit row with the six facts, one notification.

    What its end means for its task is decided here too: a task that fails again ends `escalated` instead of `failed`,
    or goes on in a new job that debates it.

    Raises:
        IllegalMoveError: our fault.
    """
    origin = State(job.state)
    check_move(origin, target)
    assert target in ENDS
    left = _left_queue(job)
    consequence = count_end(session, job, target, reason=reason, detail=detail)
    target = consequence.state
    job.state = target.value
    job.reason = reason.value
    job.detail = storable(detail) or None
    job.result = {**job.result, **(result or {}), **_follow_up(session, job, consequence)}
    job.waiting_since = None
    job.pushed_at = None
    job.expires_at = None
    job.fence += 1
    job.ended_at = now()  # type: ignore[assignment]
    session.flush()
    session.execute(sql_update(Site).where(col(Site.lock_job_id) == job.id).values(lock_job_id=None))
    close_attempt(session, job, outcome=target.value, reason=reason)
    note_end(session, job, target, reason=reason, detail=detail)
    _record_end(session, job, origin=origin, reason=reason, left=left)
    audit.append(session, "job_ended", actor=actor, job=job, state=target.value, reason=reason.value)
    _notify_owner(session, job)
    wake_dispatcher(session)


def _follow_up(session: Session, job: Job, consequence: Consequence) -> dict[str, Any]:
    """Do what an end leads to, and return what its job's owner is told of it."""
    if consequence.action is FailureAction.NONE:
        return {}
    told: dict[str, Any] = {"failure_action": consequence.action.value}
    if consequence.action is FailureAction.DEBATE_FAILURE:
        told["continued_as"] = str(_accept_debate(session, job, consequence).id)
    return told


def _accept_debate(session: Session, job: Job, consequence: Consequence) -> Job:
    """Let a task that failed go on in a new job, on the same bill, which is debated before it works.

    It keeps to what the failed job had to keep to: a second try must not lose a constraint, nor a person's gate.
    """
    asked = {**job.request, "prompt": job.prompt, "idempotency_key": None}
    kept: dict[str, Any] = {name: job.result[name] for name in ("debate", "needs_person") if name in job.result}
    child = NewJob(
        id=uuid4(),
        tenant=job.tenant,
        door=Door(job.door),
        requested_by=job.requested_by,
        request=JobRequest.model_validate(asked),
        state=State.DEBATING,
        queue=QueueName.INTAKE,
        mode=job.mode,
        tier=job.tier,
        route=job.route,
        site_id=job.site_id,
        cap_nanousd=job.cap_nanousd,
        parent_id=job.id,
        root_id=job.root_id,
        result={**kept, "failure_debate": True, "failures": list(consequence.failures)},
    )
    return accept(session, child, actor="pointsman").job


def close_attempt(session: Session, job: Job, *, outcome: str, reason: Reason) -> None:
    """End the live attempt of a locked job; does nothing when it has none."""
    closed = session.execute(
        sql_update(Attempt)
        .where(col(Attempt.job_id) == job.id, col(Attempt.ended_at).is_(None))
        .values(ended_at=now(), outcome=outcome, reason=reason.value)
        .returning(
            col(Attempt.id), col(Attempt.queue), col(Attempt.tier), col(Attempt.number),
            func.extract("epoch", col(Attempt.ended_at) - col(Attempt.started_at)),
        )
    )  # fmt: skip
    for attempt_id, queue, tier, number, seconds in closed:
        cost = spent_by_attempt(session, job, attempt_id)
        record(
            session, EventKind.ATTEMPT_ENDED, job=job, queue=queue, tier=tier, attempt=number, outcome=outcome,
            reason=reason.value, seconds=round(float(seconds), 3), cost_nanousd=cost,
            wasted_nanousd=cost if outcome in WASTED_OUTCOMES else 0,
        )  # fmt: skip


def _record_end(session: Session, job: Job, *, origin: State, reason: Reason, left: str | None) -> None:
    seconds = (job.ended_at - job.created_at).total_seconds() if job.ended_at else 0.0
    made = _made(session, job, origin, State(job.state))
    record(session, EventKind.STATE, job=job, origin=origin.value, target=job.state, reason=reason.value, **made)
    if limit := _LIMIT_OF_END.get(State(job.state)):
        record(session, EventKind.LIMIT_HIT, job=job, queue=job.queue, tier=job.tier, limit=limit, phase="run")
    record(
        session, EventKind.ENDED, job=job, state=job.state, reason=reason.value, queue=job.queue, tier=job.tier,
        seconds=round(seconds, 3), detail=job.detail, left=left, boxes=count_events(session, job, EventKind.BOX),
        cost_nanousd=spent_by_job(session, job), wasted_nanousd=wasted_at_end(session, job),
        **({"run_tokens": tokens_by_part(session, job.id)} if is_run(job) else {}),
    )  # fmt: skip


def _notify_owner(session: Session, job: Job) -> None:
    if is_step(job):
        return  # its run tells, once
    url = job.request.get("callback_url")
    payload = {"type": "job.ended", "job_id": str(job.id), "state": job.state, "reason": job.reason}
    if job.parent_id is not None:
        payload["parent_id"] = str(job.parent_id)
    if "continued_as" in job.result:
        payload["continued_as"] = job.result["continued_as"]
    session.execute(
        insert(Notification).values(
            job_id=job.id, callback_url=url, payload=payload, attempts=0,
            next_at=now() if url else None, delivered_at=None if url else now(),
        )
    )  # fmt: skip
