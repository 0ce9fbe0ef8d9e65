"""Debates on record: what was debated, who said what, and the verdict; the work waits until it stands here (R-050)."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlmodel import Session, col

from monitoring.ledger.tables import Debate, Job
from routing.debate_record import DebateRecord, Verdict
from routing.router import debate_key


def add_debate(session: Session, job: Job, record: DebateRecord[Verdict]) -> None:
    """Put a debate on record and on its job, for owner, workers and gates to see."""
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
    summary = {"verdict": record.verdict.value, "note": record.note, "instruction": record.instruction}
    job.result = {**job.result, "debate": summary, "needs_person": record.needs_person}
    session.flush()


def debated_keys(session: Session, tenant: str, session_id: str) -> frozenset[str]:
    """Return the decisions that a session has debated, as the router compares them (R-059)."""
    query = select(col(Debate.decision_key)).where(col(Debate.tenant) == tenant, col(Debate.session) == session_id)
    return frozenset(session.scalars(query))
