"""The state of the installation: a tenant sees its own part, an operator all of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text
from sqlmodel import Session, col

from ledger.dispatch_window import paused_queues
from ledger.operations.backlog import Depth, depths
from ledger.operations.leaders import DISPATCHER, leaders
from ledger.operations.workers import FleetSlots, QueueSlots, WorkerView, fleet_slots, list_workers, slots_by_queue
from ledger.runs.run import open_gates
from ledger.store import now
from ledger.tables import Attempt, Cap, Job
from producers.use_cases.job_search import JobFilter, find_jobs
from producers.use_cases.jobs import JobSummary, View, summarise
from routing.jobs import FAILURES, USED_ENDS, State
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QUEUES, QueueName


class QueueState(View):
    """One queue."""

    queue: str
    waiting: int
    running: int
    oldest_age_seconds: float
    held: dict[str, int]
    """How many of those that wait are held, by what for: `site`, `time` or `provider`."""
    is_paused: bool
    paused_at: datetime | None
    is_served: bool
    """Whether any worker serves it."""
    slots: QueueSlots | None
    """Slots of the workers that serve it, whichever queue's jobs take them. For operators only."""


class WorkView(View):
    """One running attempt."""

    worker: str | None
    """For operators only: it names a host."""
    queue: str
    job_id: UUID
    tenant: str
    prompt: str | None
    """Of the viewer's own jobs only: operators do not see what other tenants' jobs say."""
    number: int
    started_at: datetime
    seconds: float
    soft_seconds: float
    is_lost: bool
    """Whether its lease has lapsed: the dispatcher is about to recover the job."""


class Bin(View):
    """What ended in one interval."""

    began: datetime
    good: int
    bad: int
    other: int


class FleetView(View):
    """The state of the fleet."""

    queues: tuple[QueueState, ...]
    slots: FleetSlots | None
    """Slots of all workers together. For operators only."""
    workers: tuple[WorkerView, ...]
    """For operators only."""
    work: tuple[WorkView, ...]
    """Running attempts, longest first."""
    asking: tuple[JobSummary, ...]
    """Jobs that wait for a person: questions and previews."""
    asking_total: int
    gates: int
    failing: tuple[JobSummary, ...]
    """Recent failures."""
    dead: int
    """Open dead letters, counted up to a thousand."""
    leader_present: bool
    """Whether a dispatcher leads."""


ASKING = (State.CLARIFYING, State.AWAITING_APPROVAL)
BIN_SECONDS = 300
BINS = 36
"""Three hours in intervals of five minutes."""
_SHOWN = 6
_WORK_SHOWN = 40
_WORKERS_SHOWN = 100
_LOOKS_BACK_SECONDS = 14 * 86_400
_MOST_COUNTED = 1_000


def fleet_view(session: Session, tenant: str, *, policy: Policy, is_operator: bool) -> FleetView:
    """Return the numbers of one tenant, or for an operator of all tenants and workers.

    Only the viewer's own prompts are shown.
    """
    whose = None if is_operator else tenant
    return FleetView(
        queues=queue_states(session, whose),
        slots=fleet_slots(session) if is_operator else None,
        workers=tuple(list_workers(session, limit=_WORKERS_SHOWN)) if is_operator else (),
        work=_work(session, tenant, policy, is_operator=is_operator),
        asking=_jobs(session, tenant, ASKING),
        asking_total=_count(session, tenant, _IS_ASKING),
        gates=len(open_gates(session, tenant)),
        failing=_jobs(session, tenant, FAILURES),
        dead=_count(session, tenant, _IS_DEAD),
        leader_present=DISPATCHER in leaders(session),
    )


def queue_states(session: Session, tenant: str | None) -> tuple[QueueState, ...]:
    """Return each queue with the jobs of one tenant, or of all if None."""
    running = select(col(Attempt.queue), func.count()).where(col(Attempt.ended_at).is_(None))
    if tenant is not None:
        running = running.join(Job, col(Job.id) == col(Attempt.job_id)).where(col(Job.tenant) == tenant)
    busy = {queue: count for queue, count in session.execute(running.group_by(col(Attempt.queue)))}
    waits = {depth.queue: depth for depth in depths(session, tenant=tenant)}
    served = {one.queue: one for one in slots_by_queue(session)}
    paused = paused_queues(session)
    return tuple(
        QueueState(
            **waits.get(queue.value, Depth(queue.value, 0, 0.0, {}))._asdict(),
            running=busy.get(queue.value, 0),
            is_paused=queue.value in paused,
            paused_at=paused.get(queue.value),
            is_served=queue.value in served,
            slots=served.get(queue.value) if tenant is None else None,
        )
        for queue in QUEUES
    )


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
        WorkView.of(
            attempt,
            worker=attempt.worker if is_operator else None,
            tenant=owner,
            prompt=prompt if owner == tenant else None,
            seconds=round(float(took), 1),
            soft_seconds=policy.queues[QueueName(attempt.queue)].soft_seconds,
            is_lost=bool(is_lost),
        )
        for attempt, owner, prompt, took, is_lost in session.execute(live)
    )


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


