"""Make a restored past go on: nobody works on it any more, and what came after it is not known to it.

Run once, after a ledger was read back and before anything else works on it. Whoever still holds a job of the time that
was lost (a worker that nobody stopped) is fenced off: the fence of every unfinished job jumps over all that it had.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import delete as sql_delete
from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.event_metrics import rebase
from monitoring.ledger import audit
from monitoring.ledger.attempts import recover
from monitoring.ledger.money import presume_lost_calls
from monitoring.ledger.record_tables import Leader, Notification
from monitoring.ledger.sql import after
from monitoring.ledger.tables import Attempt, Call, Job, Site
from routing.jobs import Reason

FENCE_JUMP = 1_000_000
"""More claims than any job can have had since the backup was made."""
_BATCH = 500


class Repaired(NamedTuple):
    """What a restored ledger had to be told."""

    attempts: int
    """Lost with the workers that they ran on."""
    calls: int
    """Model calls whose end nobody knows: charged in full."""
    unpushed: int
    """Jobs whose message has to be sent again."""
    withheld: int
    """Notifications that were not sent when the backup was made, and may have been since: they are not sent again."""
    folded: int
    """Events that the metrics had not counted yet."""


def repair(session: Session, *, resend: bool = False, **facts: Any) -> Repaired:
    """Repair a restored ledger, in the caller's transaction, and put on record that it was restored.

    Args:
        session: the caller's transaction; nothing else may use the ledger.
        resend: send the notifications that were due, although their receivers may have them.
        facts: for the audit trail: which backup it was.
    """
    folded = rebase(session)
    session.execute(sql_delete(Leader))
    calls = _presume_open_calls(session)
    attempts = _recover_attempts(session)
    unpushed = session.execute(sql_update(Job).where(col(Job.pushed_at).is_not(None)).values(pushed_at=None))
    session.execute(sql_update(Job).where(col(Job.ended_at).is_(None)).values(fence=col(Job.fence) + FENCE_JUMP))
    session.execute(sql_update(Site).values(shown_release_id=None))
    withheld = 0 if resend else _withhold(session)
    done = Repaired(attempts, calls, int(unpushed.rowcount), withheld, folded)  # type: ignore[attr-defined]
    audit.append(session, "restored", actor="operator", **facts, **done._asdict())
    return done


def _presume_open_calls(session: Session) -> int:
    session.execute(sql_update(Call).where(col(Call.state) == "reserved").values(lease_until=after(-1)))
    total = 0
    while done := presume_lost_calls(session, limit=_BATCH):
        total += done
    return total


def _recover_attempts(session: Session) -> int:
    """Let every job that was worked on wait again: its worker was stopped with the ledger, and no crash is counted."""
    live = col(Attempt.ended_at).is_(None)
    values = {"lease_until": after(-1), "lost_cause": Reason.WORKER_STOPPED.value}
    session.execute(sql_update(Attempt).where(live).values(**values))
    attempts = session.scalars(select(Attempt).where(live).order_by(col(Attempt.job_id))).all()
    for attempt in attempts:
        recover(session, attempt, max_lost=1)
    return len(attempts)


def _withhold(session: Session) -> int:
    due = col(Notification.delivered_at).is_(None) & col(Notification.next_at).is_not(None)
    held = session.execute(sql_update(Notification).where(due).values(next_at=None))
    return int(held.rowcount)  # type: ignore[attr-defined]


def counts(session: Session) -> dict[str, int]:
    """Return how much a ledger holds of what people ask about."""
    tables = {"sites": Site, "jobs": Job, "attempts": Attempt, "calls": Call}
    return {name: int(session.scalar(select(func.count()).select_from(table)) or 0) for name, table in tables.items()}
