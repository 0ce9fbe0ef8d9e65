"""The use cases around notifications: what came of a job's, which did not arrive, and sending one again."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from monitoring.ledger import notifications as ledger_notifications
from monitoring.ledger.notifications import NotificationMark, Wanted
from monitoring.ledger.record_tables import Delivery, Notification
from monitoring.ledger.store import Ledger
from producers.cursors import Page, cursor_of, mark_of

Standing = Literal["none", "pending", "delivered", "undelivered"]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class TryView(_View):
    """One try to deliver a notification."""

    at: datetime
    number: int
    """Which try since it was last asked for, from 1."""
    outcome: Literal["delivered", "failed", "refused"]
    """Whether the receiver answered 2xx; `refused` if its address may not be called."""
    status: int | None
    """HTTP status of the receiver's answer."""
    detail: str
    seconds: float


class NotificationView(_View):
    """The one notification that a job's end owes its owner."""

    job_id: UUID
    message_id: str
    """The header `webhook-id`: the same on every try and replay."""
    state: Standing
    """`none` before the job's end and without a callback_url; `undelivered` when all tries were in vain."""
    callback_url: str | None = None
    payload: dict[str, Any] | None = None
    next_at: datetime | None = None
    """When it is tried next."""
    delivered_at: datetime | None = None
    replays: int = 0
    """How often it was asked for again."""
    deliveries: list[TryView] = []
    """The newest fifty tries, in order."""


class NotificationsPage(Page):
    """A page of notifications that their receivers do not have, the newest first."""

    notifications: list[NotificationView]


class Notifications:
    """The notifications of an installation's tenants."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def show(self, job_id: UUID, *, tenant: str) -> NotificationView:
        """Return a job's notification and what came of it.

        Raises:
            JobNotFoundError: the caller's fault.
        """
        with self._ledger.begin() as session:
            found = ledger_notifications.find_notification(session, job_id, tenant=tenant)
            deliveries = [_try_view(delivery) for delivery in found.deliveries]
            if found.notification is None:
                return NotificationView(job_id=job_id, message_id=_message_id(job_id), state="none")
            return _view_of(found.notification, deliveries)

    def not_delivered(
        self, tenant: str, *, wanted: Wanted = "undelivered", cursor: str | None = None, limit: int = 50
    ) -> NotificationsPage:
        """Return what a tenant's receivers do not have, the newest first, without the tries.

        Raises:
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self._ledger.begin() as session:
            after = mark_of(NotificationMark, cursor)
            found = ledger_notifications.not_delivered(session, tenant, wanted=wanted, after=after, limit=limit)
        more = cursor_of(NotificationMark(found[-1].created_at, found[-1].job_id)) if len(found) == limit else None
        return NotificationsPage(notifications=[_view_of(one, []) for one in found], next_cursor=more)

    def replay(self, job_id: UUID, *, tenant: str, actor: str) -> NotificationView:
        """Have a job's notification sent again, whether it arrived or not.

        Raises:
            JobNotFoundError: the caller's fault.
            NotReplayableError: the caller's fault; nothing changed.
        """
        with self._ledger.begin() as session:
            ledger_notifications.replay(session, job_id, tenant=tenant, actor=actor)
        return self.show(job_id, tenant=tenant)


def _message_id(job_id: UUID) -> str:
    return f"msg_{job_id}"


def _standing(notification: Notification) -> Standing:
    if notification.callback_url is None:
        return "none"
    if notification.delivered_at is not None:
        return "delivered"
    return "undelivered" if notification.next_at is None else "pending"


def _view_of(notification: Notification, deliveries: list[TryView]) -> NotificationView:
    state = _standing(notification)
    return NotificationView(
        job_id=notification.job_id, message_id=_message_id(notification.job_id), state=state,
        callback_url=notification.callback_url, payload=notification.payload, next_at=notification.next_at,
        delivered_at=notification.delivered_at if state == "delivered" else None, replays=notification.replays,
        deliveries=deliveries,
    )  # fmt: skip


def _try_view(delivery: Delivery) -> TryView:
    names = ("at", "number", "outcome", "status", "detail", "seconds")
    return TryView.model_validate({name: getattr(delivery, name) for name in names})
