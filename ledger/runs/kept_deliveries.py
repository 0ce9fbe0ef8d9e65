"""Deliveries of trackers that could not be taken in: kept, tried again, and dropped when they are too old."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col, delete, func, select

from ledger import audit
from ledger.runs.tables import KeptDelivery
from ledger.store import OF_OPEN_TENANTS, Statement, after, dump_json

MAX_KEPT = 100
"""Deliveries that are kept of one tenant; further ones are refused."""
MAX_AGE_DAYS = 3
RETRY_SECONDS = 60.0


class SentDelivery(NamedTuple):
    """A verified delivery."""

    tenant: str
    project: str
    tracker: str
    event: str
    """As its header names it; empty for Linear."""
    body: dict[str, Any]


def keep_delivery(session: Session, sent: SentDelivery) -> bool:
    """Keep a delivery, once; returns whether it is kept: one that is already needs no room."""
    text = dump_json(sent.body)
    digest = hashlib.sha256("\n".join((*sent[:4], text)).encode()).hexdigest()
    one_by_one = func.pg_advisory_xact_lock(func.hashtextextended(f"kept/{sent.tenant}", 0))
    session.execute(select(one_by_one))
    if session.get(KeptDelivery, digest):
        return True
    own = select(func.count()).where(col(KeptDelivery.tenant) == sent.tenant)
    if (session.scalar(own) or 0) >= MAX_KEPT:
        return False
    values = sent._asdict() | {"digest": digest, "body": text, "next_at": after(RETRY_SECONDS)}
    session.execute(insert(KeptDelivery).values(**values))
    return True


_HAS_DUE = Statement("SELECT EXISTS (SELECT FROM kept_delivery WHERE next_at <= (SELECT clock_timestamp()))")
_CLAIM = Statement(f"""
    UPDATE kept_delivery SET next_at = clock_timestamp() + interval '{RETRY_SECONDS} seconds'
     WHERE digest = (SELECT digest FROM kept_delivery
                      WHERE next_at <= (SELECT clock_timestamp()) AND {OF_OPEN_TENANTS}
                      ORDER BY received_at LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING digest, tenant, project, tracker, event, body,
              received_at < clock_timestamp() - interval '{MAX_AGE_DAYS} days' AS is_old
""")
_POSTPONE = Statement(f"""
    UPDATE kept_delivery SET next_at = clock_timestamp() + interval '{RETRY_SECONDS} seconds' WHERE tenant = %(tenant)s
""")


class ClaimedDelivery(NamedTuple):
    """A kept delivery, which nobody else tries for a minute."""

    digest: str
    tenant: str
    project: str
    tracker: str
    event: str
    body: str
    is_old: bool
    """Whether this is its last try."""


def has_due_delivery(connection: Connection) -> bool:
    """Whether one is due."""
    return bool(_HAS_DUE.scalar(connection))


def claim_delivery(session: Session) -> ClaimedDelivery | None:
    """Claim the oldest one that is due; those of tenants that are closed here wait."""
    return next((ClaimedDelivery(*row) for row in _CLAIM.all(session)), None)


def kept_deliveries(session: Session, tenant: str, project: str, tracker: str) -> list[ClaimedDelivery]:
    """Return what is kept of one project's tracker."""
    kept = KeptDelivery
    own = (col(kept.tenant) == tenant, col(kept.project) == project, col(kept.tracker) == tracker)
    return [
        ClaimedDelivery(each.digest, tenant, project, tracker, each.event, each.body, is_old=False)
        for each in session.exec(select(kept).where(*own))
    ]


def postpone_deliveries(session: Session, tenant: str) -> None:
    """Try none of a tenant's for a minute: there is no room for any."""
    _POSTPONE.all(session, {"tenant": tenant})


def forget_delivery(session: Session, kept: ClaimedDelivery, *, dropped: str = "") -> None:
    """Remove one that was taken in, or that never will be, for a reason that stays in the audit trail."""
    session.execute(delete(KeptDelivery).where(col(KeptDelivery.digest) == kept.digest))
    if dropped:
        actor = f"{kept.tracker}:{kept.tenant}/{kept.project}"
        audit.append(session, "delivery_dropped", actor=actor, tenant=kept.tenant, why=dropped, digest=kept.digest)
