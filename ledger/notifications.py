"""Claim, record and replay the notification that the end of a job owes its owner.

A replay has the same id and body, so a receiver that remembers ids does nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, select, tuple_
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import NotReplayableError
from ledger.jobs import find_job, lock_job
from ledger.record_tables import Delivery, Notification
from ledger.store import Statement, after, dump_json, now
from ledger.tables import Job

MAX_REPLAYS = 100
"""The most replays of one notification: a client that wants more is looping."""
_SHOWN_DELIVERIES = 50
_CLAIM_SECONDS = 60
_LONGEST_DETAIL = 200
_LOOKED_AT = 1_000
_CLAIM = Statement(f"""
    WITH RECURSIVE owner (tenant) AS (
        (SELECT tenant FROM notification WHERE next_at IS NOT NULL ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT tenant FROM notification WHERE next_at IS NOT NULL AND tenant > owner.tenant
                 ORDER BY tenant LIMIT 1)
          FROM owner WHERE owner.tenant IS NOT NULL
    ), busy AS (
        SELECT tenant, coalesce(CAST(CAST(%(in_flight)s AS jsonb) ->> tenant AS int), 0) AS tries FROM owner
    ), oldest AS (
        SELECT due.job_id, row_number() OVER (PARTITION BY busy.tenant ORDER BY due.next_at) + busy.tries AS turn
          FROM busy CROSS JOIN LATERAL (
               SELECT job_id, next_at FROM notification
                WHERE tenant = busy.tenant AND next_at <= (SELECT clock_timestamp())
                ORDER BY next_at LIMIT greatest(%(per_tenant)s - busy.tries, 0)
          ) AS due
    ), claimed AS (
        SELECT job_id FROM notification
         WHERE job_id = ANY (ARRAY(SELECT job_id FROM oldest ORDER BY turn LIMIT %(room)s))
           AND next_at <= (SELECT clock_timestamp())
           FOR UPDATE SKIP LOCKED
    )
    UPDATE notification SET attempts = attempts + 1, next_at = clock_timestamp() + interval '{_CLAIM_SECONDS} seconds'
      FROM claimed JOIN job ON job.id = claimed.job_id
     WHERE notification.job_id = claimed.job_id
    RETURNING notification.job_id, job.tenant, coalesce(callback_url, '') AS callback_url,
              coalesce(split_part(callback_url, '/', 3), '') AS destination, payload, attempts AS number,
              clock_timestamp() AS claimed_at
""")
"""Reads one index entry for each tenant with open notifications, and no more of a backlog than it may claim."""

Wanted = Literal["undelivered", "pending"]


class Due(NamedTuple):
    """A claimed notification, to be sent now."""

    job_id: UUID
    tenant: str
    callback_url: str
    destination: str
    """Host and port of the URL."""
    payload: dict[str, object]
    number: int
    """The number of this try since the last replay, from 1."""
    claimed_at: datetime
    """By the ledger's clock, which its signature bears: a host's own may be wrong."""


class NotificationState(NamedTuple):
    """A notification and its newest deliveries, oldest first."""

    notification: Notification | None
    """None while its job has not ended, and for a step of a run."""
    deliveries: Sequence[Delivery]


class NotificationMark(NamedTuple):
    """Where a page of notifications ended."""

    created_at: datetime
    job_id: UUID


_HAS_DUE = Statement("SELECT EXISTS (SELECT FROM notification WHERE next_at <= (SELECT clock_timestamp()))")


def has_due_notification(connection: Connection) -> bool:
    """Whether a notification is due."""
    return bool(_HAS_DUE.scalar(connection))


def claim_due_notifications(
    session: Session, room: int, *, per_tenant: int, in_flight: Mapping[str, int] = MappingProxyType({})
) -> list[Due]:
    """Claim due notifications, tenants in turn, so that no other sender takes them within a minute.

    Args:
        session: the caller's transaction.
        room: the most to claim.
        per_tenant: the most that one tenant may have in flight.
        in_flight: what each tenant has in flight; those with less have their turn first.
    """
    values = {"room": room, "per_tenant": per_tenant, "in_flight": dump_json(dict(in_flight))}
    return [Due(*row) for row in _CLAIM.all(session, values)]


def postpone(session: Session, due: Due, *, seconds: float) -> None:
    """Put a claimed notification back untried."""
    own = (col(Notification.job_id) == due.job_id, col(Notification.attempts) == due.number)
    values = {"attempts": due.number - 1, "next_at": after(seconds)}
    session.execute(sql_update(Notification).where(*own).values(**values))


def book(session: Session, due: Due, delivery: Delivery, *, again_in: float | None) -> None:
    """Record one delivery, and schedule the next try.

    `again_in` is the wait in seconds; None when this was the last try.
    """
    delivery.detail = delivery.detail[:_LONGEST_DETAIL]
    session.add(delivery)
    own = col(Notification.job_id) == due.job_id
    if delivery.outcome == "delivered":
        values = {"delivered_at": now(), "next_at": None}
    else:  # a sender that was away for long must not overrule another one
        own &= col(Notification.attempts) == due.number
        values = {"next_at": None if again_in is None else after(again_in)}
    session.execute(sql_update(Notification).where(own).values(**values))


_UNDELIVERED = Statement("""
    SELECT (SELECT count(*) FROM (SELECT created_at FROM notification WHERE delivered_at IS NULL AND next_at IS NOT NULL
                                   ORDER BY next_at LIMIT %(most)s) AS pending
             WHERE created_at < clock_timestamp() - interval '1 minute') AS waiting,
           (SELECT count(*) FROM (SELECT job_id, number, at FROM delivery ORDER BY id DESC LIMIT %(most)s) AS newest
              JOIN notification USING (job_id)
             WHERE delivered_at IS NULL AND next_at IS NULL AND number = attempts
               AND at > clock_timestamp() - interval '1 day') AS given_up
