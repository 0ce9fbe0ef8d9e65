"""Claim, record and replay the notification that the end of a job owes its owner.

A replay has the same id and body, so a receiver that remembers ids does nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import func, select, tuple_
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import NotReplayableError
from ledger.jobs import find_job, lock_job
from ledger.record_tables import Delivery, Notification
from ledger.store import Statement, after, moment, now
from ledger.tables import Job

MAX_REPLAYS = 100
"""The most replays of one notification: a client that wants more is looping."""
_SHOWN_DELIVERIES = 50
_CLAIM_SECONDS = 60
_LONGEST_DETAIL = 200
_LOOKED_AT = 1_000
"""A claim considers only this many of the oldest, so its cost does not grow with the backlog."""
_DESTINATION = func.split_part(col(Notification.callback_url), "/", 3)

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


def claim_due_notifications(session: Session, limit: int, *, busy: Collection[str] = ()) -> list[Due]:
    """Claim due notifications, so that no other sender takes them within a minute.

    Destinations that are `busy` are left out.
    """
    is_due = (col(Notification.delivered_at).is_(None), col(Notification.next_at) <= moment())
    first = col(Notification.next_at)
    oldest = select(col(Notification.job_id)).where(*is_due).order_by(first).limit(_LOOKED_AT)
    query = (
        select(Notification, col(Job.tenant), func.coalesce(_DESTINATION, ""), now())
        .join(Job, col(Job.id) == col(Notification.job_id))
        .where(*is_due, col(Notification.job_id).in_(oldest), _DESTINATION.not_in(busy))
        .order_by(first)
        .limit(limit)
        .with_for_update(of=Notification, skip_locked=True)
    )
    claimed = []
    for notification, tenant, destination, at in session.execute(query):
        notification.attempts += 1
        notification.next_at = after(_CLAIM_SECONDS)
        url, payload = notification.callback_url or "", notification.payload
        claimed.append(Due(notification.job_id, tenant, url, destination, payload, notification.attempts, at))
    session.flush()
    return claimed


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
