"""Claim, record and replay what tenants are owed: the notification of a job's end, and notices of jobs that wait.

A replay has the same id and body, so a receiver that remembers ids does nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, select, tuple_
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import NoticeNotFoundError, NotReplayableError
from ledger.job_ends import CALLBACK
from ledger.jobs import find_job, lock_job
from ledger.record_tables import Delivery, Notice, NoticeDelivery, Notification
from ledger.store import Statement, after, dump_json, now
from ledger.tables import Job

MAX_REPLAYS = 100
"""The most replays of one notification: a client that wants more is looping."""
_SHOWN_DELIVERIES = 50
_CLAIM_SECONDS = 60
_LONGEST_DETAIL = 200
_LOOKED_AT = 1_000


class _Queue(NamedTuple):
    """A table of messages to be sent; both are worked off in the same way."""

    table: str
    key: str
    """The column that identifies a message."""
    url: str
    notice_id: str
    channel: str


_NOTIFICATIONS = _Queue("notification", "job_id", "notification.callback_url", "CAST(NULL AS uuid)", f"'{CALLBACK}'")
_NOTICES = _Queue(
    "notice",
    "id",
    """(SELECT CASE notice.channel WHEN 'chat' THEN tenant.chat_url WHEN 'mail' THEN
              (SELECT 'mailto:' || string_agg(address, ',') FROM jsonb_array_elements_text(tenant.mail_to) AS address)
              ELSE notice.callback_url END FROM tenant WHERE name = notice.tenant)""",
    "notice.id",
    "notice.channel",
)


def _claim_from(queue: _Queue) -> Statement:
    """Return the claim of what is due.

    It reads one index entry for each tenant with open messages, and no more of a backlog than it may claim.
    """
    table, key = queue.table, queue.key
    return Statement(f"""
    WITH RECURSIVE owner (tenant) AS (
        (SELECT tenant FROM {table} WHERE next_at IS NOT NULL ORDER BY tenant LIMIT 1)
        UNION ALL
        SELECT (SELECT tenant FROM {table} WHERE next_at IS NOT NULL AND tenant > owner.tenant
                 ORDER BY tenant LIMIT 1)
          FROM owner WHERE owner.tenant IS NOT NULL
    ), busy AS (
        SELECT tenant, coalesce(CAST(CAST(%(in_flight)s AS jsonb) ->> tenant AS int), 0) AS tries FROM owner
    ), oldest AS (
        SELECT due.key, row_number() OVER (PARTITION BY busy.tenant ORDER BY due.next_at) + busy.tries AS turn
          FROM busy CROSS JOIN LATERAL (
               SELECT {key} AS key, next_at FROM {table}
                WHERE tenant = busy.tenant AND next_at <= (SELECT clock_timestamp())
                ORDER BY next_at LIMIT greatest(%(per_tenant)s - busy.tries, 0)
          ) AS due
    ), claimed AS (
        SELECT {key} AS key, job_id, {queue.url} AS url FROM {table}
         WHERE {key} = ANY (ARRAY(SELECT key FROM oldest ORDER BY turn LIMIT %(room)s))
           AND next_at <= (SELECT clock_timestamp())
           FOR UPDATE SKIP LOCKED
    )
    UPDATE {table} SET attempts = attempts + 1, next_at = clock_timestamp() + interval '{_CLAIM_SECONDS} seconds'
      FROM claimed JOIN job ON job.id = claimed.job_id
     WHERE {table}.{key} = claimed.key
    RETURNING {table}.job_id, job.tenant, coalesce(claimed.url, '') AS callback_url,
              coalesce(split_part(claimed.url, '/', 3), '') AS destination, payload, attempts AS number,
              clock_timestamp() AS claimed_at, {queue.notice_id} AS notice_id, {queue.channel} AS channel