""")


class Undelivered(NamedTuple):
    """How many notifications have not arrived; counted among the newest and next tries, at a bounded cost."""

    waiting: int
    """For over a minute: not tried yet, or to be tried again."""
    given_up: int
    """Within the last day."""


def count_undelivered(session: Session) -> Undelivered:
    """Count the notifications of all tenants that have not arrived."""
    return Undelivered(*_UNDELIVERED.one(session, {"most": _LOOKED_AT}))


def find_notification(session: Session, job_id: UUID, *, tenant: str) -> NotificationState:
    """Return a job's notification.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    find_job(session, job_id, tenant=tenant)
    notification = session.get(Notification, job_id)
    query = select(Delivery).where(col(Delivery.job_id) == job_id).order_by(col(Delivery.id).desc())
    return NotificationState(notification, session.scalars(query.limit(_SHOWN_DELIVERIES)).all()[::-1])


def not_delivered(
    session: Session, tenant: str, *, wanted: Wanted, after: NotificationMark | None = None, limit: int = 50
) -> Sequence[Notification]:
    """Return a tenant's undelivered notifications, newest first: given up, or still being tried."""
    query = (
        select(Notification)
        .join(Job, col(Job.id) == col(Notification.job_id))
        .where(col(Job.tenant) == tenant, col(Notification.delivered_at).is_(None))
        .where(col(Notification.callback_url).is_not(None))
    )
    due = col(Notification.next_at)
    query = query.where(due.is_(None) if wanted == "undelivered" else due.is_not(None))
    place = tuple_(col(Notification.created_at), col(Notification.job_id))
    if after is not None:
        query = query.where(place < tuple_(after.created_at, after.job_id))
    newest_first = (col(Notification.created_at).desc(), col(Notification.job_id).desc())
    return session.scalars(query.order_by(*newest_first).limit(limit)).all()


def replay(session: Session, job_id: UUID, *, tenant: str, actor: str) -> None:
    """Send a job's notification again, now, with a full round of tries.

    Raises:
        JobNotFoundError: the caller's fault.
        NotReplayableError: the caller's fault; nothing changed.
    """
    job = lock_job(session, job_id, tenant=tenant)
    notification = session.get(Notification, job_id, with_for_update=True)
    if notification is None:
        raise NotReplayableError(job_id, "not_ended")
    if notification.callback_url is None:
        raise NotReplayableError(job_id, "no_callback")
    if notification.replays >= MAX_REPLAYS:
        raise NotReplayableError(job_id, "too_often", MAX_REPLAYS)
    audit.append(session, "notification_replayed", actor=actor, job=job, was_delivered=bool(notification.delivered_at))
    reset = {"attempts": 0, "next_at": now(), "delivered_at": None, "replays": notification.replays + 1}
    session.execute(sql_update(Notification).where(col(Notification.job_id) == job_id).values(**reset))
    session.refresh(notification)
