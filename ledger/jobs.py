"""Move jobs along the table of legal moves and end each one once.

Every move and every end is recorded as events, which metrics count. An end also owes the job's owner one notification.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import bindparam, cast, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Session, col

from ledger import audit
from ledger.dispatch_window import IS_PUSHED, IS_READY, set_wait_reason
from ledger.errors import JobNotFoundError, MessageRefusedError
from ledger.events import INSERT_EVENTS, EventKind, NewEvent, event_rows, record, record_all
from ledger.job_ends import Consequence, count_end, is_run, is_step, owe_notices, settle_end
from ledger.record_tables import Event
from ledger.runs.tables import Gate
from ledger.spending import spent_at_end, tokens_by_part, wasted_at_end
from ledger.store import Statement, dump_json, now, set_persisted, storable, wake_dispatcher
from ledger.submission import accept
from ledger.tables import Attempt, Job, NewJob
from routing.decision.llm_router import work_queue
from routing.decision.router import Route
from routing.decision.triggers import Debate
from routing.failures import FailureAction, dead_letter_signature
from routing.ids import new_id
from routing.jobs import (
    ANSWERS,
    ENDS,
    PAID_REPLIES,
    WASTED_OUTCOMES,
    JobRequest,
    Reason,
    Source,
    State,
    check_move,
    read_stored,
)
from routing.queues import QueueName
from routing.redaction import redact
from routing.rounds import work_begun
from routing.scheduling import CONTROL_RETRIES, WaitReason

_CLOSED = """
    UPDATE attempt SET ended_at = clock_timestamp(), outcome = %(outcome)s, reason = %(reason)s
     WHERE job_id = %(job)s AND ended_at IS NULL
    RETURNING id, queue, tier, number, extract(epoch FROM ended_at - started_at)::float AS seconds
"""

_CLOSE = Statement(_CLOSED)

_END = Statement(f"""
    WITH ended AS (
        UPDATE job SET state = %(state)s, reason = %(reason)s, detail = %(detail)s,
                       result = CAST(%(result)s AS jsonb), failure_signature = %(signature)s,
                       waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                       held_until = NULL, expires_at = NULL, fence = fence + 1, ended_at = clock_timestamp()
         WHERE id = %(job)s
        RETURNING fence, ended_at, extract(epoch FROM ended_at - created_at)::float AS seconds
    ), freed AS (
        UPDATE site SET lock_job_id = CAST(%(heir)s AS uuid)
         WHERE id = CAST(%(site)s AS uuid) AND lock_job_id = %(job)s
    ), closed AS ({_CLOSED})
    SELECT ended.fence, ended.ended_at, ended.seconds AS job_seconds,
           (SELECT count(*) FROM event WHERE job_id = %(job)s AND kind = %(box)s) AS boxes,
           closed.id, closed.queue, closed.tier, closed.number, closed.seconds
      FROM ended LEFT JOIN closed ON true
""")
"""The site is looked up by the job's `site_id`: finding it by its lock would scan the whole table."""

_RECORD_END = Statement(f"""
    WITH told AS ({INSERT_EVENTS} ORDER BY ordinality
    ), audited AS ({audit.INSERT_AUDIT}
    ), owed AS (
        INSERT INTO notification (job_id, tenant, callback_url, payload, attempts, next_at, delivered_at)
        SELECT %(job)s, %(tenant)s, CAST(%(url)s AS text), CAST(%(payload)s AS jsonb), 0,
               CASE WHEN CAST(%(url)s AS text) IS NOT NULL THEN clock_timestamp() END,
               CASE WHEN CAST(%(url)s AS text) IS NULL THEN clock_timestamp() END
         WHERE CAST(%(payload)s AS text) IS NOT NULL
    )
    SELECT EXISTS (SELECT FROM job WHERE site_id = CAST(%(site)s AS uuid) AND held_for = 'site')
           OR EXISTS (SELECT FROM job WHERE queue = %(queue)s AND tenant = %(tenant)s AND {IS_READY})
              AND NOT EXISTS (SELECT FROM job WHERE queue = %(queue)s AND tenant = %(tenant)s AND {IS_PUSHED})
""")

