"""List dead letters by what they have in common, replay or dismiss them; and the same for notifications.

Each job of a bulk order succeeds or fails alone. An order is bounded and can be repeated: a replayed job stays one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field, model_validator

from ledger import audit
from ledger import job_ends as ledger_letters
from ledger import notifications as ledger_notifications
from ledger.errors import JobNotFoundError, NotContinuableError, WrongStateError
from ledger.job_ends import ClusterMark, JobMark
from ledger.jobs import lock_job
from ledger.notifications import NotificationMark, Wanted, message_id
from ledger.record_tables import Notification
from ledger.store import Ledger
from producers.errors import AdmissionRefusedError
from producers.intake.submit import Requester
from producers.use_cases.jobs import Page, View, cursor_of, mark_of
from producers.use_cases.replays import Replays
from routing.config import Text
from routing.errors import InvalidJobError

MOST_AT_ONCE = 200
"""The most dead letters that one order replays or dismisses."""


class ClusterView(View):
    """Dead letters with the same failure."""

    name: str
    """Short name of the signature; an order's `signature` takes either."""
    signature: str
    """The reason, and the error's text without numbers, ids and paths."""
    jobs: int
    reason: str
    example: UUID
    """The newest of them."""
    detail: str | None
    """Why the example ended, in words."""
    first_at: datetime
    last_at: datetime


class ClustersPage(Page):
    """A page of clusters, largest first."""

    clusters: list[ClusterView]


class DeadLetterView(View):
    """One dead letter."""

    id: UUID
    state: str
    reason: str | None
    detail: str | None
    queue: str
    prompt: str
    """Its first 200 characters."""
    created_at: datetime
    ended_at: datetime | None


class DeadLettersPage(Page):
    """A page of a cluster's dead letters, oldest first."""

    signature: str
    jobs: list[DeadLetterView]


