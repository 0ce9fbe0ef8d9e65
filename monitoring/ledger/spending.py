"""What attempts and jobs had cost when they ended, and how much of it was for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import CompoundSelect, Uuid, func, literal, select
from sqlmodel import Session, col

from monitoring.ledger.run_tables import AgentExecution
from monitoring.ledger.statement import Statement
from monitoring.ledger.tables import Attempt, Call, Cap, Job
from routing.jobs import USED_ENDS, WASTED_OUTCOMES

_SPENT = Statement("SELECT attempt_id, sum(cost_nanousd)::bigint FROM call WHERE job_id = %(job)s GROUP BY attempt_id")


def members_of(job_id: UUID) -> CompoundSelect[UUID]:
    """Select a job and, when it is a run, the executions of its steps."""
    steps = select(col(AgentExecution.job_id)).where(col(AgentExecution.run_id) == job_id)
    return steps.union_all(select(literal(job_id, type_=Uuid())))


class Booked(NamedTuple):
    """What stands on a bill, in nanodollars."""

    spent: int
    reserved: int


def booked_on_bill(session: Session, root_id: UUID) -> Booked:
    """Return what a root job and all that adds to its bill have spent and hold: rounds, steps of a run, debates.

    The cap's own row has booked every call of them, in the statement that reserved or settled it.
    """
    cap = session.get(Cap, ("job", str(root_id)), populate_existing=True)
    return Booked(cap.spent_nanousd, cap.reserved_nanousd) if cap is not None else Booked(0, 0)


def spent_at_end(session: Session, job: Job) -> Mapping[UUID, int]:
    """Return the nanodollars that the settled calls of each of a job's attempts have cost.

    In a statement of its own, after the one that ended the attempt: that has waited for calls which were being settled
    (money_sql.BOOK), and only a later statement sees them.
    """
    return {attempt_id: cost for attempt_id, cost in _SPENT.all(session, {"job": job.id})}


def wasted_at_end(session: Session, job: Job) -> int:
    """Return the nanodollars that only this end turns into waste: those of attempts that had gone well.

    What failed attempts cost was counted when they ended. With a run, the work of its steps is for nothing too.
    """
    if job.state in USED_ENDS:
        return 0
    spent = (
        select(func.coalesce(func.sum(col(Call.cost_nanousd)), 0))
        .join(Attempt, col(Attempt.id) == col(Call.attempt_id))
        .where(col(Call.job_id).in_(members_of(job.id)), col(Attempt.outcome).not_in(WASTED_OUTCOMES))
    )
    return int(session.scalar(spent) or 0)
