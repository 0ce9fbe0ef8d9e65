"""The partitions of `event`: made before they are needed and dropped whole, so that no event is deleted by itself.

A partition holds a range of ids that no fleet fills. The sequence steps to the first id of the next one only after that
is attached: an insert always finds its place, and while no dispatcher leads, the current partition goes on. By id, not
by time: the streams' positions and an old event's way to its row stay what they were, and a stream that has come far
looks at the newest partition alone.

Nothing here waits in line before writers for longer than `LOCK_MS`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError
from sqlmodel import Session

from ledger.store import AdvisoryLock, Ledger, Statement

logger = logging.getLogger(__name__)

SPAN = 2**36
"""Ids of a partition: what 9,000 events a second draw in 88 days. JavaScript has exact numbers for 131,072 of them."""
SHARE = 4
"""A partition takes as many events as one part in so many of the time for which they are kept."""
LEAST_SECONDS = 3_600.0
"""The least time for which a partition takes events."""
LOCK_MS = 100
"""How long writers may stand in line behind a change; one that gets no lock in that time is tried in the next pass."""
_NAME = re.compile(r"event_(\d+)(_open)?")


class Partition(NamedTuple):
    """A partition, and what decides about it."""

    name: str
    number: int
    """Its ids begin at `number * SPAN`."""
    is_rest: bool
    """Whether it has only what unfinished jobs had in a partition that is gone."""
    oldest_seconds: float | None
    """Age of its first event; None without one."""
    newest_seconds: float | None
    """Age of the event of its last transaction: in a restored ledger, which has one for all events, of any of them."""
    is_folded: bool
    """Whether all its events are in the metrics."""


def is_over(current: Partition, *, used: int, seconds: float) -> bool:
    """Whether it is time for the next partition.

    Args:
        current: the one that takes events.
        used: ids that it has given.
        seconds: for how long it takes events.
    """
    is_old = current.oldest_seconds is not None and current.oldest_seconds >= seconds
    return is_old or used > SPAN // 2


def expired(partitions: Iterable[Partition], *, current: int, seconds: float) -> list[Partition]:
    """Return the partitions of which every event has been kept for long enough."""
    return [
        each
        for each in partitions
        if each.number < current and each.is_folded and (each.newest_seconds is None or each.newest_seconds >= seconds)
    ]


_NAMES = Statement("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'event'::regclass")
_OWNS = Statement("SELECT pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = 'event'::regclass")
_LAST = Statement("SELECT last_value FROM event_id_seq")
_ALONE = Statement(f"""
    SELECT set_config('lock_timeout', '{LOCK_MS}ms', true), pg_advisory_xact_lock({AdvisoryLock.PARTITIONS})