_UNDECIDED = frozenset({State.RECEIVED, State.CLARIFYING})
"""States in which a model or the owner may still change the decision."""

LIMIT_OF_END = {State.TIMED_OUT: "time", State.BUDGET_EXCEEDED: "cost", State.OUTPUT_EXCEEDED: "output"}


def _decision_of(job: Job) -> dict[str, Any]:
    """Return the parts of a job's decision that metrics count."""
    return {"mode": job.mode, "confidence": job.route.get("confidence"), "tier": job.tier}


def _decision_made(session: Session, job: Job, origin: State, target: State) -> dict[str, Any]:
    """Return the decision for the event that takes a job out of intake or clarification.

    Each job's decision is recorded exactly once: here, or by its acceptance when nobody had a say.
    """
    if origin not in _UNDECIDED or target in _UNDECIDED:
        return {}
    recorded = select(col(Event.id)).where(
        col(Event.job_id) == job.id, cast(col(Event.data), JSONB).has_key("decision")
    )
    return {"decision": _decision_of(job)} if session.scalar(recorded.limit(1)) is None else {}


class _ClosedAttempt(NamedTuple):
    """An attempt that was live until this transaction."""

    id: UUID
    queue: str
    tier: int | None
    number: int
    seconds: float

    def event(self, outcome: str, reason: Reason, *, cost: int) -> NewEvent:
        """Return its end event, given the nanodollars that its settled calls cost."""
        place = {"queue": self.queue, "tier": self.tier, "attempt": self.number, "seconds": round(self.seconds, 3)}
        wasted = cost if outcome in WASTED_OUTCOMES else 0
        ended = {"outcome": outcome, "reason": reason.value, "cost_nanousd": cost, "wasted_nanousd": wasted}
        return EventKind.ATTEMPT_ENDED, place | ended


class _EndFacts(NamedTuple):
    """What the statement that ended a job returned."""

    seconds: float
    """Since it was accepted."""
    boxes: int
    """Boxes that its attempts used."""
    closed: Sequence[_ClosedAttempt]


def _record_end(
    session: Session, job: Job, facts: _EndFacts, *, origin: State, reason: Reason, left: str | None, actor: str
) -> None:
    """Record that a job has just ended, owe its owner the notification, and wake the dispatcher.

    `left` is the queue on which it was still waiting, if any.
    """
    spent = spent_at_end(session, job)
    happened = [each.event(job.state, reason, cost=spent.get(each.id, 0)) for each in facts.closed]
    cost_nanousd = sum(spent.values())
    happened += _events_of_end(session, job, facts, cost_nanousd, origin=origin, reason=reason, left=left)
    audit_facts, detail = audit.facts_of(session, job), {"state": job.state, "reason": reason.value}
    values = {
        "job": job.id,
        "site": job.site_id,
        "queue": job.queue,
        "tenant": job.tenant,
        "url": job.request.get("callback_url"),
        "payload": None if is_step(job) else dump_json(_notification(job)),  # a step is reported by its run
        "events": dump_json(event_rows(happened, job)),
        "audit": dump_json([audit.audit_row("job_ended", actor=actor, job=job, facts=audit_facts, detail=detail)]),
    }
    if _RECORD_END.scalar(session, values) or is_step(job):
        wake_dispatcher(session)


