"""How an installation does right now, for one tenant or for whoever operates all of it: one view for every door."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select, text
from sqlmodel import Session, col

from monitoring.ledger.clock import after, now
from monitoring.ledger.gates import open_gates
from monitoring.ledger.record_tables import QueueControl
from monitoring.ledger.tables import Attempt, Job
from monitoring.ledger.workers import all_workers, fleet_slots, slots_by_queue
from producers.fleet_views import Bin, FleetView, QueueState, SlotsView, WorkerRow, WorkView
from producers.job_views import JobSummary
from producers.jobs import summarise
from routing.jobs import State
from routing.policy import Policy
from routing.tiers import TASK_OF_QUEUE, QueueName

FAILURES = (State.FAILED, State.TIMED_OUT, State.BUDGET_EXCEEDED, State.OUTPUT_EXCEEDED, State.ESCALATED)
ASKING = (State.CLARIFYING, State.AWAITING_APPROVAL)
BIN_SECONDS = 300
BINS = 36
"""Three hours in pieces of five minutes."""
_SHOWN = 6
_WORK_SHOWN = 40
_WORKERS_SHOWN = 100
_LOOKS_BACK_SECONDS = 14 * 86_400
_MOST_COUNTED = 1_000


def fleet_view(session: Session, tenant: str, *, policy: Policy, is_operator: bool) -> FleetView:
    """Return how the fleet does: with every tenant's numbers for an operator, else with the tenant's own.

    Args:
        session: the caller's transaction.
        tenant: who looks; prompts are shown of this tenant's jobs alone.
        policy: the platform's limits.
        is_operator: whether the looker sees all of the fleet.
    """
    whose = None if is_operator else tenant
    return FleetView(
        queues=_queues(session, whose, policy),
        slots=_slots(session),
        workers=_workers(session) if is_operator else (),
        work=_work(session, tenant, policy, is_operator=is_operator),
        asking=_jobs(session, tenant, ASKING),
        asking_total=_count_asking(session, tenant),
        gates=len(open_gates(session, tenant)),
        failing=_jobs(session, tenant, FAILURES),
        dead=_count_dead(session, tenant),
        leader_present=bool(session.scalar(_LEADS)),
    )


_LEADS = text("SELECT EXISTS (SELECT 1 FROM leader WHERE role = 'dispatcher' AND until > now())")


def _queues(session: Session, tenant: str | None, policy: Policy) -> tuple[QueueState, ...]:
    age = func.greatest(0, func.extract("epoch", now() - func.min(col(Job.waiting_since))))
    waiting = select(col(Job.queue), func.count(), age).where(col(Job.waiting_since).is_not(None))
    running = select(col(Attempt.queue), func.count()).where(col(Attempt.ended_at).is_(None))
    if tenant is not None:
        waiting = waiting.where(col(Job.tenant) == tenant)
        running = running.join(Job, col(Job.id) == col(Attempt.job_id)).where(col(Job.tenant) == tenant)
    stand = {name: (count, float(old)) for name, count, old in session.execute(waiting.group_by(col(Job.queue)))}
    busy = {queue: count for queue, count in session.execute(running.group_by(col(Attempt.queue)))}
    served = {one.queue: one for one in slots_by_queue(session)}
    paused = set(session.scalars(select(col(QueueControl.queue)).where(col(QueueControl.paused_at).is_not(None))))
    return tuple(
        QueueState(
            queue=queue.value, waiting=stand.get(queue.value, (0, 0.0))[0], running=busy.get(queue.value, 0),
            oldest_age_seconds=round(stand.get(queue.value, (0, 0.0))[1], 1), is_paused=queue.value in paused,
            workers=served[queue.value].workers if queue.value in served else 0,
            slots=served[queue.value].slots if queue.value in served else 0,
            busy=served[queue.value].busy if queue.value in served else 0,
            soft_seconds=policy.queues[queue].soft_seconds, llm_usd=policy.queues[queue].llm_usd,
        )
        for queue in TASK_OF_QUEUE
    )  # fmt: skip


def _slots(session: Session) -> SlotsView:
    found = fleet_slots(session)
    return SlotsView(serving=found.serving, lost=found.lost, slots=found.slots, busy=found.busy)


def _workers(session: Session) -> tuple[WorkerRow, ...]:
    return tuple(
        WorkerRow(
            id=one.id, host=one.host, queues=one.queues, slots=one.slots, busy=one.busy, standing=one.standing,
            silent_seconds=one.silent_seconds,
        )
        for one in all_workers(session, limit=_WORKERS_SHOWN)
    )  # fmt: skip


def _work(session: Session, tenant: str, policy: Policy, *, is_operator: bool) -> tuple[WorkView, ...]:
    seconds = func.greatest(0, func.extract("epoch", now() - col(Attempt.started_at)))
    live = (
        select(Attempt, col(Job.tenant), seconds, col(Attempt.lease_until) < now())
        .join(Job, col(Job.id) == col(Attempt.job_id))
        .where(col(Attempt.ended_at).is_(None))
        .order_by(col(Attempt.started_at), col(Attempt.id))
        .limit(_WORK_SHOWN)
    )
    if not is_operator:
        live = live.where(col(Job.tenant) == tenant)
    return tuple(
        WorkView(
            worker=attempt.worker if is_operator else None,
            queue=attempt.queue, job_id=attempt.job_id, tenant=owner, is_own=owner == tenant,
            number=attempt.number, started_at=attempt.started_at, seconds=round(float(took), 1),
            soft_seconds=policy.queues[QueueName(attempt.queue)].soft_seconds, is_lost=bool(is_lost),
        )
        for attempt, owner, took, is_lost in session.execute(live)
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


def ended_lately(session: Session, tenant: str | None) -> tuple[Bin, ...]:
    """Return what ended in the last three hours, the oldest piece first; of every tenant when none is named."""
    values = {"seconds": BIN_SECONDS, "span": BIN_SECONDS * (BINS - 1), "tenant": tenant}
    rows = session.execute(_ENDED, values)
    return tuple(Bin(began=began, good=good, bad=bad, other=other) for began, good, bad, other in rows)


def _jobs(session: Session, tenant: str, states: Sequence[State]) -> tuple[JobSummary, ...]:
    recent = (
        select(Job)
        .where(
            col(Job.tenant) == tenant, col(Job.state).in_([state.value for state in states]),
            col(Job.queue) != QueueName.STEPS.value, col(Job.created_at) > after(-_LOOKS_BACK_SECONDS),
        )
        .order_by(col(Job.created_at).desc())
        .limit(_SHOWN)
    )  # fmt: skip
    return tuple(summarise(session, session.scalars(recent).all()))


def _count_asking(session: Session, tenant: str) -> int:
    waiting = select(col(Job.id)).where(
        col(Job.tenant) == tenant, col(Job.expires_at).is_not(None), col(Job.ended_at).is_(None),
        col(Job.state).in_([state.value for state in ASKING]),
    )  # fmt: skip
    return int(session.scalar(select(func.count()).select_from(waiting.limit(_MOST_COUNTED).subquery())) or 0)


def _count_dead(session: Session, tenant: str) -> int:
    dead = select(col(Job.id)).where(
        col(Job.tenant) == tenant, col(Job.failure_signature).is_not(None), col(Job.dismissed_at).is_(None)
    )
    return int(session.scalar(select(func.count()).select_from(dead.limit(_MOST_COUNTED).subquery())) or 0)
