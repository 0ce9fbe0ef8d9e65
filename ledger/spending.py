"""What attempts, jobs and runs have cost, and how much of it was wasted.

The gateway writes the calls (P-037), so a sum over them is the bill itself (P-062, S-122).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import CompoundSelect, Uuid, func, literal, select
from sqlmodel import Session, col

from ledger.runs.tables import AgentExecution
from ledger.store import Statement
from ledger.tables import Attempt, Call, Cap, Job
from routing.jobs import USED_ENDS, WASTED_OUTCOMES

_SPENT = Statement("SELECT attempt_id, sum(cost_nanousd)::bigint FROM call WHERE job_id = %(job)s GROUP BY attempt_id")


def members_of(job_id: UUID) -> CompoundSelect[UUID]:
    """Select a job and, when it is a run, the executions of its steps."""
    steps = select(col(AgentExecution.job_id)).where(col(AgentExecution.run_id) == job_id)
    return steps.union_all(select(literal(job_id, type_=Uuid())))


class Booked(NamedTuple):
    """The amounts on a bill, in nanodollars."""

    spent: int
    reserved: int


class Bill(NamedTuple):
    """What a job has cost."""

    spent_nanousd: int
    reserved_nanousd: int
    cap_nanousd: int
    calls: int
    """Model calls so far."""


def bill_of(session: Session, job: Job) -> Bill:
    """Return what a job has cost so far, over all tiers and attempts, with the steps of a run."""
    spent, reserved, calls = session.execute(
        select(
            func.coalesce(func.sum(col(Call.cost_nanousd)), 0),
            func.coalesce(func.sum(col(Call.reserved_nanousd)).filter(col(Call.state) == "reserved"), 0),
            func.count(),
        ).where(col(Call.job_id).in_(members_of(job.id)))
    ).one()
    return Bill(int(spent), int(reserved), job.cap_nanousd, calls)


def calls_of(session: Session, job_id: UUID) -> Sequence[Call]:
    """Return a job's model calls, including those of a run's steps, oldest first."""
    return session.scalars(
        select(Call).where(col(Call.job_id).in_(members_of(job_id))).order_by(col(Call.started_at))
    ).all()


def booked_on_bill(session: Session, root_id: UUID) -> Booked:
    """Return what is spent and reserved on a root job's bill, with its rounds, steps and debates.

    The cap's row has it: every reservation and settlement books it there in the same statement.
    """
    cap = session.get(Cap, ("job", str(root_id)), populate_existing=True)
    return Booked(cap.spent_nanousd, cap.reserved_nanousd) if cap is not None else Booked(0, 0)


def spent_at_end(session: Session, job: Job) -> Mapping[UUID, int]:
    """Return the cost of the settled calls of each of a job's attempts, in nanodollars.

    This must be a statement after the one that ended the attempt: that one waited for calls which were being settled
    (`money.BOOK`), and only a later statement sees them.
    """
    return dict(tuple(row) for row in _SPENT.all(session, {"job": job.id}))


def wasted_at_end(session: Session, job: Job) -> int:
    """Return the nanodollars that this end turns into waste: those of attempts that had succeeded.

    The cost of failed attempts was counted when they ended. A run's end wastes the work of its steps, too.
    """
    if job.state in USED_ENDS:
        return 0
    spent = (
        select(func.coalesce(func.sum(col(Call.cost_nanousd)), 0))
        .join(Attempt, col(Attempt.id) == col(Call.attempt_id))
        .where(col(Call.job_id).in_(members_of(job.id)), col(Attempt.outcome).not_in(WASTED_OUTCOMES))
    )
    return int(session.scalar(spent) or 0)


ORCHESTRATOR = "orchestrator"
NO_AGENT = "-"
"""The name of calls without an agent: routing and debates before the run was planned."""


class CallUsage(NamedTuple):
    """One model call of a run."""

    step: str | None
    attempt: int | None
    agent: str
    provider: str
    model: str
    key_hash: str
    tokens: int
    """All of them, read and written."""
    cost_nanousd: int


class Total(NamedTuple):
    """A sum over calls."""

    calls: int
    tokens: int
    cost_nanousd: int


def usage_of_run(session: Session, run_id: UUID) -> Sequence[CallUsage]:
    """Return every model call of a run, oldest first, including those before it was planned."""
    read = col(Call.input_tokens) + col(Call.cache_write_tokens) + col(Call.cache_read_tokens)
    rows = session.execute(
        select(
            col(AgentExecution.step_key),
            col(AgentExecution.attempt),
            func.coalesce(col(AgentExecution.agent), NO_AGENT),
            col(Call.provider),
            col(Call.model),
            col(Call.key_hash),
            read + col(Call.output_tokens),
            col(Call.cost_nanousd),
        )
        .outerjoin(AgentExecution, col(AgentExecution.job_id) == col(Call.job_id))
        .where(col(Call.job_id).in_(members_of(run_id)))
        .order_by(col(Call.started_at), col(Call.id))
    )
    return [CallUsage(*row) for row in rows]


def total_by(calls: Iterable[CallUsage], key: Callable[[CallUsage], str]) -> dict[str, Total]:
    """Return the sums of calls, grouped by `key`."""
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for call in calls:
        for place, amount in enumerate((1, call.tokens, call.cost_nanousd)):
            sums[key(call)][place] += amount
    return {name: Total(*amounts) for name, amounts in sorted(sums.items())}


def tokens_by_part(session: Session, run_id: UUID) -> dict[str, int]:
    """Return a run's tokens: of the orchestrator with its subtasks, and of all others."""
    calls = usage_of_run(session, run_id)
    own = _orchestrator_tokens(calls)
    return {ORCHESTRATOR: own, "other": sum(call.tokens for call in calls) - own}


def orchestrator_share(calls: Sequence[CallUsage]) -> float | None:
    """Return the share of a run's tokens that the orchestrator and its subtasks used (S-022); None without calls."""
    tokens = sum(call.tokens for call in calls)
    return _orchestrator_tokens(calls) / tokens if tokens else None


def _orchestrator_tokens(calls: Sequence[CallUsage]) -> int:
    return sum(call.tokens for call in calls if call.agent.partition(":")[0] == ORCHESTRATOR)
