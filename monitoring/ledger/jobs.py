"""The state of every job: accepted once, moved by the one table of legal moves, ended once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, bindparam, select, union_all
from sqlmodel import Session, col

from monitoring import traces
from monitoring.errors import JobNotFoundError
from monitoring.ledger.accepting import accept
from monitoring.ledger.clock import now
from monitoring.ledger.columns import learn
from monitoring.ledger.end_sql import CLOSE, END
from monitoring.ledger.events import EventKind, record, record_all, wake_dispatcher
from monitoring.ledger.failures import Consequence, count_end
from monitoring.ledger.holds import set_hold
from monitoring.ledger.new_jobs import NewJob
from monitoring.ledger.spending import spent_at_end
from monitoring.ledger.step_ends import is_run, is_step, note_end
from monitoring.ledger.storable import dump_json, storable
from monitoring.ledger.tables import Job
from monitoring.ledger.telling import ClosedAttempt, EndFacts, decision_of, made, tell_end
from routing.failures import FailureAction, dead_letter_signature
from routing.jobs import ENDS, Door, JobRequest, Reason, State, check_move
from routing.messages import read_stored
from routing.planning import Debate
from routing.queues import QueueName
from routing.redaction import redact
from routing.router import Route
from routing.stages import work_queue
from routing.waits import RESTING, Hold

_LOCKED = (
    select(Job).where(col(Job.id) == bindparam("job")).with_for_update().execution_options(populate_existing=True)
)  # fmt: skip
KEPT_FACTS = ("debate", "needs_person", "begun")
"""What is known of a job that every further try of it has to keep to."""


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
    job = session.scalars(_LOCKED, {"job": job_id}).one_or_none()
    if job is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(job_id)
    traces.refer_to(job.trace)  # a judgement, from whatever door, is a request of its own beside the job's trace
    return job


def list_jobs(
    session: Session, *, tenant: str | None = None, states: Sequence[State] = (), site_id: UUID | None = None,
    limit: int = 50,
) -> Sequence[Job]:  # fmt: skip
    """Return the newest jobs first; the steps of runs are shown by their runs."""
    newest = col(Job.created_at).desc()
    wanted = [col(Job.queue) != QueueName.STEPS.value]
    if tenant is not None:
        wanted.append(col(Job.tenant) == tenant)
    if site_id is not None:
        wanted.append(col(Job.site_id) == site_id)
    if states:
        found = (select(col(Job.id)).where(*wanted, each).order_by(newest).limit(limit) for each in _states(states))
        wanted = [col(Job.id).in_(union_all(*found))]
    return session.scalars(select(Job).where(*wanted).order_by(newest).limit(limit)).all()


def _states(states: Sequence[State]) -> Iterator[ColumnElement[bool]]:
    """Yield conditions that hold of jobs in some states, each such that an index has its jobs in order of their age.

    Otherwise the few that are in a rare state would be looked for among all that there ever were.
    """
    ended_at = col(Job.ended_at)
    going = [state.value for state in states if state not in ENDS]
    if going:
        yield ended_at.is_(None) & col(Job.state).in_(going)
    for state in ENDS.intersection(states):
        yield ended_at.is_not(None) & (col(Job.state) == state.value)


def move(session: Session, job: Job, target: State, *, reason: Reason | None = None, **data: Any) -> None:
    """Move a locked job to a state that is no end.

    Raises:
        RoutingError: our fault.
    """
    origin = State(job.state)
    check_move(origin, target, is_run=is_run(job))
    job.state = target.value
    if target == State.CLARIFYING:
        data |= decision_of(job)
    record(
        session, EventKind.STATE, job=job, origin=origin.value, target=target.value,
        reason=reason.value if reason else None, **made(session, job, origin, State(job.state)), **data,
    )  # fmt: skip
    session.flush()


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


def wait_on(
    session: Session, job: Job, queue: QueueName, *, hold: Hold | None = None, seconds: float | None = None,
    reason: Reason | None = None,
) -> None:  # fmt: skip
    """Let a locked job wait for a worker on `queue`; the dispatcher pushes its message.

    Args:
        session: the caller's transaction.
        job: nobody works on it any more.
        queue: where.
        hold: why it must not go to the broker yet; None when it may as soon as its turn comes.
        seconds: how long it is held at least; None without a hold, and for a job that waits for its site.
        reason: why its work was broken off, where it was.
    """
    left = _left_queue(job)
    job.queue = queue.value
    job.waiting_since = now()  # type: ignore[assignment]
    job.pushed_at = None
    set_hold(job, hold, seconds=seconds)
    session.flush()
    held = {} if hold is None or seconds is None else {"held_for": hold.value, "held_seconds": round(seconds, 3)}
    why = {} if reason is None else {"reason": reason.value}
    record(session, EventKind.WAITING, job=job, queue=queue.value, tier=job.tier, left=left, **held, **why)
    wake_dispatcher(session)


def rest(session: Session, job: Job, queue: QueueName, *, seconds: float) -> None:
    """Let a locked job wait on `queue`, and for so many seconds keep it from its next try."""
    if seconds > 0:
        wait_on(session, job, queue, hold=Hold.TIME, seconds=seconds)
    else:
        wait_on(session, job, queue)


def _left_queue(job: Job) -> str | None:
    """Return the queue on which a job waits and which it is about to leave without a claim."""
    return job.queue if job.waiting_since is not None else None


def end(
    session: Session, job: Job, target: State, *, reason: Reason, detail: str = "",
    result: Mapping[str, Any] | None = None, actor: str = "pointsman", successor: NewJob | None = None,
) -> None:  # fmt: skip
    """End a locked job: final state, free site, one audit row with the six facts, one notification.

    What its end means for its task is decided here too: a task that fails again ends `escalated` instead of `failed`,
    or goes on in a new job that debates it. A successor that was asked for is that new job, and gets the site's lock.

    Raises:
        RoutingError: our fault.
    """
    origin = State(job.state)
    detail = redact(storable(detail))  # people's and models' words: they are shown wherever the end is
    check_move(origin, target)
    assert target in ENDS
    left = _left_queue(job)
    if target is State.CANCELLED and job.superseded_by is not None:
        reason, result = Reason.SUPERSEDED, {**(result or {}), "superseded_by": str(job.superseded_by)}
    consequence = count_end(session, job, target, reason=reason, detail=detail)
    target = consequence.state
    job.state, job.reason, job.detail = target.value, reason.value, detail or None
    kept = {name: value for name, value in job.result.items() if name != RESTING}
    job.result = {**kept, **(result or {})}
    followed = _follow_up(session, job, consequence, successor)
    if "continued_as" not in followed and not is_step(job):
        job.failure_signature = dead_letter_signature(target, reason, detail)
    told = _write_end(session, job, result={**job.result, **followed}, heir=successor.id if successor else None)
    note_end(session, job, target, reason=reason, detail=detail)
    tell_end(session, job, told, origin=origin, reason=reason, left=left, actor=actor)


def _write_end(session: Session, job: Job, *, result: dict[str, Any], heir: UUID | None) -> EndFacts:
    """Write the end that a locked job's object says, and its result, with one statement; note there what that made."""
    rows = END.all(
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
    learn(
        job, state=job.state, reason=job.reason, detail=job.detail, result=result, fence=ended.fence,
        failure_signature=job.failure_signature, waiting_since=None, pushed_at=None, held_for=None, held_until=None,
        expires_at=None, ended_at=ended.ended_at,
    )  # fmt: skip
    closed = [ClosedAttempt(*row[4:]) for row in rows if row.id is not None]
    return EndFacts(ended.job_seconds, ended.boxes, closed)


def _follow_up(session: Session, job: Job, consequence: Consequence, successor: NewJob | None) -> dict[str, Any]:
    """Do what an end leads to, and return what its job's owner is told of it."""
    told: dict[str, Any] = {}
    if consequence.action is not FailureAction.NONE:
        told["failure_action"] = consequence.action.value
    actor = successor.requested_by if successor is not None else "pointsman"
    if consequence.action is FailureAction.DEBATE_FAILURE:
        successor = _debated(successor or _another_try(job), consequence)
    if successor is not None:
        told["continued_as"] = str(accept(session, successor, actor=actor).job.id)
    return told


def _debated(new: NewJob, consequence: Consequence) -> NewJob:
    """Return a job that goes on from one whose task failed again: it is debated before it works."""
    known = {**new.result, "failure_debate": True, "failures": list(consequence.failures)}
    return replace(new, state=State.DEBATING, queue=QueueName.INTAKE, result=known)


def _another_try(job: Job) -> NewJob:
    """Return the job in which a task that failed is tried again, on the same bill and from what was kept.

    It keeps to what the failed job had to keep to: a second try must not lose a constraint, nor a person's gate.
    """
    asked = {**job.request, "prompt": job.prompt, "idempotency_key": None}
    known = {name: job.result[name] for name in KEPT_FACTS if name in job.result}
    kept = job.release_id if job.result.get("is_salvaged") else None
    if kept is not None:
        known["begun"] = {**known.get("begun", {}), "report": job.detail or "", "is_kept": True}
    return NewJob(
        id=uuid4(),
        tenant=job.tenant,
        door=Door(job.door),
        requested_by=job.requested_by,
        request=read_stored(JobRequest, asked),
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
        start_release_id=kept or job.start_release_id,
        result=known,
    )


def close_attempt(session: Session, job: Job, *, outcome: str, reason: Reason) -> None:
    """End the live attempt of a locked job; does nothing when it has none."""
    rows = CLOSE.all(session, {"job": job.id, "outcome": outcome, "reason": reason.value})
    if closed := [ClosedAttempt(*row) for row in rows]:
        spent = spent_at_end(session, job)
        record_all(session, [each.told(outcome, reason, cost=spent.get(each.id, 0)) for each in closed], job=job)
