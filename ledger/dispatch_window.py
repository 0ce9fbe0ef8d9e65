"""Choose which waiting jobs stand in the broker, in fair order, and hold the others back.

Every statement goes through an index, so its cost does not grow with the backlog. `IS_READY` is the condition of the
index `ix_job_ready`, `IS_PUSHED` that of `ix_job_runway`: spelled out in each statement, because the planner uses a
partial index only when it can prove its condition.

A held job (waiting for its site, for a time or for a provider) is in neither index and costs nothing. Only the
dispatcher lets it go on: when its time has come, or one by one as its site becomes free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, DateTime, cast, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger.record_tables import QueueControl
from ledger.store import OF_OPEN_TENANTS, Statement, after, dump_json, moment, now, wake_dispatcher
from ledger.tables import Job
from routing.policy.platform import DispatchWindow
from routing.queues import QUEUES, QueueName
from routing.scheduling import (
    Admission,
    Order,
    Ready,
    Share,
    WaitReason,
    advance_turns,
    compute_order,
    next_tenants,
    select_next_jobs,
)

IS_READY = "waiting_since IS NOT NULL AND pushed_at IS NULL AND held_for IS NULL"
IS_PUSHED = "waiting_since IS NOT NULL AND pushed_at IS NOT NULL"
AT_WORK = "attempt.ended_at IS NULL AND attempt.queue <> 'control'"
"""The attempts that count against how many a tenant may have: `control` only finishes what has begun."""

_LOOK_SQL = """
    SELECT queue,
           NOT EXISTS (SELECT FROM queue_control WHERE queue_control.queue = queues.queue AND paused_at IS NOT NULL)
           AND (SELECT id FROM job WHERE job.queue = queues.queue AND {is_ready}
                 ORDER BY tenant, priority, created_at LIMIT 1) IS NOT NULL AS has_ready,
           pushed.jobs AS standing,
           coalesce(pushed.first < clock_timestamp() - make_interval(secs => CAST(%(older)s AS float)), false)
               AS has_pushed,
           (SELECT EXISTS (SELECT FROM attempt WHERE ended_at IS NULL{reported}
                               AND lease_until < (SELECT clock_timestamp()))) AS has_lapsed,
           (SELECT EXISTS (SELECT FROM agent_executions
                            WHERE settled_at IS NOT NULL AND absorbed_at IS NULL)) AS has_settled,
           (SELECT min(held_until) <= clock_timestamp() FROM job WHERE held_until IS NOT NULL) IS TRUE
           OR (SELECT id FROM job WHERE held_for = 'site'
                ORDER BY site_id, queue, priority, created_at LIMIT 1) IS NOT NULL AS has_held, {overdue}
      FROM (VALUES {queues}) AS queues (queue) CROSS JOIN LATERAL (
          SELECT count(*) AS jobs, min(pushed_at) AS first FROM job WHERE job.queue = queues.queue AND {is_pushed}
      ) AS pushed
"""
"""Each row is selected in the full order of its index, or the planner may scan another one.

The queues are part of the text: with an array as a parameter the statement would be planned on every execution.
"""
_OVERDUE = """
           (SELECT EXISTS (SELECT FROM call
                            WHERE state = 'reserved' AND lease_until < (SELECT clock_timestamp()))) AS has_lost_calls,
           (SELECT EXISTS (SELECT FROM job WHERE expires_at < (SELECT clock_timestamp()))
                OR EXISTS (SELECT FROM gate WHERE state = 'open' AND expires_at < (SELECT clock_timestamp())))
               AS has_expired,
           EXISTS (SELECT FROM job WHERE job.queue = queues.queue AND waiting_since < (SELECT clock_timestamp())
                      - make_interval(secs => CAST(CAST(%(wait_seconds)s AS jsonb) ->> queues.queue AS float)))
               AS has_stale
