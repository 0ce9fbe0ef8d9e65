"""How an installation does right now, for one tenant or for whoever operates all of it: one view for every door."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict
from sqlalchemy import func, select, text
from sqlmodel import Session, col

from monitoring.ledger.clock import after, now
from monitoring.ledger.gates import open_gates
from monitoring.ledger.record_tables import QueueControl
from monitoring.ledger.tables import Attempt, Cap, Job
from producers.job_views import JobSummary
from producers.jobs import summarise
from routing.jobs import State
from routing.policy import Policy
from routing.tiers import TASK_OF_QUEUE, QueueName

_SHOWN = 8
BIN_SECONDS = 300
BINS = 36
"""Three hours in pieces of five minutes."""


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class QueueState(_View):
    """One queue."""

    queue: str
    waiting: int
    running: int
    oldest_age_seconds: float
    is_paused: bool
    soft_seconds: float
    llm_usd: float


class BudgetState(_View):
    """One budget of today."""

    scope: str
    label: str
    limit_nanousd: int
    spent_nanousd: int
    reserved_nanousd: int


class Bin(_View):
    """What ended in a piece of time."""

    began: datetime
    good: int
    bad: int
    other: int


class FleetView(_View):
    """The whole of it."""

    queues: tuple[QueueState, ...]
    budgets: tuple[BudgetState, ...]
    bins: tuple[Bin, ...]
    """Jobs that ended, the oldest piece first."""
    asking: tuple[JobSummary, ...]
    """What waits for a person: questions and previews."""
    asking_total: int
    gates: int
    failing: tuple[JobSummary, ...]
    """What failed lately."""
    leader_present: bool
    """Whether a dispatcher leads."""


def fleet_view(session: Session, tenant: str, *, policy: Policy, is_operator: bool) -> FleetView:
    """Return how the fleet does: with every tenant's jobs for an operator, else with the tenant's own."""
    whose = None if is_operator else tenant
    asking = _jobs(session, tenant, (State.CLARIFYING, State.AWAITING_APPROVAL))
    return FleetView(
        queues=_queues(session, whose, policy), budgets=_budgets(session, tenant, policy, is_operator=is_operator),
        bins=_bins(session, whose), asking=asking, asking_total=_count(session, tenant), gates=len(
            open_gates(session, tenant)
        ),
        failing=_jobs(session, tenant, (State.FAILED, State.TIMED_OUT, State.BUDGET_EXCEEDED, State.OUTPUT_EXCEEDED,
                                        State.ESCALATED)),
        leader_present=bool(session.scalar(text("SELECT EXISTS (SELECT 1 FROM leader WHERE until > now())"))),
    )  # fmt: skip


def _queues(session: Session, tenant: str | None, policy: Policy) -> tuple[QueueState, ...]:
    age = func.extract("epoch", now() - func.min(col(Job.waiting_since)))
    waiting = select(col(Job.queue), func.count(), age).where(col(Job.waiting_since).is_not(None))
    running = select(col(Attempt.queue), func.count()).where(col(Attempt.ended_at).is_(None))
    if tenant is not None:
        waiting = waiting.where(col(Job.tenant) == tenant)
        running = running.join(Job, col(Job.id) == col(Attempt.job_id)).where(col(Job.tenant) == tenant)
    stand = {
        name: (count, float(seconds)) for name, count, seconds in session.execute(waiting.group_by(col(Job.queue)))
    }
    busy = {queue: count for queue, count in session.execute(running.group_by(col(Attempt.queue)))}
    paused = set(session.scalars(select(col(QueueControl.queue)).where(col(QueueControl.paused_at).is_not(None))))
    return tuple(
        QueueState(
            queue=queue.value, waiting=stand.get(queue.value, (0, 0.0))[0], running=busy.get(queue.value, 0),
            oldest_age_seconds=round(stand.get(queue.value, (0, 0.0))[1], 1), is_paused=queue.value in paused,
            soft_seconds=policy.queues[queue].soft_seconds, llm_usd=policy.queues[queue].llm_usd,
        )
        for queue in TASK_OF_QUEUE
    )  # fmt: skip


def _budgets(session: Session, tenant: str, policy: Policy, *, is_operator: bool) -> tuple[BudgetState, ...]:
    today = str(session.scalar(text("SELECT (now() AT TIME ZONE 'UTC')::date::text")))
    wanted = [("tenant_day", f"{tenant}/{today}", "Your day")]
    if is_operator:
        wanted.append(("fleet_day", today, "The fleet's day"))
    return tuple(_budget(session, scope, key, label, policy) for scope, key, label in wanted)


def _budget(session: Session, scope: str, key: str, label: str, policy: Policy) -> BudgetState:
    cap = session.get(Cap, (scope, key))
    limits = {"tenant_day": policy.budgets.tenant_day_usd, "fleet_day": policy.budgets.fleet_day_usd}
    return BudgetState(
        scope=scope, label=label, limit_nanousd=cap.limit_nanousd if cap else round(limits[scope] * 1_000_000_000),
        spent_nanousd=cap.spent_nanousd if cap else 0, reserved_nanousd=cap.reserved_nanousd if cap else 0,
    )  # fmt: skip


_ENDED = text("""
    WITH span AS (
        SELECT began FROM generate_series(
            to_timestamp(floor(extract(epoch FROM now()) / :seconds) * :seconds) - make_interval(secs => :span),
            now(), make_interval(secs => :seconds)) AS began
    ), ended AS (
        SELECT to_timestamp(floor(extract(epoch FROM ended_at) / :seconds) * :seconds) AS began,
               count(*) FILTER (WHERE state IN ('answered', 'published')) AS good,
               count(*) FILTER (WHERE state IN ('failed', 'timed_out', 'budget_exceeded', 'output_exceeded',
                                                'escalated')) AS bad,
               count(*) AS whole
          FROM job
         WHERE ended_at >= now() - make_interval(secs => :span + :seconds) AND queue <> 'steps'
           AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
         GROUP BY 1
    )
    SELECT span.began, coalesce(good, 0), coalesce(bad, 0), coalesce(whole - good - bad, 0)
      FROM span LEFT JOIN ended USING (began) ORDER BY span.began
""")


def _bins(session: Session, tenant: str | None) -> tuple[Bin, ...]:
    values = {"seconds": BIN_SECONDS, "span": BIN_SECONDS * (BINS - 1), "tenant": tenant}
    rows = session.execute(_ENDED, values)
    return tuple(Bin(began=began, good=good, bad=bad, other=other) for began, good, bad, other in rows)


def _jobs(session: Session, tenant: str, states: Sequence[State]) -> tuple[JobSummary, ...]:
    recent = (
        select(Job)
        .where(
            col(Job.tenant) == tenant, col(Job.state).in_([state.value for state in states]),
            col(Job.queue) != QueueName.STEPS.value, col(Job.created_at) > after(-14 * 86_400),
        )
        .order_by(col(Job.created_at).desc())
        .limit(_SHOWN)
    )  # fmt: skip
    return tuple(summarise(session, session.scalars(recent).all()))


def _count(session: Session, tenant: str) -> int:
    waiting = select(col(Job.id)).where(
        col(Job.tenant) == tenant, col(Job.expires_at).is_not(None), col(Job.ended_at).is_(None)
    )
    return int(session.scalar(select(func.count()).select_from(waiting.limit(1000).subquery())) or 0)