class DeadLetterOrder(BaseModel, frozen=True, extra="forbid"):
    """Which dead letters to handle: those with these ids, or those of one cluster, oldest first."""

    ids: Annotated[tuple[UUID, ...], Field(max_length=MOST_AT_ONCE)] = ()
    signature: Annotated[Text, Field(min_length=1, max_length=400)] | None = None
    """A cluster's signature or short name."""
    limit: int = Field(default=MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE)
    """How many of a cluster."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> DeadLetterOrder:
        if bool(self.ids) == (self.signature is not None):
            raise ValueError("give either ids or a signature")
        return self


class ReplayOrder(DeadLetterOrder):
    """Which dead letters to replay, and with how much money."""

    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)] | None = None
    """USD for each on top of what its bill has spent; needed where a budget ended it."""


class Verdict(View):
    """The result for one job of an order."""

    id: UUID
    is_done: bool
    """Whether this order or an earlier one was carried out."""
    replayed_as: UUID | None = None
    is_new: bool = False
    """Whether this order did it."""
    why_not: str | None = None


class Verdicts(View):
    """The results of an order, job by job."""

    jobs: list[Verdict]
    done: int
    """For how many jobs it is carried out."""


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of an installation's tenants."""

    ledger: Ledger
    replays: Replays

    def clusters(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> ClustersPage:
        """Return a tenant's clusters, largest first.

        Raises:
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self.ledger.begin() as session:
            after = mark_of(ClusterMark, cursor)
            found = ledger_letters.clusters(session, tenant, after=after, limit=limit)
        more = cursor_of(ClusterMark(found[-1].jobs, found[-1].signature)) if len(found) == limit else None
        return ClustersPage(clusters=[*map(ClusterView.of, found)], next_cursor=more)

    def jobs(self, tenant: str, signature: str, *, cursor: str | None = None, limit: int = 50) -> DeadLettersPage:
        """Return the dead letters of a cluster, oldest first.

        Raises:
            ClusterNotFoundError: the caller's fault.
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self.ledger.begin() as session:
            full_signature = ledger_letters.find_signature(session, tenant, signature)
            after = mark_of(JobMark, cursor)
            found = ledger_letters.dead_jobs(session, tenant, full_signature, after=after, limit=limit)
        last = found[-1] if len(found) == limit else None
        more = cursor_of(JobMark(last.ended_at, last.id)) if last is not None and last.ended_at is not None else None
        letters = [DeadLetterView.of(job, prompt=job.prompt[:200]) for job in found]
        return DeadLettersPage(signature=full_signature, jobs=letters, next_cursor=more)

    def replay(self, order: ReplayOrder, *, requester: Requester) -> Verdicts:
        """Replay dead letters, each in a transaction of its own.

        Raises:
            ClusterNotFoundError: the caller's fault.
        """
        verdicts = []
        for job_id in self._ids_of(order, requester.tenant):
            try:
                done = self.replays.replay(job_id, requester=requester, budget_usd=order.budget_usd)
                verdicts.append(Verdict(id=job_id, is_done=True, replayed_as=done.job.id, is_new=done.is_new))
            except (JobNotFoundError, NotContinuableError, InvalidJobError, AdmissionRefusedError) as error:
                verdicts.append(Verdict(id=job_id, is_done=False, why_not=str(error)))
        return self._conclude("dead_letters_replayed", order, verdicts, requester=requester)

    def dismiss(self, order: DeadLetterOrder, *, requester: Requester) -> Verdicts:
        """Mark dead letters as handled.

        Raises:
            ClusterNotFoundError: the caller's fault.
        """
        verdicts = []
        for job_id in self._ids_of(order, requester.tenant):
            try:
                with self.ledger.begin() as session:
                    job = lock_job(session, job_id, tenant=requester.tenant)
                    is_new = ledger_letters.dismiss(session, job, actor=requester.actor)
                verdicts.append(Verdict(id=job_id, is_done=True, is_new=is_new))
            except (JobNotFoundError, WrongStateError) as error:
                verdicts.append(Verdict(id=job_id, is_done=False, why_not=str(error)))
        return self._conclude("dead_letters_dismissed", order, verdicts, requester=requester)

    def _ids_of(self, order: DeadLetterOrder, tenant: str) -> Sequence[UUID]:
        if order.signature is None:
            return list(dict.fromkeys(order.ids))
        with self.ledger.begin() as session:
            signature = ledger_letters.find_signature(session, tenant, order.signature)
            return [job.id for job in ledger_letters.dead_jobs(session, tenant, signature, limit=order.limit)]

    def _conclude(
        self, action: str, order: DeadLetterOrder, verdicts: list[Verdict], *, requester: Requester
    ) -> Verdicts:
        """Audit an order about more than one job, and return its results."""
        done = sum(verdict.is_done for verdict in verdicts)
        if len(verdicts) > 1:
            facts: dict[str, Any] = {"signature": order.signature, "jobs": len(verdicts), "done": done}
            with self.ledger.begin() as session:
                audit.append(session, action, actor=requester.actor, tenant=requester.tenant, **facts)
        return Verdicts(jobs=verdicts, done=done)


Standing = Literal["none", "pending", "delivered", "undelivered"]


class TryView(View):
    """One try to deliver a notification."""

    at: datetime
    number: int
    """Counted from 1 since it was last requested."""
    outcome: Literal["delivered", "failed", "refused"]
    """`delivered` if the receiver answered 2xx; `refused` if its address may not be called."""
    status: int | None
    """HTTP status of the receiver's answer."""
    detail: str
    seconds: float


class NotificationView(View):
    """The one notification of a job's end."""

    job_id: UUID
    message_id: str
    """The header `webhook-id`: the same on every try and replay."""
    state: Standing
    """`none` before the job's end or without a callback_url; `undelivered` once all tries have failed."""
    callback_url: str | None = None
    payload: dict[str, Any] | None = None
    next_at: datetime | None = None
    """When it is tried next."""
    delivered_at: datetime | None = None
    replays: int = 0
    """How often it was requested again."""
    deliveries: tuple[TryView, ...] = ()
    """The last fifty tries, in order."""


class NotificationsPage(Page):
    """A page of undelivered notifications, newest first."""

    notifications: list[NotificationView]


@dataclass(frozen=True)
class Notifications:
    """The notifications of an installation's tenants."""

    ledger: Ledger

    def show(self, job_id: UUID, *, tenant: str) -> NotificationView:
        """Return a job's notification and its deliveries.

        Raises:
            JobNotFoundError: the caller's fault.
        """
        with self.ledger.begin() as session:
            found = ledger_notifications.find_notification(session, job_id, tenant=tenant)
            deliveries = tuple(map(TryView.of, found.deliveries))
            if found.notification is None:
                return NotificationView(job_id=job_id, message_id=message_id(job_id), state="none")
            return _view_of(found.notification, deliveries)

    def not_delivered(
        self, tenant: str, *, wanted: Wanted = "undelivered", cursor: str | None = None, limit: int = 50
    ) -> NotificationsPage:
        """Return a tenant's undelivered notifications, newest first, without their tries.

        Raises:
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self.ledger.begin() as session:
            after = mark_of(NotificationMark, cursor)
            found = ledger_notifications.not_delivered(session, tenant, wanted=wanted, after=after, limit=limit)
        more = cursor_of(NotificationMark(found[-1].created_at, found[-1].job_id)) if len(found) == limit else None
        return NotificationsPage(notifications=[_view_of(one) for one in found], next_cursor=more)

    def replay(self, job_id: UUID, *, tenant: str, actor: str) -> NotificationView:
        """Send a job's notification again, whether it arrived or not.

        Raises:
            JobNotFoundError: the caller's fault.
            NotReplayableError: the caller's fault; nothing changed.
        """
        with self.ledger.begin() as session:
            ledger_notifications.replay(session, job_id, tenant=tenant, actor=actor)
        return self.show(job_id, tenant=tenant)


def _standing(notification: Notification) -> Standing:
    if notification.callback_url is None:
        return "none"
    if notification.delivered_at is not None:
        return "delivered"
    return "undelivered" if notification.next_at is None else "pending"


def _view_of(notification: Notification, deliveries: tuple[TryView, ...] = ()) -> NotificationView:
    state = _standing(notification)
    return NotificationView.of(
        notification,
        message_id=message_id(notification.job_id),
        state=state,
        delivered_at=notification.delivered_at if state == "delivered" else None,
        deliveries=deliveries,
    )
