"""Fold the ledger's events into stored series, each event exactly once, whatever dies or commits late.

Ids are drawn before a transaction commits, so a later id can become visible before an earlier one. So the mark is
a transaction number: a fold reads the events of transactions from the mark up to the oldest one that still runs, and
adds the increments and moves the mark in one transaction. A SIGKILL in between changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.errors import ForeignMarkError
from monitoring.fold import fold
from monitoring.ledger.record_tables import Event, Rollup, RollupMark
from monitoring.ledger.sql import Statement
from monitoring.ledger.store import Ledger
from monitoring.metrics import SeriesKey

BATCH_EVENTS = 5_000
"""Events that one transaction folds, give or take the rest of its last writer."""
_LOCK_KEY = 7_041_777
"""PostgreSQL advisory lock: one fold at a time."""


class FoldStep(NamedTuple):
    """What one transaction of the fold did."""

    events: int
    is_done: bool
    """False when there was more to read than one batch."""


def fold_pending(ledger: Ledger, *, batch: int = BATCH_EVENTS) -> int:
    """Fold everything that no running transaction can still precede, and return how many events that was.

    Does nothing while another process folds.

    Raises:
        ForeignMarkError: the operator's fault: the ledger was copied from another cluster without `rebase`.
    """
    total = 0
    while True:
        with ledger.begin() as session:
            step = fold_step(session, batch=batch)
        total += step.events
        if step.is_done:
            return total


_TRY_LOCK = Statement("SELECT pg_try_advisory_xact_lock(%(key)s)")
_LOCK = Statement("SELECT pg_advisory_xact_lock(%(key)s)")
_HORIZON = Statement("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
_LAG = Statement("""
    SELECT extract(epoch FROM clock_timestamp() - at) FROM event
     WHERE xid >= coalesce((SELECT xid FROM rollup_mark WHERE id = 1), 0) ORDER BY xid LIMIT 1
""")


def fold_step(session: Session, *, batch: int = BATCH_EVENTS) -> FoldStep:
    """Fold one batch in the caller's transaction.

    Raises:
        ForeignMarkError: the operator's fault: the ledger was copied from another cluster without `rebase`.
    """
    if not _TRY_LOCK.scalar(session, {"key": _LOCK_KEY}):
        return FoldStep(0, is_done=True)
    mark = session.scalar(select(col(RollupMark.xid)).where(col(RollupMark.id) == 1)) or 0
    horizon = _HORIZON.scalar(session) or 0
    if horizon < mark:
        raise ForeignMarkError(mark, horizon)
    until = _end_of_batch(session, mark, horizon, batch=batch)
    events = session.execute(
        select(col(Event.kind), col(Event.data))
        .where(col(Event.xid) >= mark, col(Event.xid) < until)
        .order_by(col(Event.id))
    ).all()
    _add(session, fold(events))
    _move_mark(session, until)
    return FoldStep(len(events), is_done=until == horizon)


def rebase(session: Session) -> int:
    """Make a ledger that was restored into another cluster foldable: its transaction numbers mean nothing there.

    To be called after a logical restore, before anything writes: it folds what was not folded yet, and marks every
    event as folded. Returns how many events it folded.
    """
    _LOCK.all(session, {"key": _LOCK_KEY})
    mark = session.scalar(select(col(RollupMark.xid)).where(col(RollupMark.id) == 1)) or 0
    events = session.execute(select(col(Event.kind), col(Event.data)).where(col(Event.xid) >= mark)).all()
    _add(session, fold(events))
    session.execute(sql_update(Event).values(xid=0))
    _move_mark(session, 1)
    return len(events)


def read_series(session: Session) -> dict[SeriesKey, float]:
    """Return every stored series, in stored units."""
    rows = session.execute(select(col(Rollup.name), col(Rollup.labels), col(Rollup.value)))
    return {SeriesKey(name, labels): value for name, labels, value in rows}


def lag_seconds(session: Session) -> float:
    """Return the age of the oldest event that is not folded yet; 0 when all are."""
    return float(_LAG.scalar(session) or 0)


def _end_of_batch(session: Session, mark: int, horizon: int, *, batch: int) -> int:
    """Return the transaction number that a batch ends before: it never splits a transaction."""
    last = session.scalar(
        select(col(Event.xid))
        .where(col(Event.xid) >= mark, col(Event.xid) < horizon)
        .order_by(col(Event.xid))
        .offset(batch - 1)
        .limit(1)
    )
    return horizon if last is None else last + 1


def _add(session: Session, increments: dict[SeriesKey, float]) -> None:
    if not increments:
        return
    rows = [
        {"name": key.name, "labels": key.labels, "value": increment} for key, increment in sorted(increments.items())
    ]
    new = insert(Rollup).values(rows)
    session.execute(
        new.on_conflict_do_update(
            index_elements=["name", "labels"], set_={"value": col(Rollup.value) + new.excluded.value}
        )
    )


def _move_mark(session: Session, xid: int) -> None:
    session.execute(
        insert(RollupMark)
        .values(id=1, xid=xid)
        .on_conflict_do_update(index_elements=["id"], set_={"xid": xid})
    )  # fmt: skip
