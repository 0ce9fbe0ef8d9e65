"""The registry of workers: which queues each one serves, with how many slots, and how many of them are busy.

Each worker reports itself, by the ledger's clock; one that stops cleanly signs off, any other falls silent. No job
depends on this: recovery goes by leases, so a worker that cannot reach the ledger works on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import delete
from sqlmodel import Session, col

from ledger.record_tables import Worker
from ledger.store import Statement, after, dump_json

BEAT_SECONDS = 10.0
"""Interval of the heartbeats."""
LOST_SECONDS = 35.0
"""Silence after which a worker counts as lost: three missed heartbeats."""
SWEPT_SECONDS = 900.0
"""Silence after which a worker is removed; until then operators see that it was lost."""
MOST_WORKERS = 1000
"""The most workers that a list names."""

Standing = Literal["serving", "draining", "lost"]


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """A worker's heartbeat."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    """Jobs that it works on at once, over all its queues."""


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """One worker as the fleet sees it."""

    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    busy: int
    """Attempts that it holds now."""
    standing: Standing
    started_at: datetime
    silent_seconds: float
    """Since its last heartbeat."""


@dataclass(frozen=True, kw_only=True)
class QueueSlots:
    """The workers of a queue. Slots that serve several queues count on each of them."""

    queue: str
    workers: int
    slots: int
    busy: int
    """Taken slots of these workers, by jobs of any queue: when all are taken the queue waits."""


@dataclass(frozen=True, kw_only=True)
class FleetSlots:
    """All workers together, each slot counted once."""

    serving: int
    draining: int
    lost: int
    slots: int
    busy: int


_BEAT = Statement("""
    INSERT INTO worker (id, host, pid, queues, slots, is_draining)
    VALUES (%(id)s, %(host)s, %(pid)s, CAST(%(queues)s AS jsonb), %(slots)s, %(is_draining)s)
    ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, queues = excluded.queues,
                                   slots = excluded.slots, is_draining = excluded.is_draining,
                                   seen_at = clock_timestamp()
""")
_REMOVE = Statement("DELETE FROM worker WHERE id = %(id)s")


def record_heartbeat(
    session: Session, sign: WorkerStatus, *, is_first: bool = False, is_draining: bool = False
) -> None:
    """Record a worker's heartbeat.

    On the first one, a row under the same name is from a dead worker whose pid was reused.
    """
    if is_first:
        remove_worker(session, sign.id)
    values = {**vars(sign), "queues": dump_json(sign.queues), "is_draining": is_draining}
    _BEAT.all(session, values)


def remove_worker(session: Session, worker: str) -> None:
    """Remove a worker that stopped cleanly."""
    _REMOVE.all(session, {"id": worker})


def sweep_workers(session: Session) -> int:
    """Remove workers that were silent for `SWEPT_SECONDS`, and return how many."""
    swept = session.execute(delete(Worker).where(col(Worker.seen_at) < after(-SWEPT_SECONDS)))
    count: int = swept.rowcount  # type: ignore[attr-defined]
    return count


_SEEN = """
    held AS (
        SELECT worker AS id, count(*) AS busy FROM attempt
         WHERE ended_at IS NULL AND lost_cause IS NULL AND lease_until > (SELECT clock_timestamp()) GROUP BY worker
    ), seen AS (
        SELECT worker.*, coalesce(held.busy, 0) AS busy,
               greatest(0, extract(epoch FROM (SELECT clock_timestamp()) - seen_at))::float AS silent,
               CASE WHEN seen_at < (SELECT clock_timestamp()) - make_interval(secs => %(lost)s) THEN 'lost'
                    WHEN is_draining THEN 'draining' ELSE 'serving' END AS standing
          FROM worker LEFT JOIN held USING (id)
    )
"""
"""Live attempts are found through the index of leases, so the cost grows with the slots, not with the backlog."""

_WORKERS = Statement(f"""
    WITH {_SEEN} SELECT id, host, pid, queues, slots, busy, standing, started_at,
           round(silent::numeric, 3)::float AS silent_seconds
      FROM seen
     ORDER BY standing DESC, id LIMIT %(limit)s
""")

_QUEUES = Statement(f"""
    WITH {_SEEN} SELECT queue, count(*) AS workers, coalesce(sum(slots), 0)::bigint AS slots,
                        coalesce(sum(busy), 0)::bigint AS busy
      FROM seen CROSS JOIN LATERAL jsonb_array_elements_text(queues) AS served (queue)
     WHERE standing = 'serving' GROUP BY queue ORDER BY queue
""")

_FLEET = Statement(f"""
    WITH {_SEEN} SELECT count(*) FILTER (WHERE standing = 'serving') AS serving,
                        count(*) FILTER (WHERE standing = 'draining') AS draining,
                        count(*) FILTER (WHERE standing = 'lost') AS lost,
                        coalesce(sum(slots) FILTER (WHERE standing = 'serving'), 0)::bigint AS slots,
                        coalesce(sum(busy) FILTER (WHERE standing = 'serving'), 0)::bigint AS busy
      FROM seen
""")


def list_workers(session: Session, *, limit: int = MOST_WORKERS) -> Sequence[WorkerView]:
    """Return the registered workers, serving ones first."""
    rows = _WORKERS.all(session, {"lost": LOST_SECONDS, "limit": limit})
    return [WorkerView(**row._asdict() | {"queues": tuple(row.queues)}) for row in rows]


def slots_by_queue(session: Session) -> Sequence[QueueSlots]:
    """Return the slots of each served queue. A draining worker serves none."""
    return [QueueSlots(**row._asdict()) for row in _QUEUES.all(session, {"lost": LOST_SECONDS})]


def fleet_slots(session: Session) -> FleetSlots:
    """Return how many workers there are, and their slots."""
    return FleetSlots(**_FLEET.one(session, {"lost": LOST_SECONDS})._asdict())