""")


_CLAIM, _CLAIM_NOTICES = _claim_from(_NOTIFICATIONS), _claim_from(_NOTICES)

Wanted = Literal["undelivered", "pending"]


class Due(NamedTuple):
    """A claimed message, to be sent now."""

    job_id: UUID
    tenant: str
    callback_url: str
    """Where to; for e-mail a `mailto:` of the tenant's addresses."""
    destination: str
    """Host and port of the URL; empty for e-mail, which all goes to one server."""
    payload: dict[str, object]
    number: int
    """The number of this try since the last replay, from 1."""
    claimed_at: datetime
    """By the ledger's clock, which its signature bears: a host's own may be wrong."""
    notice_id: UUID | None = None
    """None for the notification of a job's end."""
    channel: str = CALLBACK

    @property
    def message_id(self) -> str:
        """The same at each try: the header `webhook-id`."""
        return message_id(self.notice_id or self.job_id)

    @property
    def row(self) -> tuple[type[Notification] | type[Notice], ColumnElement[bool]]:
        """Its table, and what is true of its row."""
        if self.notice_id is not None:
            return Notice, col(Notice.id) == self.notice_id
        return Notification, col(Notification.job_id) == self.job_id


class Try(NamedTuple):
    """What came of one try."""

    outcome: str
    """`delivered`, `failed` or `refused`."""
    status: int | None = None
    detail: str = ""
    seconds: float = 0.0


def message_id(key: UUID) -> str:
    """Return the id of a message: of a notice by its id, of the notification of an end by its job's."""
    return f"msg_{key}"


class NotificationState(NamedTuple):
    """A notification and its newest deliveries, oldest first."""

    notification: Notification | None
    """None while its job has not ended, and for a step of a run."""
    deliveries: Sequence[Delivery]


class NotificationMark(NamedTuple):
    """Where a page of notifications, or of notices, ended."""

    created_at: datetime
    id: UUID


_HAS_DUE = Statement("""
    SELECT EXISTS (SELECT FROM notification WHERE next_at <= (SELECT clock_timestamp()))
           OR EXISTS (SELECT FROM notice WHERE next_at <= (SELECT clock_timestamp()))
""")


def has_due_notification(connection: Connection) -> bool:
    """Whether a notification is due."""
    return bool(_HAS_DUE.scalar(connection))


def claim_due_notifications(
    session: Session, room: int, *, per_tenant: int, in_flight: Mapping[str, int] = MappingProxyType({})
) -> list[Due]:
    """Claim due messages, notices first and tenants in turn, so that no other sender takes them within a minute.

    Args:
        session: the caller's transaction.
        room: the most to claim.
        per_tenant: the most that one tenant may have in flight.
        in_flight: what each tenant has in flight; those with less have their turn first.
    """
    claimed: list[Due] = []
    for claim in (_CLAIM_NOTICES, _CLAIM):
        busy = Counter(in_flight) + Counter(due.tenant for due in claimed)
        if (left := room - len(claimed)) > 0:
            values = {"room": left, "per_tenant": per_tenant, "in_flight": dump_json(busy)}
            claimed += [Due(*row) for row in claim.all(session, values)]
    return claimed


def postpone(session: Session, due: Due, *, seconds: float) -> None:
    """Put a claimed message back untried."""
    table, is_own = due.row
    values = {"attempts": due.number - 1, "next_at": after(seconds)}
    session.execute(sql_update(table).where(is_own, col(table.attempts) == due.number).values(**values))


def book(session: Session, due: Due, tried: Try, *, again_in: float | None) -> None:
    """Record one try, and schedule the next one.

    `again_in` is the wait in seconds; None when this was the last try.
    """
    table, is_own = due.row
    facts = tried._asdict() | {"detail": tried.detail[:_LONGEST_DETAIL], "job_id": due.job_id, "number": due.number}
    session.add(Delivery(**facts) if due.notice_id is None else NoticeDelivery(notice_id=due.notice_id, **facts))
    if tried.outcome == "delivered":
        values = {"delivered_at": now(), "next_at": None}
    else:  # a sender that was away for long must not overrule another one
        is_own &= col(table.attempts) == due.number
        values = {"next_at": None if again_in is None else after(again_in)}
    session.execute(sql_update(table).where(is_own).values(**values))


def _undelivered_of(queue: _Queue, tries: str, link: str) -> str:
    return f"""
    SELECT (SELECT count(*) FROM (SELECT created_at FROM {queue.table}
                                   WHERE delivered_at IS NULL AND next_at IS NOT NULL
                                   ORDER BY next_at LIMIT %(most)s) AS pending
             WHERE created_at < clock_timestamp() - interval '1 minute') AS waiting,
           (SELECT count(*) FROM (SELECT {link}, number, at FROM {tries} ORDER BY id DESC LIMIT %(most)s) AS newest
              JOIN {queue.table} ON {queue.table}.{queue.key} = newest.{link}
             WHERE delivered_at IS NULL AND next_at IS NULL AND number = attempts
               AND at > clock_timestamp() - interval '1 day') AS given_up
    """