"""


def _look(overdue: str, *, reported: str = "") -> Statement:
    queues = ", ".join(f"('{queue.value}')" for queue in QUEUES)
    return Statement(
        _LOOK_SQL.format(overdue=overdue, reported=reported, queues=queues, is_ready=IS_READY, is_pushed=IS_PUSHED)
    )


_NEWS = "false AS has_lost_calls, false AS has_expired, false AS has_stale"
_LOOK = _look(_NEWS, reported=" AND lost_cause IS NOT NULL")  # a lease that time alone ends is no news
_LOOK_AT_ALL = _look(_OVERDUE)

_SHARES = Statement(f"""
    WITH RECURSIVE ready AS (
        (SELECT tenant FROM job WHERE queue = %(queue)s AND {IS_READY}
          ORDER BY tenant, priority, created_at LIMIT 1)
        UNION ALL
        SELECT (SELECT job.tenant FROM job WHERE job.queue = %(queue)s AND job.tenant > ready.tenant AND {IS_READY}
                 ORDER BY job.tenant, job.priority, job.created_at LIMIT 1)
          FROM ready WHERE ready.tenant IS NOT NULL
    ), standing AS (
        SELECT tenant, count(*) AS jobs FROM job WHERE queue = %(queue)s AND {IS_PUSHED} GROUP BY tenant
    ), busy AS (
        SELECT tenant FROM ready WHERE tenant IS NOT NULL
        UNION SELECT tenant FROM standing
    ), live AS (
        SELECT job.tenant, count(*) AS attempts FROM attempt JOIN job ON job.id = attempt.job_id
         WHERE {AT_WORK} GROUP BY job.tenant
    ), shares AS (
        SELECT tenant.name AS tenant, tenant.weight, tenant.max_running, coalesce(live.attempts, 0) AS live,
               coalesce(standing.jobs, 0) AS standing, coalesce(backlog.turn, 0) AS turn, NULL AS plans
          FROM busy JOIN tenant ON tenant.name = busy.tenant AND tenant.paused_at IS NULL
          LEFT JOIN live ON live.tenant = tenant.name
          LEFT JOIN standing ON standing.tenant = tenant.name
          LEFT JOIN backlog ON backlog.queue = %(queue)s AND backlog.tenant = tenant.name
        UNION ALL
        SELECT '', 1, NULL, 0, (SELECT coalesce(sum(jobs), 0)::bigint FROM standing),
               coalesce((SELECT turn FROM backlog WHERE queue = %(queue)s AND tenant = ''), 0),
               set_config('plan_cache_mode', 'force_generic_plan', true)
    )
    SELECT * FROM shares
     WHERE NOT EXISTS (SELECT FROM queue_control WHERE queue = %(queue)s AND paused_at IS NOT NULL)
""")
"""Tenants with ready jobs are found one by one through the index, so the cost grows with the tenants alone.

The row with an empty tenant is for all of them: the jobs on the whole queue, and the position in the order of turns.
A paused queue has no rows. Later statements of the transaction keep a generic plan, as in `submission`.
"""

_READY = Statement(f"""
    SELECT next.id, next.tenant, next.priority, next.created_at, next.site_id
      FROM unnest(CAST(%(tenants)s AS text[])) AS share (tenant)
     CROSS JOIN LATERAL (
         SELECT id, job.tenant, priority, created_at, site_id FROM job
          WHERE queue = %(queue)s AND job.tenant = share.tenant AND {IS_READY}
          ORDER BY priority, created_at LIMIT %(room)s
     ) AS next
""")

_CROWDED = Statement(f"""
    SELECT asked.job_id FROM unnest(CAST(%(jobs)s AS uuid[]), CAST(%(sites)s AS uuid[])) AS asked (job_id, site_id)
      JOIN site ON site.id = asked.site_id
     WHERE site.lock_job_id IS DISTINCT FROM asked.job_id
       AND (site.lock_job_id IS NOT NULL
            OR EXISTS (SELECT FROM job WHERE job.site_id = asked.site_id AND job.queue = %(queue)s
                          AND job.held_for IS NULL AND ended_at IS NULL AND {IS_PUSHED}))
