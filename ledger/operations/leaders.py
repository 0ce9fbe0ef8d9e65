"""Which process leads a role: one at a time, by a lease on a row."""

from __future__ import annotations

from sqlalchemy import Connection, func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger.record_tables import Leader
from ledger.store import Statement, now

DISPATCHER = "dispatcher"
"""The role of the process that tops up the dispatch windows."""
CELERY_INTAKE = "celery_intake"
"""The role of the process that reads the messages of Celery clients."""

_LEAD = Statement("""
    INSERT INTO leader (role, holder, until)
    VALUES (%(role)s, %(holder)s, clock_timestamp() + make_interval(secs => CAST(%(seconds)s AS float)))
    ON CONFLICT (role) DO UPDATE SET holder = excluded.holder, until = excluded.until
     WHERE leader.until < clock_timestamp() OR leader.holder = excluded.holder
    RETURNING holder
""")


def lead(session: Session | Connection, role: str, holder: str, *, seconds: float) -> bool:
    """Become or stay the only leader of a role for this many seconds; False while another process leads."""
    values = {"role": role, "holder": holder, "seconds": seconds}
    return bool(_LEAD.scalar(session, values) == holder)


def leaders(session: Session) -> dict[str, str]:
    """Return the current leaders by role."""
    alive = select(col(Leader.role), col(Leader.holder)).where(col(Leader.until) > func.clock_timestamp())
    return {role: holder for role, holder in session.execute(alive)}


def resign(session: Session, role: str, holder: str) -> None:
    """Give up a role on a clean stop, so that another process takes over at once."""
    session.execute(
        sql_update(Leader).where(col(Leader.role) == role, col(Leader.holder) == holder).values(until=now())
    )