""")


def _look(session: Session, *, mark: int) -> list[Partition]:
    """Return the attached partitions in order."""
    found = []
    for name in _NAMES.scalars(session):
        if (read := _NAME.fullmatch(name)) is None:
            continue  # attached by hand
        facts = Statement(f"""
            SELECT CAST(extract(epoch FROM now - first.at) AS float8) AS oldest,
                   CAST(extract(epoch FROM now - last.at) AS float8) AS newest,
                   coalesce(last.xid < %(mark)s, true) AS is_folded
              FROM clock_timestamp() AS now
              LEFT JOIN (SELECT at FROM {name} ORDER BY xid LIMIT 1) AS first ON true
              LEFT JOIN (SELECT at, xid FROM {name} ORDER BY xid DESC LIMIT 1) AS last ON true
        """).one(session, {"mark": mark})
        found.append(Partition(name, int(read[1]), read[2] is not None, *facts))
    return sorted(found, key=lambda each: each.number)


def tend(ledger: Ledger, *, keep_seconds: float, mark: int, least_seconds: float = LEAST_SECONDS) -> int:
    """Begin the next partition if it is time, drop those that have expired, and return how many went.

    Args:
        ledger: the ledger.
        keep_seconds: for how long events are kept. They go up to a part in `SHARE` of it later, with their partition.
        mark: the transaction number below which every event is in the metrics.
        least_seconds: the least time for which a partition takes events.
    """
    try:
        with ledger.begin() as session:
            _ALONE.all(session)
            partitions = _look(session, mark=mark)
            number, used = divmod(_LAST.scalar(session), SPAN)
            seconds = max(keep_seconds / SHARE, least_seconds)
            is_late = any(each.number == number and is_over(each, used=used, seconds=seconds) for each in partitions)
            _provide(session, number + is_late)
        if is_late:
            _begin(ledger, number + 1)
        old = expired(partitions, current=number + is_late, seconds=keep_seconds)
        return _drop_all(ledger, old, keep_seconds=keep_seconds, mark=mark)
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        logger.info("partitions_left_for_next_pass")
        return 0


def may_tend(where: Session | Connection) -> bool:
    """Whether the role of a connection may make and drop partitions: as the owner of the table, or its member."""
    return bool(_OWNS.scalar(where))


def mend(session: Session) -> None:
    """Give a restored ledger the partition of its next event: a dump reads the sequence later than the tables."""
    _provide(session, _LAST.scalar(session) // SPAN)


def last_number(session: Session) -> int:
    """Return the number that the newest event drew."""
    return int(_LAST.scalar(session))


def pass_by(ledger: Ledger, last: int) -> None:
    """Let the next event have a number above `last`, of another ledger, whose events come here.

    Raises:
        OperationalError: LockNotAvailable: nobody's fault: writers or another process were faster; try again.
    """
    with ledger.begin() as session:
        _ALONE.all(session)
        _provide(session, (last + 1) // SPAN)
    _step(ledger, last + 1)


def _provide(session: Session, number: int) -> None:
    """Make a partition, unless it is there."""
    name = f"event_{number}"
    if name not in _NAMES.scalars(session):
        _create(session, name)
        _attach(session, name, number)


def _create(session: Session, name: str) -> None:
    """Make a table like `event`, whose rows a vacuum freezes at once: they are never written again, nor read for it."""
    Statement(f"""
        CREATE TABLE {name} (LIKE event INCLUDING DEFAULTS INCLUDING INDEXES) WITH (autovacuum_freeze_min_age = 0)
    """).all(session)


def _attach(session: Session, name: str, number: int) -> None:
    """Make a table a partition. It locks `event` against other changes of tables alone: writers go on."""
    first = number * SPAN
    Statement(f"ALTER TABLE event ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({first + SPAN})").all(session)


def _begin(ledger: Ledger, number: int) -> None:
    _step(ledger, number * SPAN)
    logger.info("partition_begun", extra={"partition": f"event_{number}"})


def _step(ledger: Ledger, first: int) -> None:
    """Let the sequence go on at an id of a partition that others see by now. A step of it is never taken back.

    The lock waits for the writers that opened the table before: a statement finds only partitions that were there then,
    but draws its ids as it goes.
    """
    with ledger.begin() as session:
        _ALONE.all(session)
        Statement("LOCK TABLE ONLY event IN SHARE MODE").all(session)
        Statement("SELECT setval('event_id_seq', %(first)s, false) FROM event_id_seq WHERE last_value < %(first)s").all(
            session, {"first": first}
        )


def _drop_all(ledger: Ledger, partitions: Sequence[Partition], *, keep_seconds: float, mark: int) -> int:
    gone = 0
    for each in partitions:
        with ledger.begin() as session:
            _ALONE.all(session)
            if each.name in _NAMES.scalars(session) and _drop(session, each, keep_seconds=keep_seconds, mark=mark):
                gone += 1
                logger.info("partition_dropped", extra={"partition": each.name})
    return gone


def _drop(session: Session, old: Partition, *, keep_seconds: float, mark: int) -> bool:
    """Drop a partition, unless it has to stay. What unfinished jobs have in it goes on in a small one in its place."""
    newest, is_young = Statement(f"""
        SELECT max(at), max(at) > clock_timestamp() - make_interval(secs => %(keep_seconds)s) FROM {old.name}
    """).one(session, {"keep_seconds": keep_seconds})
    if is_young:
        return False
    unfinished = f"""
        SELECT happened.* FROM (
            SELECT id FROM job
             WHERE ended_at IS NULL AND created_at < CAST(%(newest)s AS timestamptz) + interval '1 day' OFFSET 0
        ) AS unfinished
         CROSS JOIN LATERAL (SELECT * FROM {old.name} WHERE job_id = unfinished.id OFFSET 0) AS happened
    """
    """By the index on jobs: OFFSET 0 keeps the planner from reading the partition from end to end. A job that was
    accepted later has nothing in it."""
    has_unfinished = Statement(f"SELECT EXISTS ({unfinished})").scalar(session, {"newest": newest})
    if has_unfinished and old.is_rest:
        return False  # until the last of them has ended
    rest = f"event_{old.number}_open"
    if has_unfinished:
        _create(session, rest)
        Statement(f"INSERT INTO {rest} {unfinished}").all(session, {"newest": newest})
    Statement("LOCK TABLE ONLY event IN ACCESS EXCLUSIVE MODE").all(session)
    if Statement(f"SELECT max(xid) >= %(mark)s FROM {old.name}").scalar(session, {"mark": mark}):
        session.rollback()  # a writer that hung since then
        return False
    Statement(f"ALTER TABLE event DETACH PARTITION {old.name}").all(session)
    Statement(f"DROP TABLE {old.name}").all(session)
    if has_unfinished:
        _attach(session, rest, old.number)
    return True