def _events_of_end(
    session: Session, job: Job, facts: _EndFacts, cost_nanousd: int, *, origin: State, reason: Reason, left: str | None
) -> list[NewEvent]:
    decision = _decision_made(session, job, origin, State(job.state))
    place = {"queue": job.queue, "tier": job.tier}
    moved = {"origin": origin.value, "target": job.state, "reason": reason.value, **decision}
    happened: list[NewEvent] = [(EventKind.STATE, moved)]
    if reason is Reason.QUEUE_EXPIRED:
        happened.append((EventKind.LIMIT_HIT, {**place, "limit": "wait", "phase": "admit"}))
    elif limit := LIMIT_OF_END.get(State(job.state)):
        happened.append((EventKind.LIMIT_HIT, {**place, "limit": limit, "phase": "run"}))
    ended = {"state": job.state, "reason": reason.value, "detail": job.detail, "seconds": round(facts.seconds, 3)}
    used = {"boxes": facts.boxes, "cost_nanousd": cost_nanousd, "wasted_nanousd": wasted_at_end(session, job)}
    ended |= {**place, **used, "left": left, "output_bytes": output_bytes(job.result)}
    if is_run(job):
        ended |= _run_usage(session, job)
    return [*happened, (EventKind.ENDED, ended)]


def output_bytes(result: Mapping[str, Any]) -> int | None:
    """Return the size of the output that a job's result names; None when it is not measured."""
    if isinstance(answer := result.get("answer"), str):
        return len(answer.encode("utf-8", "surrogatepass"))
    return result.get("output_bytes")


def _run_usage(session: Session, job: Job) -> dict[str, Any]:
    """Return what metrics count of a run that ends: tokens by part, and gates opened (S-099)."""
    opened = select(func.count()).where(col(Gate.run_id) == job.id, col(Gate.opened_at).is_not(None))
    return {"run_tokens": tokens_by_part(session, job.id), "gates": session.scalar(opened) or 0}


def _notification(job: Job) -> dict[str, Any]:
    """Return the payload of an ended job's notification."""
    payload = {"type": "job.ended", "job_id": str(job.id), "state": job.state, "reason": job.reason}
    if job.parent_id is not None:
        payload["parent_id"] = str(job.parent_id)
    return payload | {name: job.result[name] for name in ("continued_as", "superseded_by") if name in job.result}


_LOCKED = select(Job).where(col(Job.id) == bindparam("job")).with_for_update()
_HELD = _LOCKED.where(
    select(col(Attempt.id))
    .where(
        col(Attempt.id) == bindparam("attempt"),
        col(Attempt.job_id) == col(Job.id),
        col(Attempt.fence) == col(Job.fence),
    )
    .exists()
)
INHERITED_FACTS = ("debate", "needs_person", "begun", ANSWERS)
"""Facts about a job that every further try has to respect."""


def find_job(session: Session, job_id: UUID, *, tenant: str | None = None) -> Job:
    """Return a job; with `tenant`, only if it belongs to that tenant.

    Raises:
        MessageRefusedError: the caller's fault: its message named no tenant that there is.
        JobNotFoundError: the caller's fault.
    """
    job = session.get(Job, job_id)
    if job is None and (rules := audit.refused_message(session, job_id)):
        raise MessageRefusedError(job_id, rules)
    if job is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(job_id)
    return job


lock_observers: list[Callable[[Job], None]] = []
"""Called with every job that is locked: tracing links the current span to the job's trace."""


