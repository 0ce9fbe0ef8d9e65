"""How an installation does right now: for a tenant what it has there, for whoever operates it all of it."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select, text
from sqlmodel import Session, col

from monitoring.ledger.dispatch_window import DISPATCHER, Depth, depths, leaders, paused_queues
from monitoring.ledger.gates import open_gates
from monitoring.ledger.sql import after, now
from monitoring.ledger.tables import Attempt, Job
from monitoring.ledger.workers import all_workers, fleet_slots, slots_by_queue
from producers.fleet_views import Bin, FleetView, QueueState, WorkView
from producers.jobs import JobSummary, summarise
from routing.jobs import FAILURES, USED_ENDS, State
from routing.policy import Policy
from routing.queues import QUEUES, QueueName

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
    """Return how the fleet does: every tenant's numbers and all workers for an operator, else the tenant's own numbers.

    Args:
        session: the caller's transaction.
        tenant: who looks; prompts are shown of this tenant's jobs alone.
        policy: the platform's limits.
        is_operator: whether the looker sees all of the fleet.
    """
    whose = None if is_operator else tenant
    return FleetView(
        queues=_queues(session, whose),
        slots=fleet_slots(session) if is_operator else None,
        workers=tuple(all_workers(session, limit=_WORKERS_SHOWN)) if is_operator else (),
        work=_work(session, tenant, policy, is_operator=is_operator),
        asking=_jobs(session, tenant, ASKING),
        asking_total=_count_asking(session, tenant),
        gates=len(open_gates(session, tenant)),
        failing=_jobs(session, tenant, FAILURES),
        dead=_count_dead(session, tenant),
        leader_present=DISPATCHER in leaders(session),
    )


def _queues(session: Session, tenant: str | None) -> tuple[QueueState, ...]:
    running = select(col(Attempt.queue), func.count()).where(col(Attempt.ended_at).is_(None))
    if tenant is not None:
        running = running.join(Job, col(Job.id) == col(Attempt.job_id)).where(col(Job.tenant) == tenant)
    busy = {queue: count for queue, count in session.execute(running.group_by(col(Attempt.queue)))}
    waits = {depth.queue: depth for depth in depths(session, tenant=tenant)}
    served = {one.queue: one for one in slots_by_queue(session)}
    paused = paused_queues(session)
    return tuple(
        QueueState(
            **waits.get(queue.value, Depth(queue.value, 0, 0.0))._asdict(), running=busy.get(queue.value, 0),
            is_paused=queue.value in paused, is_served=queue.value in served,
            slots=served.get(queue.value) if tenant is None else None,
        )
        for queue in QUEUES
    )  # fmt: skip


def _work(session: Session, tenant: str, policy: Policy, *, is_operator: bool) -> tuple[WorkView, ...]:
    seconds = func.greatest(0, func.extract("epoch", now() - col(Attempt.started_at)))
    live = (
        select(Attempt, col(Job.tenant), col(Job.prompt), seconds, col(Attempt.lease_until) < now())
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
            queue=attempt.queue, job_id=attempt.job_id, tenant=owner, prompt=prompt if owner == tenant else None,
            number=attempt.number, started_at=attempt.started_at, seconds=round(float(took), 1),
            soft_seconds=policy.queues[QueueName(attempt.queue)].soft_seconds, is_lost=bool(is_lost),
        )
        for attempt, owner, prompt, took, is_lost in session.execute(live)
    )  # fmt: skip


_ENDED = text("""
    WITH span AS (
        SELECT began FROM generate_series(
            to_timestamp(floor(extract(epoch FROM now()) / :seconds) * :seconds) - make_interval(secs => :span),
            now(), make_interval(secs => :seconds)) AS began
    ), ended AS (
        SELECT to_timestamp(floor(extract(epoch FROM ended_at) / :seconds) * :seconds) AS began,
               count(*) FILTER (WHERE state = ANY(:good)) AS good,
               count(*) FILTER (WHERE state = ANY(:bad)) AS bad,
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
    values = {
        "seconds": BIN_SECONDS, "span": BIN_SECONDS * (BINS - 1), "tenant": tenant, "good": list(USED_ENDS),
        "bad": list(FAILURES),
    }  # fmt: skip
    rows = session.execute(_ENDED, values)
    return tuple(Bin(began=began, good=good, bad=bad, other=other) for began, good, bad, other in rows)


def _jobs(session: Session, tenant: str, states: Collection[State]) -> tuple[JobSummary, ...]:
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