""")

_WAIT_FOR_SITES = Statement(f"""
    WITH crowd AS (
        SELECT next.id FROM unnest(CAST(%(sites)s AS uuid[])) AS busy (site_id) CROSS JOIN LATERAL (
            SELECT job.id FROM job
             WHERE job.site_id = busy.site_id AND job.queue = %(queue)s AND ended_at IS NULL AND {IS_READY}
               AND job.id <> ALL(CAST(%(kept)s AS uuid[]))
               AND job.id IS DISTINCT FROM (SELECT lock_job_id FROM site WHERE site.id = busy.site_id) LIMIT %(limit)s
        ) AS next LIMIT %(limit)s
    ), free AS (
        SELECT id FROM job WHERE id = ANY(ARRAY(SELECT id FROM crowd)) AND {IS_READY} FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET held_for = 'site' WHERE id = ANY(ARRAY(SELECT id FROM free))
""")
"""An array of ids instead of a join, for which the planner may read the whole table.

The job that holds the site's lock, and waits again, is never held: the site is free for nobody else.
"""

_MARK = Statement(f"""
    WITH free AS (
        SELECT id FROM job WHERE id = ANY(CAST(%(jobs)s AS uuid[])) AND {IS_READY} FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET pushed_at = clock_timestamp() WHERE id = ANY(ARRAY(SELECT id FROM free))
    RETURNING id, fence, trace, (SELECT overrides FROM tenant WHERE tenant.name = job.tenant) AS overrides
""")
"""Locked rows are skipped: a job that is just being cancelled is left alone."""

_UNMARK = Statement("""
    WITH lost AS (
        SELECT job.id FROM unnest(CAST(%(jobs)s AS uuid[]), CAST(%(fences)s AS integer[])) AS asked (id, fence)
          JOIN job ON job.id = asked.id AND job.fence = asked.fence AND job.waiting_since IS NOT NULL
         WHERE job.pushed_at <= clock_timestamp() - make_interval(secs => CAST(%(older)s AS double precision))
           FOR NO KEY UPDATE OF job SKIP LOCKED
    )
    UPDATE job SET pushed_at = NULL WHERE id = ANY(ARRAY(SELECT id FROM lost))
""")

_KEEP_TURNS = Statement("""
    INSERT INTO backlog (queue, tenant, waiting, drained_per_second, turn, counted_at)
    SELECT %(queue)s, kept.tenant, 0, 0, kept.turn, to_timestamp(0)
      FROM unnest(CAST(%(tenants)s AS text[]), CAST(%(turns)s AS double precision[])) AS kept (tenant, turn)
    ON CONFLICT (queue, tenant) DO UPDATE SET turn = greatest(backlog.turn, excluded.turn)
""")

ALL_TENANTS = ""
"""Stands for all tenants of a queue in the `backlog` table."""
WRITING_QUEUES = frozenset(name for name, queue in QUEUES.items() if queue.writes_site)
"""Queues whose work writes its site."""
_PASSES = 4
"""How often one top-up replaces jobs that have to wait for their site."""
_HELD_AT_ONCE = 500


class Push(NamedTuple):
    """A message that has to go to the broker."""

    job_id: UUID
    fence: int
    queue: QueueName
    tenant: str
    trace: str | None = None
    """The job's `traceparent`."""
    overrides: Mapping[str, Any] = MappingProxyType({})
    """The tenant's, which its time limits depend on."""


class Work(NamedTuple):
    """What the dispatcher has to do."""

    ready: Mapping[QueueName, int]
    """Queues that are not paused and have ready jobs, with how many of their jobs are in the broker already."""
    pushed: tuple[QueueName, ...]
    """Queues with jobs whose message should be in the broker."""
    has_lapsed: bool
    """Whether an attempt lost its lease."""
    has_settled: bool
    """Whether steps ended that their runs have not merged."""
    has_held: bool
    """Whether held jobs are due, or jobs are held for their site."""
    has_lost_calls: bool = False
    """Whether the gateway of an open call is dead."""
    has_expired: bool = False
    """Whether a decision of a person is overdue."""
    has_stale: bool = False
    """Whether a job has waited longer than it may."""


def look(
    session: Session | Connection, *, older_than_seconds: float, wait_seconds: Mapping[QueueName, float] | None = None
) -> Work:
    """Return what there is to do, with one statement: most of the time nothing.

    A message counts as missing only when it was pushed `older_than_seconds` ago. What time alone brings about is looked
    for only with `wait_seconds`, how long a job may wait on each queue.
    """
    values: dict[str, object] = {"older": older_than_seconds}
    if wait_seconds is None:
        rows = _LOOK.all(session, values)
    else:
        bounds = {queue.value: seconds for queue, seconds in wait_seconds.items()}
        rows = _LOOK_AT_ALL.all(session, values | {"wait_seconds": dump_json(bounds)})
    return Work(
        {QueueName(row.queue): row.standing for row in rows if row.has_ready},
        tuple(QueueName(row.queue) for row in rows if row.has_pushed),
        rows[0].has_lapsed,
        rows[0].has_settled,
        rows[0].has_held,
        rows[0].has_lost_calls,
        rows[0].has_expired,
        any(row.has_stale for row in rows),
    )


def top_up(
    session: Session, queue: QueueName, *, dispatch_window: DispatchWindow, admission: Admission
) -> Sequence[Push]:
    """Choose the jobs that go to the broker next, taking turns between tenants by weight, and mark them as pushed.

    Skips paused queues and tenants, and tenants at their limit of attempts. When another job writes a site, or is about
    to, all other jobs of that site are held at once. Reads no more jobs than there is room for.
    """
    pushed_count, before, shares = _shares(session, queue, dispatch_window=dispatch_window, admission=admission)
    room = dispatch_window.per_queue - pushed_count
    if room <= 0 or not shares:
        return []
    order = compute_order(shares, before=before)
    chosen: list[Ready] = []
    for _ in range(_PASSES):
        chosen = select_next_jobs(shares, _ready(session, queue, shares, order, room=room), order, room=room)
        if queue not in WRITING_QUEUES or not (crowded := _crowded(session, queue, chosen)):
            break
        _wait_for_sites(session, queue, chosen, crowded)
        chosen = [job for job in chosen if job.job_id not in crowded]
    if not chosen:
        return []
    marked = {row.id: row for row in _MARK.all(session, {"jobs": [job.job_id for job in chosen]})}
    taken = [job for job in chosen if job.job_id in marked]
    _keep_turns(session, queue, order.now, advance_turns(shares, taken, order))
    rows = [marked[job.job_id] for job in taken]
    return [
        Push(row.id, row.fence, queue, job.tenant, row.trace, row.overrides)
        for job, row in zip(taken, rows, strict=True)
    ]


def _shares(
    session: Session, queue: QueueName, *, dispatch_window: DispatchWindow, admission: Admission
) -> tuple[int, float, list[Share]]:
    """Return how many jobs of a queue are pushed, its position in the order of turns, and its tenants' shares."""
    pushed_count, before, shares = 0, 0.0, []
    for row in _SHARES.all(session, {"queue": queue.value}):
        if row.tenant == ALL_TENANTS:
            pushed_count, before = row.standing, row.turn
            continue
        room = dispatch_window.per_tenant * row.weight - row.standing
        limit = row.max_running if row.max_running is not None else admission.running_per_tenant
        if limit is not None and queue is not QueueName.CONTROL:
            room = min(room, limit - row.live - row.standing)
        shares.append(Share(row.tenant, row.weight, row.standing, row.turn, max(0, room)))
    return pushed_count, before, shares


def _ready(session: Session, queue: QueueName, shares: Sequence[Share], order: Order, *, room: int) -> list[Ready]:
    tenants = next_tenants(shares, order, room=room)
    if not tenants:
        return []
    rows = _READY.all(session, {"queue": queue.value, "tenants": tenants, "room": room})
    return [Ready(*row) for row in rows]


def _crowded(session: Session, queue: QueueName, chosen: Sequence[Ready]) -> set[UUID]:
    """Return the jobs among these whose site another job writes, or will write first."""
    writing = [job for job in chosen if job.site_id is not None]
    values = {"queue": queue.value, "jobs": [job.job_id for job in writing], "sites": [job.site_id for job in writing]}
    crowded = set(_CROWDED.scalars(session, values)) if writing else set()
    seen: set[UUID | None] = set()
    for job in writing:
        if job.job_id not in crowded and job.site_id in seen:
            crowded.add(job.job_id)
        seen.add(job.site_id)
    return crowded


def _wait_for_sites(session: Session, queue: QueueName, chosen: Sequence[Ready], crowded: set[UUID]) -> None:
    """Hold every job of the crowded sites except the next to write them."""
    values = {
        "queue": queue.value,
        "sites": sorted({job.site_id for job in chosen if job.job_id in crowded and job.site_id is not None}),
        "kept": [job.job_id for job in chosen if job.job_id not in crowded],
        "limit": _HELD_AT_ONCE,
    }
    _WAIT_FOR_SITES.all(session, values)


def _keep_turns(session: Session, queue: QueueName, now: float, turns: dict[str, float]) -> None:
    rows = sorted(({ALL_TENANTS: now} | turns).items())  # in one order, so that two dispatchers cannot deadlock
    values = {"queue": queue.value, "tenants": [name for name, _ in rows], "turns": [turn for _, turn in rows]}
    _KEEP_TURNS.all(session, values)


def pushed_jobs(session: Session, queue: QueueName, *, older_than_seconds: float) -> Sequence[Push]:
    """Return the jobs whose message should have been in the broker for at least this long."""
    rows = session.execute(
        select(col(Job.id), col(Job.fence), col(Job.tenant)).where(
            col(Job.queue) == queue.value,
            col(Job.waiting_since).is_not(None),
            col(Job.pushed_at) < moment(-older_than_seconds),
        )
    )
    return [Push(job_id, fence, queue, tenant) for job_id, fence, tenant in rows]


def unmark_pushed(session: Session, pushes: Sequence[Push], *, older_than_seconds: float = 0.0) -> None:
    """Unmark jobs whose message is not in the broker, so that they wait for the next top-up.

    With `older_than_seconds`, what another dispatcher has pushed since then stays.
    """
    if pushes:
        values = {"jobs": [push.job_id for push in pushes], "fences": [push.fence for push in pushes]}
        _UNMARK.all(session, values | {"older": older_than_seconds})


def pause_queue(session: Session, queue: QueueName, *, is_paused: bool) -> None:
    """Pause or resume a queue at once, also for messages on their way; survives restarts."""
    paused_at = now() if is_paused else None
    session.execute(
        insert(QueueControl)
        .values(queue=queue.value, paused_at=paused_at)
        .on_conflict_do_update(index_elements=["queue"], set_={"paused_at": paused_at})
    )
    wake_dispatcher(session)


def paused_queues(session: Session) -> dict[str, datetime]:
    """Return the paused queues, and since when they are."""
    paused = select(col(QueueControl.queue), col(QueueControl.paused_at)).where(
        col(QueueControl.paused_at).is_not(None)
    )
    return {queue: paused_at for queue, paused_at in session.execute(paused)}


RELEASED_AT_ONCE = 500
"""The most jobs that one round releases; the next round continues."""


def set_wait_reason(job: Job, hold: WaitReason | None, *, seconds: float | None = None) -> None:
    """Set on a locked waiting job why it must not go to the broker yet, or that it may.

    A job that waits for a time starts to age only when that has come.

    Args:
        job: waits, or is about to.
        hold: why; None when it may go.
        seconds: how long it is held at least; None for a job that is held for its site.
    """
    assert (seconds is None) == (hold in (None, WaitReason.SITE)), "a time belongs to a hold that time ends"
    job.held_for = hold.value if hold is not None else None
    job.held_until = after(seconds) if seconds is not None else None  # type: ignore[assignment]
    if hold is WaitReason.TIME and seconds is not None:
        job.waiting_since = after(max(0.0, seconds))  # type: ignore[assignment]


def hold_back(session: Session, job: Job, hold: WaitReason, *, seconds: float | None = None) -> None:
    """Hold a locked job that waits already; a message on its way will find it held."""
    job.pushed_at = None
    set_wait_reason(job, hold, seconds=seconds)
    session.flush()


def seconds_to_start(session: Session, job: Job) -> float | None:
    """Return the seconds until the start that a job's owner asked for; None when it may start now."""
    if (start_at := job.request.get("start_at")) is None:
        return None
    left = select(func.extract("epoch", cast(start_at, DateTime(timezone=True)) - now()))
    seconds = float(session.scalar(left) or 0.0)
    return seconds if seconds > 0 else None


_DUE = Statement(f"""
    WITH due AS (
        SELECT id FROM job WHERE held_until <= (SELECT clock_timestamp()) AND {OF_OPEN_TENANTS}
         ORDER BY held_until LIMIT %(limit)s
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET held_for = NULL, held_until = NULL WHERE id = ANY(ARRAY(SELECT id FROM due)) RETURNING id
""")

_HEADS = Statement(f"""
    WITH RECURSIVE lines AS (
        (SELECT site_id, queue FROM job WHERE held_for = 'site' ORDER BY site_id, queue LIMIT 1)
        UNION ALL
        SELECT next.site_id, next.queue FROM lines CROSS JOIN LATERAL (
            SELECT job.site_id, job.queue FROM job
             WHERE job.held_for = 'site' AND (job.site_id, job.queue) > (lines.site_id, lines.queue)
             ORDER BY job.site_id, job.queue LIMIT 1
        ) AS next
    ), free AS (
        SELECT lines.site_id, lines.queue FROM lines JOIN site ON site.id = lines.site_id AND site.lock_job_id IS NULL
         WHERE {OF_OPEN_TENANTS}
           AND NOT EXISTS (SELECT FROM job AS next WHERE next.site_id = lines.site_id AND next.queue = lines.queue
                              AND next.waiting_since IS NOT NULL AND next.held_for IS NULL
                              AND next.ended_at IS NULL)
         LIMIT %(limit)s
    ), head AS (
        SELECT first.id FROM free CROSS JOIN LATERAL (
            SELECT job.id FROM job
             WHERE job.held_for = 'site' AND job.site_id = free.site_id AND job.queue = free.queue
             ORDER BY job.priority, job.created_at LIMIT 1
        ) AS first
        UNION ALL
        SELECT holder.id FROM lines JOIN site ON site.id = lines.site_id
          JOIN job AS holder ON holder.id = site.lock_job_id AND holder.queue = lines.queue
         WHERE holder.held_for = 'site'
    ), locked AS (
        SELECT id FROM job WHERE id = ANY(ARRAY(SELECT id FROM head)) AND held_for = 'site'
           FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE job SET held_for = NULL, held_until = NULL WHERE id = ANY(ARRAY(SELECT id FROM locked)) RETURNING id
""")
"""The most urgent job, then the oldest, of each free site and queue on which no other job is about to write it.

Lines are found one by one through the index, so the cost grows with busy sites, not with the jobs that wait for them. A
queue without workers delays only its own line. A job that holds its site's lock waits for nobody.
"""


def release_due(session: Session, *, limit: int = RELEASED_AT_ONCE) -> Sequence[UUID]:
    """Release the jobs whose time has come, by the ledger's clock, and return their ids."""
    return _DUE.scalars(session, {"limit": limit})


def release_sites(session: Session, *, limit: int = RELEASED_AT_ONCE) -> Sequence[UUID]:
    """Release the next job of each site that has become free, and return their ids."""
    return _HEADS.scalars(session, {"limit": limit})
