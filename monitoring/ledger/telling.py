"""What the ledger tells of a job's moves and of its end: the events that are counted, and the owner's notification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import cast, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import Session, col

from monitoring.ledger import audit
from monitoring.ledger.end_sql import TELL
from monitoring.ledger.events import EventKind, told_of
from monitoring.ledger.record_tables import Event
from monitoring.ledger.run_tables import Gate
from monitoring.ledger.run_usage import tokens_by_part
from monitoring.ledger.spending import spent_at_end, wasted_at_end
from monitoring.ledger.step_ends import is_run, is_step
from monitoring.ledger.storable import dump_json
from monitoring.ledger.tables import Job
from routing.jobs import WASTED_OUTCOMES, Reason, State

Happened = tuple[EventKind, Mapping[str, Any]]

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


class ClosedAttempt(NamedTuple):
    """An attempt that was live, and has just been ended."""

    id: UUID
    queue: str
    tier: int | None
    number: int
    seconds: float

    def told(self, outcome: str, reason: Reason, *, cost: int) -> Happened:
        """Return the event that says so, and what its settled calls have cost in nanodollars."""
        return EventKind.ATTEMPT_ENDED, {
            "queue": self.queue, "tier": self.tier, "attempt": self.number, "outcome": outcome,
            "reason": reason.value, "seconds": round(self.seconds, 3), "cost_nanousd": cost,
            "wasted_nanousd": cost if outcome in WASTED_OUTCOMES else 0,
        }  # fmt: skip


class EndFacts(NamedTuple):
    """What the statement that ended a job says about it."""

    seconds: float
    """From its acceptance."""
    boxes: int
    """That its attempts worked in."""
    closed: Sequence[ClosedAttempt]


def tell_end(
    session: Session, job: Job, facts: EndFacts, *, origin: State, reason: Reason, left: str | None, actor: str
) -> None:  # fmt: skip
    """Put on record that a job has just ended, owe its owner the one notification, and wake the dispatcher.

    Args:
        session: the caller's transaction.
        job: in its end state.
        facts: what its end has brought about.
        origin: the state it left.
        reason: why it ended.
        left: the queue on which it still waited.
        actor: who ended it.
    """
    spent = spent_at_end(session, job)
    happened = [each.told(job.state, reason, cost=spent.get(each.id, 0)) for each in facts.closed]
    ended = (facts.seconds, facts.boxes, sum(spent.values()))
    happened += _events_of_end(session, job, ended, origin=origin, reason=reason, left=left)
    audited = audit.row_of(
        "job_ended", actor=actor, job=job, facts=audit.facts_of(session, job),
        detail={"state": job.state, "reason": reason.value},
    )  # fmt: skip
    payload = None if is_step(job) else dump_json(_notification(job))  # of a step its run tells, once
    values = {**audited, "detail": dump_json(audited["detail"]), "url": job.request.get("callback_url")}
    TELL.all(session, {**values, "told": told_of(happened), "payload": payload})


def _events_of_end(
    session: Session, job: Job, facts: tuple[float, int, int], *, origin: State, reason: Reason, left: str | None
) -> list[Happened]:  # fmt: skip
    seconds, boxes, cost_nanousd = facts
    decided = made(session, job, origin, State(job.state))
    place = {"queue": job.queue, "tier": job.tier}
    moved = {"origin": origin.value, "target": job.state, "reason": reason.value, **decided}
    happened: list[Happened] = [(EventKind.STATE, moved)]
    if reason is Reason.QUEUE_EXPIRED:
        happened.append((EventKind.LIMIT_HIT, {**place, "limit": "wait", "phase": "admit"}))
    elif limit := _LIMIT_OF_END.get(State(job.state)):
        happened.append((EventKind.LIMIT_HIT, {**place, "limit": limit, "phase": "run"}))
    ended = {
        "state": job.state, "reason": reason.value, **place, "seconds": round(seconds, 3), "detail": job.detail,
        "left": left, "boxes": boxes, "cost_nanousd": cost_nanousd,
        "wasted_nanousd": wasted_at_end(session, job), "output_bytes": _output_bytes(job),
        **(_of_run(session, job) if is_run(job) else {}),
    }  # fmt: skip
    return [*happened, (EventKind.ENDED, ended)]


def _output_bytes(job: Job) -> int | None:
    """Return how much a job has made; None when that was nothing that is counted."""
    if isinstance(answer := job.result.get("answer"), str):
        return len(answer.encode("utf-8", "surrogatepass"))
    return job.result.get("output_bytes")


def _of_run(session: Session, job: Job) -> dict[str, Any]:
    """Return what is counted of a run that ends: who used its tokens, and how often it waited for a person (S-099)."""
    opened = select(func.count()).where(col(Gate.run_id) == job.id, col(Gate.opened_at).is_not(None))
    return {"run_tokens": tokens_by_part(session, job.id), "gates": session.scalar(opened) or 0}


def _notification(job: Job) -> dict[str, Any]:
    """Return what the owner of a job that has just ended is told."""
    payload = {"type": "job.ended", "job_id": str(job.id), "state": job.state, "reason": job.reason}
    if job.parent_id is not None:
        payload["parent_id"] = str(job.parent_id)
    return payload | {name: job.result[name] for name in ("continued_as", "superseded_by") if name in job.result}
