"""Debates on record: what was debated, who said what, and the verdict; the work waits until it stands here (R-050)."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlmodel import Session, col

from monitoring.ledger.events import EventKind
from monitoring.ledger.events import record as record_event
from monitoring.ledger.tables import Debate, Job
from routing.debate_record import DebateKind, HeldDebate, Verdict
from routing.router import debate_key


def add_debate(session: Session, job: Job, record: HeldDebate) -> None:
    """Put a debate on record and on its job, for owner, workers and gates to see.

    What an earlier debate of the same task asked for still holds: this one adds to it.
    """
    session.execute(
        insert(Debate).values(
            job_id=job.id,
            tenant=job.tenant,
            session=job.request.get("session"),
            key=record.key,
            decision_key=debate_key(job.prompt),
            kind=record.kind.value,
            stakes=record.stakes.value if record.stakes else None,
            verdict=record.verdict.value,
            record=record.fields(),
        )
    )
    earlier = str((job.result.get("debate") or {}).get("instruction", ""))
    instruction = " ".join(filter(None, dict.fromkeys((earlier, record.instruction))))
    summary = {"verdict": record.verdict.value, "note": record.note, "instruction": instruction}
    needs_person = record.needs_person or bool(job.result.get("needs_person"))
    job.result = {**job.result, "debate": summary, "needs_person": needs_person}
    session.flush()
    record_event(session, EventKind.DEBATED, job=job, debate=record.kind.value, verdict=record.verdict.value)


def debated_keys(session: Session, tenant: str, session_id: str) -> frozenset[str]:
    """Return the decisions that a session has debated and that may be carried out, as the router compares them (R-059).

    A debate about a failure was about another decision (A11), and one that said stop allows nothing.
    """
    query = select(col(Debate.decision_key)).where(
        col(Debate.tenant) == tenant,
        col(Debate.session) == session_id,
        col(Debate.kind) == DebateKind.PLANNING.value,
        col(Debate.verdict) != Verdict.STOP.value,
    )
    return frozenset(session.scalars(query))
