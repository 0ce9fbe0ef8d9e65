"""The runway: which waiting jobs stand in the broker, in fair order, and which of them got lost there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Connection, func, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.ledger import runway_sql
from monitoring.ledger.clock import after, moment, now
from monitoring.ledger.events import wake_dispatcher
from monitoring.ledger.record_tables import Leader, QueueControl
from monitoring.ledger.tables import Job
from routing.admission import Admission
from routing.policy import Runway
from routing.queues import QUEUES, QueueName
from routing.turns import Order, Ready, Share, first_tenants, order_of, take_turns, turns_after

ALL_TENANTS = ""
"""In the tables of what waits: all tenants of a queue together."""
WRITING_QUEUES = frozenset(name for name, queue in QUEUES.items() if queue.writes_site)
"""Queues whose work writes its site."""
DISPATCHER = "dispatcher"
"""The role of who tops the runways up."""
_PASSES = 4
"""So often one top-up looks for other jobs in the place of those that it found waiting for their site."""
_PARKED_AT_ONCE = 500


class Push(NamedTuple):
    """A message that has to go to the broker."""

    job_id: UUID
    fence: int
    queue: QueueName
    tenant: str
    trace: str | None = None
    """What the job's row carries of its trace."""


class Depth(NamedTuple):
    """How a queue stands."""

    queue: str
    waiting: int
    oldest_age_seconds: float


class Work(NamedTuple):
    """What a look at all queues shows."""

    ready: Mapping[QueueName, int]
    """Queues that are not paused, with jobs that may go to the broker, and how many of each stand there already."""
    pushed: tuple[QueueName, ...]
    """Queues with jobs whose message should stand in the broker."""
    has_lapsed: bool
    """An attempt lost its lease."""
    has_settled: bool
    """Steps ended of which their runs have not taken note."""
    has_held: bool
    """A time has come for which jobs were held, or some are held for their site."""


def look(session: Session | Connection, *, older_than_seconds: float) -> Work:
    """Return what there is to do: most of the time nothing, and that is known with one statement.

    Args:
        session: the caller's transaction, or a connection for this one look.
        older_than_seconds: a message is only missed when it was pushed so long ago.
    """
    rows = session.execute(runway_sql.LOOK, {"older": older_than_seconds}).all()
    return Work(
        {QueueName(row.queue): row.standing for row in rows if row.has_ready},
        tuple(QueueName(row.queue) for row in rows if row.has_pushed),
        rows[0].has_lapsed, rows[0].has_settled, rows[0].has_held,
    )  # fmt: skip


def top_up(session: Session, queue: QueueName, *, runway: Runway, admission: Admission) -> Sequence[Push]:
    """Choose the jobs that go to the broker next, tenants in turn by their weights, and mark them as pushed.

    Skips paused queues and tenants, and tenants with as many attempts as they may have. Jobs whose site another job is
    writing, or is about to, are held for it, all of that site's at once. Looks at as many jobs as there is room for.
    """
    standing_now, before, shares = _shares(session, queue, runway=runway, admission=admission)
    room = runway.per_queue - standing_now
    if room <= 0 or not shares:
        return []
    order = order_of(shares, before=before)
    chosen: list[Ready] = []
    for _ in range(_PASSES):
        chosen = take_turns(shares, _ready(session, queue, shares, order, room=room), order, room=room)
        if queue not in WRITING_QUEUES or not (crowded := _crowded(session, queue, chosen)):
            break
        _hold_for_sites(session, queue, chosen, crowded)
        chosen = [job for job in chosen if job.job_id not in crowded]
    if not chosen:
        return []
    marked = session.execute(runway_sql.MARK, {"jobs": [job.job_id for job in chosen]}).all()
    pushed = {job_id: (fence, trace) for job_id, fence, trace in marked}
    taken = [job for job in chosen if job.job_id in pushed]
    _keep_turns(session, queue, order.now, turns_after(shares, taken, order))
    return [
        Push(job.job_id, fence, queue, job.tenant, trace) for job in taken for fence, trace in (pushed[job.job_id],)
    ]


def _shares(
    session: Session, queue: QueueName, *, runway: Runway, admission: Admission
) -> tuple[int, float, list[Share]]:
    """Return how many jobs stand on a queue, where its order of turns stood, and the tenants that take turns on it."""
    standing_now, before, shares = 0, 0.0, []
    for row in session.execute(runway_sql.SHARES, {"queue": queue.value}):
        if row.tenant == ALL_TENANTS:
            standing_now, before = row.standing, row.turn
            continue
        room = runway.per_tenant * row.weight - row.standing
        limit = row.max_running if row.max_running is not None else admission.running_per_tenant
        if limit is not None and queue is not QueueName.CONTROL:
            room = min(room, limit - row.live - row.standing)
        shares.append(Share(row.tenant, row.weight, row.standing, row.turn, max(0, room)))
    return standing_now, before, shares


def _ready(
    session: Session, queue: QueueName, shares: Sequence[Share], order: Order, *, room: int
) -> list[Ready]:  # fmt: skip
    tenants = first_tenants(shares, order, room=room)
    if not tenants:
        return []
    rows = session.execute(runway_sql.READY, {"queue": queue.value, "tenants": tenants, "room": room})
    return [Ready(*row) for row in rows]