def lock_job(session: Session, job_id: UUID, *, tenant: str | None = None, attempt_id: UUID | None = None) -> Job:
    """Lock a job's row until the transaction ends, and return it: the start of every move.

    Args:
        session: the caller's transaction.
        job_id: the job.
        tenant: only if it belongs to this tenant.
        attempt_id: only if this attempt holds it, as far as this ledger knows.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    wanted, values = (
        (_LOCKED, {"job": job_id}) if attempt_id is None else (_HELD, {"job": job_id, "attempt": attempt_id})
    )
    job = session.scalars(wanted, values, execution_options={"populate_existing": True}).one_or_none()
    if job is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(job_id)
    for observe in lock_observers:
        observe(job)
    return job


def move(session: Session, job: Job, target: State, *, reason: Reason | None = None, **data: Any) -> None:
    """Move a locked job to a state that is not an end. Its row is written with what else changes in the transaction.

    Raises:
        RoutingError: our fault.
    """
    origin = State(job.state)
    check_move(origin, target, is_run=is_run(job))
    job.state = target.value
    if target == State.CLARIFYING:
        data |= _decision_of(job)
    moved = {"origin": origin.value, "target": target.value, "reason": reason.value if reason else None}
    record(session, EventKind.STATE, job=job, **moved, **_decision_made(session, job, origin, target), **data)
    if origin is not State.PUBLISHING:  # an undone approval: its preview was announced before
        owe_notices(session, job)


def stop_waiting(session: Session, job: Job, target: State, **data: Any) -> None:
    """Move a locked job that waits for a worker to a state in which it waits for none; messages of it are stale."""
    left = _left_queue(job)
    job.fence += 1
    job.waiting_since = job.pushed_at = None
    set_wait_reason(job, None)
    move(session, job, target, left=left, **data)


def route_job(session: Session, job: Job, route: Route) -> None:
    """Queue a locked job that intake has finished with, by its route."""
    job.route = route.stored()
    job.mode = route.mode.value
    job.tier = route.tier.value if route.tier else None
    job.fence += 1  # as in `await_approval`: intake's attempt is over
    if job.state == State.RECEIVED and route.debate is Debate.PLANNING:
        move(session, job, State.DEBATING)
    move(session, job, State.QUEUED)
    wait_on(session, job, work_queue(route))


def wait_on(
    session: Session,
    job: Job,
    queue: QueueName,
    *,
    hold: WaitReason | None = None,
    seconds: float | None = None,
    reason: Reason | None = None,
) -> None:
    """Let a locked job wait for a worker on `queue`; the dispatcher pushes its message.

    Args:
        session: the caller's transaction.
        job: has no live attempt.
        queue: where it waits.
        hold: why it must not go to the broker yet; None when it may as soon as its turn comes.
        seconds: how long it is held at least; None without a hold, and for a job that waits for its site.
        reason: why its work was interrupted, if it was.
    """
    left = _left_queue(job)
    job.queue = queue.value
    job.waiting_since = now()  # type: ignore[assignment]
    job.pushed_at = None
    set_wait_reason(job, hold, seconds=seconds)
    session.flush()
    held = {} if hold is None or seconds is None else {"held_for": hold.value, "held_seconds": round(seconds, 3)}
    cause = {} if reason is None else {"reason": reason.value}
    record(session, EventKind.WAITING, job=job, queue=queue.value, tier=job.tier, left=left, **held, **cause)
    if hold is None:
        wake_dispatcher(session)


def requeue(session: Session, job: Job, queue: QueueName, *, seconds: float) -> None:
    """Let a locked job wait on `queue`, and delay its next try by this many seconds."""
    if seconds > 0:
        wait_on(session, job, queue, hold=WaitReason.TIME, seconds=seconds)
    else:
        wait_on(session, job, queue)


def _left_queue(job: Job) -> str | None:
    """Return the queue that a waiting job is about to leave without a claim."""
    return job.queue if job.waiting_since is not None else None


def end(
    session: Session,
    job: Job,
    target: State,
    *,
    reason: Reason,
    detail: str = "",
    result: Mapping[str, Any] | None = None,
    actor: str = "pointsman",
    successor: NewJob | None = None,
) -> None:
    """End a locked job: set its final state, free its site, write one audit row and one notification.

    This also decides what the end means for the job's task: a task that fails again ends `escalated` instead of
    `failed`, or continues in a new job that debates it. A requested successor becomes that job and takes over the
    site's lock.

    Raises:
        RoutingError: our fault.
    """
    origin = State(job.state)
    detail = redact(storable(detail))  # written by people and models, and shown wherever the end is
    check_move(origin, target)
    assert target in ENDS
    left = _left_queue(job)
    if target is State.CANCELLED and job.superseded_by is not None:
        reason, result = Reason.SUPERSEDED, {**(result or {}), "superseded_by": str(job.superseded_by)}
    consequence = count_end(session, job, target, reason=reason, detail=detail)
    target = consequence.state
    job.state, job.reason, job.detail = target.value, reason.value, detail or None
    earlier = {name: value for name, value in job.result.items() if name not in (CONTROL_RETRIES, PAID_REPLIES)}
    job.result = {**earlier, **(result or {})}
    follow_up = _follow_up(session, job, consequence, successor)
    if "continued_as" not in follow_up and not is_step(job):
        job.failure_signature = dead_letter_signature(target, reason, detail)
    facts = _write_end(session, job, result={**job.result, **follow_up}, heir=successor.id if successor else None)
    settle_end(session, job, target, reason=reason, detail=detail)
    _record_end(session, job, facts, origin=origin, reason=reason, left=left, actor=actor)


def _write_end(session: Session, job: Job, *, result: dict[str, Any], heir: UUID | None) -> _EndFacts:
    """Write a locked job's end and result in one statement, and update the object to match."""
    rows = _END.all(
        session,
        {
            "job": job.id,
            "state": job.state,
            "reason": job.reason,
            "detail": job.detail,
            "result": dump_json(result),
            "signature": job.failure_signature,
            "site": job.site_id,
            "heir": heir,
            "outcome": job.state,
            "box": EventKind.BOX.value,
        },
    )
    ended = rows[0]
    set_persisted(
        job,
        state=job.state,
        reason=job.reason,
        detail=job.detail,
        result=result,
        fence=ended.fence,
        failure_signature=job.failure_signature,
        waiting_since=None,
        pushed_at=None,
        held_for=None,
        held_until=None,
        expires_at=None,
        ended_at=ended.ended_at,
    )
    closed = [_ClosedAttempt(*row[4:]) for row in rows if row.id is not None]
    return _EndFacts(ended.job_seconds, ended.boxes, closed)