_UNDELIVERED = Statement(f"""
    SELECT CAST(sum(waiting) AS int) AS waiting, CAST(sum(given_up) AS int) AS given_up
      FROM ({_undelivered_of(_NOTIFICATIONS, "delivery", "job_id")}
            UNION ALL {_undelivered_of(_NOTICES, "notice_delivery", "notice_id")}) AS both_kinds
""")


class Undelivered(NamedTuple):
    """How many messages have not arrived; counted among the newest and next tries, at a bounded cost."""

    waiting: int
    """For over a minute: not tried yet, or to be tried again."""
    given_up: int
    """Within the last day."""


def count_undelivered(session: Session) -> Undelivered:
    """Count the messages of all tenants that have not arrived."""
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


def _is(wanted: Wanted, table: type[Notification] | type[Notice]) -> ColumnElement[bool]:
    """Return what is true of messages that were given up (`undelivered`), or that are still being tried."""
    due = col(table.next_at)
    return col(table.delivered_at).is_(None) & (due.is_(None) if wanted == "undelivered" else due.is_not(None))


def not_delivered(
    session: Session, tenant: str, *, wanted: Wanted, after: NotificationMark | None = None, limit: int = 50
) -> Sequence[Notification]:
    """Return a tenant's undelivered notifications, newest first: given up, or still being tried."""
    query = (
        select(Notification)
        .join(Job, col(Job.id) == col(Notification.job_id))
        .where(col(Job.tenant) == tenant, _is(wanted, Notification), col(Notification.callback_url).is_not(None))
    )
    place = tuple_(col(Notification.created_at), col(Notification.job_id))
    if after is not None:
        query = query.where(place < tuple_(*after))
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


class NoticeState(NamedTuple):
    """A notice and its newest tries, oldest first."""

    notice: Notice
    deliveries: Sequence[NoticeDelivery]


def find_notices(
    session: Session, tenant: str, *, wanted: Wanted | None = None, after: NotificationMark | None = None, limit: int
) -> Sequence[NoticeState]:
    """Return a tenant's notices, newest first; with `wanted`, those that were given up or are still being tried."""
    query = select(Notice).where(col(Notice.tenant) == tenant)
    if wanted is not None:
        query = query.where(_is(wanted, Notice))
    place = tuple_(col(Notice.created_at), col(Notice.id))
    if after is not None:
        query = query.where(place < tuple_(*after))
    found = session.scalars(query.order_by(col(Notice.created_at).desc(), col(Notice.id).desc()).limit(limit)).all()
    return [_with_tries(session, notice) for notice in found]


def _with_tries(session: Session, notice: Notice) -> NoticeState:
    tries = select(NoticeDelivery).where(col(NoticeDelivery.notice_id) == notice.id)
    newest = session.scalars(tries.order_by(col(NoticeDelivery.id).desc()).limit(_SHOWN_DELIVERIES)).all()
    return NoticeState(notice, newest[::-1])


def replay_notice(session: Session, notice_id: UUID, *, tenant: str, actor: str) -> NoticeState:
    """Send a notice again, now, under its id and with a full round of tries.

    Raises:
        NoticeNotFoundError: the caller's fault.
        NotReplayableError: the caller's fault; nothing changed.
    """
    notice = session.get(Notice, notice_id, with_for_update=True)
    if notice is None or notice.tenant != tenant:
        raise NoticeNotFoundError
    if notice.replays >= MAX_REPLAYS:
        raise NotReplayableError(notice.job_id, "too_often", MAX_REPLAYS)
    job = find_job(session, notice.job_id, tenant=tenant)
    audit.append(session, "notice_replayed", actor=actor, job=job, notice=str(notice.id))
    reset = {"attempts": 0, "next_at": now(), "delivered_at": None, "replays": notice.replays + 1}
    session.execute(sql_update(Notice).where(col(Notice.id) == notice_id).values(**reset))
    session.refresh(notice)
    return _with_tries(session, notice)
