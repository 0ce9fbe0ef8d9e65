"""What the ledger tells of a job's moves and of its end: the events that are counted, and the owner's notification."""

from __future__ import annotations

from typing import Any

from sqlalchemy import cast, func, select
from sqlalchemy.dialects.postgresql import JSONB, insert
from sqlmodel import Session, col

from monitoring.ledger.clock import now
from monitoring.ledger.events import EventKind, count_events, record_all
from monitoring.ledger.record_tables import Event, Notification
from monitoring.ledger.run_tables import Gate
from monitoring.ledger.run_usage import tokens_by_part
from monitoring.ledger.spending import spent_by_job, wasted_at_end
from monitoring.ledger.step_ends import is_run, is_step
from monitoring.ledger.tables import Job
from routing.jobs import Reason, State

_UNDECIDED = frozenset({State.RECEIVED, State.CLARIFYING})
"""States in which a model or the job's owner may still change the decision."""

_LIMIT_OF_END = {
    State.TIMED_OUT: "time",
    State.BUDGET_EXCEEDED: "cost",
    State.OUTPUT_EXCEEDED: "output",
}


def decision_of(job: Job) -> dict[str, Any]:
    """Return what is counted of the decision about a job."""
    return {"mode": job.mode, "confidence": job.route.get("confidence"), "tier": job.tier}


def made(session: Session, job: Job, origin: State, target: State) -> dict[str, Any]:
    """Return what the event of a job's way out of intake, or of its owner's reply, says of the decision made there.

    So each accepted job's decision is told exactly once: here, or by its acceptance where nobody had a say.
    """
    if origin not in _UNDECIDED or target in _UNDECIDED:
        return {}
    told = select(col(Event.id)).where(col(Event.job_id) == job.id, cast(col(Event.data), JSONB).has_key("decision"))
    return {"decision": decision_of(job)} if session.scalar(told.limit(1)) is None else {}


def record_end(session: Session, job: Job, *, origin: State, reason: Reason, left: str | None) -> None:
    """Put on record that a job has just ended.

    Args:
        session: the caller's transaction.
        job: in its end state.
        origin: the state it left.
        reason: why it ended.
        left: the queue on which it still waited.
    """
    seconds = (job.ended_at - job.created_at).total_seconds() if job.ended_at else 0.0
    decided = made(session, job, origin, State(job.state))
    place = {"queue": job.queue, "tier": job.tier}
    moved = {"origin": origin.value, "target": job.state, "reason": reason.value, **decided}
    happened: list[tuple[EventKind, dict[str, Any]]] = [(EventKind.STATE, moved)]
    if reason is Reason.QUEUE_EXPIRED:
        happened.append((EventKind.LIMIT_HIT, {**place, "limit": "wait", "phase": "admit"}))
    elif limit := _LIMIT_OF_END.get(State(job.state)):
        happened.append((EventKind.LIMIT_HIT, {**place, "limit": limit, "phase": "run"}))
    ended = {
        "state": job.state, "reason": reason.value, **place, "seconds": round(seconds, 3), "detail": job.detail,
        "left": left, "boxes": count_events(session, job, EventKind.BOX), "cost_nanousd": spent_by_job(session, job),
        "wasted_nanousd": wasted_at_end(session, job), "output_bytes": _output_bytes(job),
        **(_of_run(session, job) if is_run(job) else {}),
    }  # fmt: skip
    record_all(session, [*happened, (EventKind.ENDED, ended)], job=job)


def _output_bytes(job: Job) -> int | None:
    """Return how much a job has made; None when that was nothing that is counted."""
    if isinstance(answer := job.result.get("answer"), str):
        return len(answer.encode("utf-8", "surrogatepass"))
    return job.result.get("output_bytes")


def _of_run(session: Session, job: Job) -> dict[str, Any]:
    """Return what is counted of a run that ends: who used its tokens, and how often it waited for a person (S-099)."""
    opened = select(func.count()).where(col(Gate.run_id) == job.id, col(Gate.opened_at).is_not(None))
    return {"run_tokens": tokens_by_part(session, job.id), "gates": session.scalar(opened) or 0}


def notify_owner(session: Session, job: Job) -> None:
    """Write the one notification of a job that has just ended."""
    if is_step(job):
        return  # its run tells, once
    url = job.request.get("callback_url")
    payload = {"type": "job.ended", "job_id": str(job.id), "state": job.state, "reason": job.reason}
    if job.parent_id is not None:
        payload["parent_id"] = str(job.parent_id)
    payload |= {name: job.result[name] for name in ("continued_as", "superseded_by") if name in job.result}
    session.execute(
        insert(Notification).values(
            job_id=job.id, callback_url=url, payload=payload, attempts=0,
            next_at=now() if url else None, delivered_at=None if url else now(),
        )
    )  # fmt: skip