def recently_ended(session: Session, tenant: str | None) -> tuple[Bin, ...]:
    """Return what ended in the last three hours, oldest first; for all tenants if None."""
    values = {
        "seconds": BIN_SECONDS,
        "span": BIN_SECONDS * (BINS - 1),
        "tenant": tenant,
        "good": list(USED_ENDS),
        "bad": list(FAILURES),
    }
    rows = session.execute(_ENDED, values)
    return tuple(Bin(began=began, good=good, bad=bad, other=other) for began, good, bad, other in rows)


def _jobs(session: Session, tenant: str, states: Collection[State]) -> tuple[JobSummary, ...]:
    since = datetime.now(UTC) - timedelta(seconds=_LOOKS_BACK_SECONDS)
    recent = JobFilter(tenant=tenant, states=tuple(states), since=since)
    return tuple(summarise(session, find_jobs(session, recent, limit=_SHOWN).jobs))


_IS_ASKING = (
    col(Job.expires_at).is_not(None),
    col(Job.ended_at).is_(None),
    col(Job.state).in_([state.value for state in ASKING]),
)
_IS_DEAD = (col(Job.failure_signature).is_not(None), col(Job.dismissed_at).is_(None))


def _count(session: Session, tenant: str, conditions: Sequence[ColumnElement[bool]]) -> int:
    found = select(col(Job.id)).where(col(Job.tenant) == tenant, *conditions).limit(_MOST_COUNTED)
    return int(session.scalar(select(func.count()).select_from(found.subquery())) or 0)


class QueueView(View):
    """A queue, counting the caller's own jobs."""

    queue: str
    waiting: int
    oldest_age_seconds: float
    """Of the job that has waited longest; 0 where none waits whose time has come."""
    held: dict[str, int]
    """How many of those that wait are held, by what for: `site`, `time` or `provider`."""
    is_paused: bool


def queue_depths(session: Session, tenant: str) -> list[QueueView]:
    """Return each queue with one tenant's waiting jobs."""
    return [*map(QueueView.of, queue_states(session, tenant))]


DAYS = 14
_TODAY = text("SELECT (now() AT TIME ZONE 'UTC')::date")


class BudgetState(View):
    """One budget of today."""

    scope: str
    label: str
    limit_nanousd: int
    spent_nanousd: int
    reserved_nanousd: int


class SpentDay(View):
    """One day (UTC) of a budget."""

    day: date
    spent_nanousd: int


def budgets_today(session: Session, tenant: str, *, policy: Policy, is_operator: bool) -> tuple[BudgetState, ...]:
    """Return the tenant's budget of today, and the fleet's for an operator."""
    today = session.scalar(_TODAY)
    limits = policy.budgets
    budgets = [_budget(session, "tenant_day", f"{tenant}/{today}", label="Your day", limit_usd=limits.tenant_day_usd)]
    if is_operator:
        limit = limits.fleet_day_usd
        budgets.append(_budget(session, "fleet_day", str(today), label="The fleet's day", limit_usd=limit))
    return tuple(budgets)


def spent_by_day(session: Session, tenant: str | None) -> tuple[SpentDay, ...]:
    """Return the cost of the last two weeks, oldest day first; of all tenants together if None."""
    today = session.scalar(_TODAY)
    assert isinstance(today, date)
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    scope = "fleet_day" if tenant is None else "tenant_day"
    key_of = {(str(day) if tenant is None else f"{tenant}/{day}"): day for day in days}
    rows = select(col(Cap.key), col(Cap.spent_nanousd)).where(col(Cap.scope) == scope, col(Cap.key).in_(key_of))
    spent = {key_of[key]: amount for key, amount in session.execute(rows)}
    return tuple(SpentDay(day=day, spent_nanousd=spent.get(day, 0)) for day in days)


def _budget(session: Session, scope: str, key: str, *, label: str, limit_usd: float) -> BudgetState:
    cap = session.get(Cap, (scope, key))
    return BudgetState(
        scope=scope,
        label=label,
        limit_nanousd=cap.limit_nanousd if cap else round(limit_usd * NANOUSD_PER_USD),
        spent_nanousd=cap.spent_nanousd if cap else 0,
        reserved_nanousd=cap.reserved_nanousd if cap else 0,
    )