def _follow_up(session: Session, job: Job, consequence: Consequence, successor: NewJob | None) -> dict[str, Any]:
    """Carry out the consequence of an end, and return what it adds to the job's result."""
    added: dict[str, Any] = {}
    if consequence.action is not FailureAction.NONE:
        added["failure_action"] = consequence.action.value
    actor = successor.requested_by if successor is not None else "pointsman"
    if consequence.action is FailureAction.DEBATE_FAILURE:
        successor = _debated(successor or _another_try(job), consequence)
    if successor is not None:
        added["continued_as"] = str(accept(session, successor, actor=actor).job.id)
    return added


def _debated(new: NewJob, consequence: Consequence) -> NewJob:
    """Return the successor of a job whose task failed again: it is debated before any work."""
    result = {**new.result, "failure_debate": True, "failures": list(consequence.failures)}
    return replace(new, state=State.DEBATING, queue=QueueName.INTAKE, result=result)


def _another_try(job: Job) -> NewJob:
    """Return the job that tries a failed task again, on the same bill and from the salvaged work.

    It inherits the failed job's constraints: a second try must not lose one, nor a person's gate.
    """
    request = {**job.request, "prompt": job.prompt, "idempotency_key": None}
    result = {name: job.result[name] for name in INHERITED_FACTS if name in job.result}
    salvaged_id = job.release_id if job.result.get("is_salvaged") else None
    if salvaged_id is not None:
        result["begun"] = work_begun(job.result, report=job.detail or "", keeps=True)
    return NewJob(
        id=new_id(),
        tenant=job.tenant,
        source=Source(job.source),
        requested_by=job.requested_by,
        request=read_stored(JobRequest, request),
        state=State.DEBATING,
        queue=QueueName.INTAKE,
        mode=job.mode,
        tier=job.tier,
        route=job.route,
        keeps_route=True,
        site_id=job.site_id,
        trace=job.trace,
        cap_nanousd=job.cap_nanousd,
        parent_id=job.id,
        root_id=job.root_id,
        start_release_id=salvaged_id or job.start_release_id,
        result=result,
    )


def close_attempt(session: Session, job: Job, *, outcome: str, reason: Reason) -> None:
    """End the live attempt of a locked job, if it has one."""
    rows = _CLOSE.all(session, {"job": job.id, "outcome": outcome, "reason": reason.value})
    if closed := [_ClosedAttempt(*row) for row in rows]:
        spent = spent_at_end(session, job)
        record_all(session, [each.event(outcome, reason, cost=spent.get(each.id, 0)) for each in closed], job=job)
