"""When a number of a table's sequence is final: every row at or below it is there, and none can appear any more.

A row's number is drawn before its transaction commits, so rows can appear in another order than that of their numbers.
Whoever reads on from the last number it has seen would miss a row that appears below it.
"""

from __future__ import annotations

import time
from typing import Literal

from sqlalchemy import text
from sqlmodel import Session

PATIENCE_SECONDS = 0.25
_POLL_SECONDS = 0.01
_WRITERS = text("""
    SELECT virtualtransaction FROM pg_locks
     WHERE locktype = 'relation' AND relation = CAST(:table AS regclass) AND mode = 'RowExclusiveLock' AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND pid IS DISTINCT FROM pg_backend_pid()
""")


def outlive_writers(
    session: Session, table: Literal["audit", "event"], *, patience_seconds: float = PATIENCE_SECONDS
) -> bool:  # fmt: skip
    """Wait until all who write a table at this moment are gone, and tell whether they are: False when patience ran out.

    An INSERT locks the table before it draws its number, and keeps the lock until its transaction ends. So after this,
    no row can appear at or below a number that was known before it; those that are there have to be read after it.

    Args:
        session: the caller's transaction, at the default isolation level.
        table: which.
        patience_seconds: how long to wait.
    """
    writers = _writers(session, table)
    give_up_at = time.monotonic() + patience_seconds
    while writers:
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_POLL_SECONDS)
        writers &= _writers(session, table)
    return True


def _writers(session: Session, table: str) -> set[str]:
    return set(session.scalars(_WRITERS, {"table": table}))