def _crowded(session: Session, queue: QueueName, chosen: Sequence[Ready]) -> set[UUID]:
    """Return the jobs among these whose site is written, or will be first by another one of this queue."""
    writing = [job for job in chosen if job.site_id is not None]
    values = {
        "queue": queue.value, "jobs": [job.job_id for job in writing], "sites": [job.site_id for job in writing],
    }  # fmt: skip
    crowded = set(session.scalars(runway_sql.CROWDED, values)) if writing else set()
    seen: set[UUID | None] = set()
    for job in writing:
        if job.job_id not in crowded and job.site_id in seen:
            crowded.add(job.job_id)
        seen.add(job.site_id)
    return crowded


def _hold_for_sites(session: Session, queue: QueueName, chosen: Sequence[Ready], crowded: set[UUID]) -> None:
    """Park everything of the crowded sites but what is about to write them."""
    values = {
        "queue": queue.value,
        "sites": sorted({job.site_id for job in chosen if job.job_id in crowded and job.site_id is not None}),
        "kept": [job.job_id for job in chosen if job.job_id not in crowded],
        "limit": _PARKED_AT_ONCE,
    }
    session.execute(runway_sql.PARK, values)


def _keep_turns(session: Session, queue: QueueName, now: float, turns: dict[str, float]) -> None:
    rows = sorted(({ALL_TENANTS: now} | turns).items())  # in one order, so that two dispatchers cannot deadlock
    values = {"queue": queue.value, "tenants": [name for name, _ in rows], "turns": [turn for _, turn in rows]}
    session.execute(runway_sql.KEEP_TURNS, values)


def standing(session: Session, queue: QueueName, *, older_than_seconds: float) -> Sequence[Push]:
    """Return the jobs whose message should be in the broker since at least that long."""
    rows = session.execute(
        select(col(Job.id), col(Job.fence), col(Job.tenant)).where(
            col(Job.queue) == queue.value,
            col(Job.waiting_since).is_not(None),
            col(Job.pushed_at) < moment(-older_than_seconds),
        )
    )
    return [Push(job_id, fence, queue, tenant) for job_id, fence, tenant in rows]


def unpush(session: Session, pushes: Sequence[Push], *, older_than_seconds: float = 0.0) -> None:
    """Take back the mark of jobs whose message is not in the broker: they wait for the next top-up.

    Args:
        session: the caller's transaction.
        pushes: what is not there.
        older_than_seconds: only what was pushed so long ago; what another dispatcher has pushed since then stays.
    """
    if pushes:
        values = {"jobs": [push.job_id for push in pushes], "fences": [push.fence for push in pushes]}
        session.execute(runway_sql.UNMARK, values | {"older": older_than_seconds})


def pause(session: Session, queue: QueueName, *, is_paused: bool) -> None:
    """Pause or resume a queue, at once and for messages that are on their way too; survives restarts."""
    when = now() if is_paused else None
    session.execute(
        insert(QueueControl)
        .values(queue=queue.value, paused_at=when)
        .on_conflict_do_update(index_elements=["queue"], set_={"paused_at": when})
    )
    wake_dispatcher(session)


def depths(session: Session, *, tenant: str | None = None) -> Sequence[Depth]:
    """Return how many jobs wait on each queue that holds any, and how long the oldest has.

    Args:
        session: the caller's transaction.
        tenant: whose jobs alone are counted; None for everybody's.
    """
    age = func.greatest(0, func.extract("epoch", now() - func.min(col(Job.waiting_since))))
    waits = select(col(Job.queue), func.count(), age).where(col(Job.waiting_since).is_not(None))
    if tenant is not None:
        waits = waits.where(col(Job.tenant) == tenant)
    rows = session.execute(waits.group_by(col(Job.queue)))
    return [Depth(queue, waiting, round(float(seconds), 3)) for queue, waiting, seconds in rows]


def paused_queues(session: Session) -> dict[str, datetime]:
    """Return the queues that operators paused, and since when."""
    paused = select(col(QueueControl.queue), col(QueueControl.paused_at)).where(
        col(QueueControl.paused_at).is_not(None)
    )
    return {queue: paused_at for queue, paused_at in session.execute(paused)}


def lead(session: Session, role: str, holder: str, *, seconds: float) -> bool:
    """Become or stay the one leader of a role for so many seconds; False while another holds it."""
    free = (col(Leader.until) < now()) | (col(Leader.holder) == holder)
    taken = session.scalar(
        insert(Leader)
        .values(role=role, holder=holder, until=after(seconds))
        .on_conflict_do_update(index_elements=["role"], set_={"holder": holder, "until": after(seconds)}, where=free)
        .returning(col(Leader.holder))
    )
    return taken == holder


def leaders(session: Session) -> dict[str, str]:
    """Return who leads now, by role."""
    alive = select(col(Leader.role), col(Leader.holder)).where(col(Leader.until) > func.clock_timestamp())
    return {role: holder for role, holder in session.execute(alive)}


def resign(session: Session, role: str, holder: str) -> None:
    """Give up a role at a clean stop, so that another takes over at once."""
    session.execute(
        sql_update(Leader).where(col(Leader.role) == role, col(Leader.holder) == holder).values(until=now())
    )
