"""What the ledger's own server is busy with: its connections, and who waits for whom.

Sessions of other database roles show little more than their pid, unless this one has `pg_read_all_stats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection
from sqlmodel import Session

from ledger.store import SESSION, Statement

_CONNECTIONS = Statement("""
    SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
           current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int AS most
""")
_OLDEST = Statement("""
    SELECT pid, coalesce(nullif(application_name, ''), usename, '?') AS program, coalesce(state, '?') AS state,
           extract(epoch FROM clock_timestamp() - xact_start)::float AS seconds
      FROM pg_stat_activity
     WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
     ORDER BY xact_start LIMIT 1
""")
_BLOCKERS = Statement("""
    SELECT blocker.pid, coalesce(nullif(blocker.application_name, ''), blocker.usename, '?') AS program,
           coalesce(blocker.state, '?') AS state, count(DISTINCT lock.pid) AS waiting,
           max(coalesce(extract(epoch FROM clock_timestamp() - lock.waitstart), 0))::float AS seconds
      FROM pg_locks AS lock
      JOIN pg_stat_activity AS waiter ON waiter.pid = lock.pid AND waiter.datname = current_database()
     CROSS JOIN LATERAL unnest(pg_blocking_pids(lock.pid)) AS by (pid)
      JOIN pg_stat_activity AS blocker ON blocker.pid = by.pid
     WHERE NOT lock.granted
     GROUP BY 1, 2, 3 ORDER BY seconds DESC
""")


class Connections(NamedTuple):
    """The server's connections, of all its databases."""

    used: int
    most: int
    """How many everybody but a superuser can have."""


class Transaction(NamedTuple):
    """An open transaction."""

    pid: int
    program: str
    state: str
    seconds: float
    """For which it has been open."""


class Blocker(NamedTuple):
    """A session for whose locks others wait."""

    pid: int
    program: str
    state: str
    waiting: int
    seconds: float
    """The longest wait."""


def read_session(connection: Connection) -> dict[str, str]:
    """Return what of `ledger.store.SESSION` holds on a connection, as `SHOW` gives it."""
    return {name: str(connection.exec_driver_sql(f"SHOW {name}").scalar()) for name in SESSION}


def read_connections(where: Session | Connection) -> Connections:
    """Return how many connections there are, and how many there can be."""
    return Connections(*_CONNECTIONS.one(where))


def oldest_transaction(where: Session | Connection) -> Transaction | None:
    """Return the oldest open transaction but this one."""
    row = _OLDEST.one(where)
    return None if row is None else Transaction(*row)


def read_blockers(where: Session | Connection) -> Sequence[Blocker]:
    """Return the sessions that others wait for, the longest wait first."""
    return [Blocker(*row) for row in _BLOCKERS.all(where)]
