"""The use cases around dead letters: what is there, by what it has in common; replay it, or lay it to rest.

Every job of a bulk order is judged alone: one that cannot be replayed says why, and the others are. An order is bounded
and can be given again: what was replayed once stays one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ledger import audit
from ledger import failures as ledger_letters
from ledger import notifications as ledger_notifications
from ledger.errors import JobNotFoundError, NotContinuableError, WrongStateError
from ledger.failures import Cluster, ClusterMark, JobMark
from ledger.jobs import lock_job
from ledger.notifications import NotificationMark, Wanted
from ledger.record_tables import Delivery, Notification
from ledger.store import Ledger
from ledger.tables import Job
from producers.errors import AdmissionRefusedError
from producers.use_cases.jobs import Page, cursor_of, mark_of
from producers.use_cases.rounds import Asker, Replays
from routing.config import Text
from routing.errors import InvalidJobError

MOST_AT_ONCE = 200
"""Dead letters that one order replays or dismisses at most."""


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class ClusterView(_View):
    """Dead letters that ended alike."""

    name: str
    """A short name of the signature: `signature` of an order takes either."""
    signature: str
    """The reason, and the error's words without numbers, ids and paths."""
    jobs: int
    reason: str
    example: UUID
    """The newest of them."""
    detail: str | None
    """Why that one ended, in words."""
    first_at: datetime
    last_at: datetime


class ClustersPage(Page):
    """A page of clusters, the largest first."""

    clusters: list[ClusterView]


class DeadLetterView(_View):
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
    """A page of the dead letters of one cluster, the oldest first."""

    signature: str
    jobs: list[DeadLetterView]


class DeadLetterOrder(BaseModel):
    """Which dead letters are meant: some by their ids, or those of one cluster, the oldest first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ids: Annotated[tuple[UUID, ...], Field(max_length=MOST_AT_ONCE)] = ()
    signature: Annotated[Text, Field(min_length=1, max_length=400)] | None = None
    """A cluster's signature, or its short name."""
    limit: int = Field(default=MOST_AT_ONCE, ge=1, le=MOST_AT_ONCE)
    """Of a cluster, so many."""

    @model_validator(mode="after")
    def _check_one_kind(self) -> DeadLetterOrder:
        if bool(self.ids) == (self.signature is not None):
            raise ValueError("give either ids or a signature")
        return self


class ReplayOrder(DeadLetterOrder):
    """Which dead letters are replayed, and with what money."""

    budget_usd: Annotated[float, Field(gt=0, le=25, allow_inf_nan=False)] | None = None
    """Money for each on top of what its bill has spent, in USD; needed where a budget ended it."""


class Verdict(_View):
    """What became of one job of an order."""

    id: UUID
    is_done: bool
    """Whether it is as was ordered, by this order or an earlier one."""
    replayed_as: UUID | None = None
    is_new: bool = False
    """Whether this order did it."""
    why_not: str | None = None


class Verdicts(_View):
    """What became of an order, job by job."""

    jobs: list[Verdict]
    done: int
    """How many are as was ordered."""


class DeadLetters:
    """The dead letters of an installation's tenants."""

    def __init__(self, ledger: Ledger, replays: Replays) -> None:
        self._ledger = ledger
        self._replays = replays

    def clusters(self, tenant: str, *, cursor: str | None = None, limit: int = 50) -> ClustersPage:
        """Return a tenant's clusters, the largest first.

        Raises:
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self._ledger.begin() as session:
            after = mark_of(ClusterMark, cursor)
            found = ledger_letters.clusters(session, tenant, after=after, limit=limit)
        more = cursor_of(ClusterMark(found[-1].jobs, found[-1].signature)) if len(found) == limit else None
        return ClustersPage(clusters=[_cluster_view(cluster) for cluster in found], next_cursor=more)

    def jobs(self, tenant: str, signature: str, *, cursor: str | None = None, limit: int = 50) -> DeadLettersPage:
        """Return the dead letters of a cluster, the oldest first.

        Raises:
            ClusterNotFoundError: the caller's fault.
            InvalidJobError: the caller's fault: no such cursor.
        """
        with self._ledger.begin() as session:
            meant = ledger_letters.find_signature(session, tenant, signature)
            after = mark_of(JobMark, cursor)
            found = ledger_letters.dead_jobs(session, tenant, meant, after=after, limit=limit)
        last = found[-1] if len(found) == limit else None
        more = cursor_of(JobMark(last.ended_at, last.id)) if last is not None and last.ended_at is not None else None
        return DeadLettersPage(signature=meant, jobs=[_letter_view(job) for job in found], next_cursor=more)

    def replay(self, order: ReplayOrder, *, asker: Asker) -> Verdicts:
        """Replay dead letters, each in a transaction of its own.

        Raises:
            ClusterNotFoundError: the caller's fault.
        """
        verdicts = []
        for job_id in self._meant(order, asker.tenant):
            try:
                done = self._replays.replay(job_id, asker=asker, budget_usd=order.budget_usd)
                verdicts.append(Verdict(id=job_id, is_done=True, replayed_as=done.job.id, is_new=done.is_new))
            except (JobNotFoundError, NotContinuableError, InvalidJobError, AdmissionRefusedError) as error:
                verdicts.append(Verdict(id=job_id, is_done=False, why_not=_why(error)))
        return self._told("dead_letters_replayed", order, verdicts, asker=asker)

    def dismiss(self, order: DeadLetterOrder, *, asker: Asker) -> Verdicts:
        """Say that dead letters need nothing more.

        Raises:
            ClusterNotFoundError: the caller's fault.
        """
        verdicts = []
        for job_id in self._meant(order, asker.tenant):
            try:
                with self._ledger.begin() as session:
                    job = lock_job(session, job_id, tenant=asker.tenant)
                    is_new = ledger_letters.dismiss(session, job, actor=asker.actor)
                verdicts.append(Verdict(id=job_id, is_done=True, is_new=is_new))
            except (JobNotFoundError, WrongStateError) as error:
                verdicts.append(Verdict(id=job_id, is_done=False, why_not=_why(error)))
        return self._told("dead_letters_dismissed", order, verdicts, asker=asker)

    def _meant(self, order: DeadLetterOrder, tenant: str) -> Sequence[UUID]:
        if order.signature is None:
            return list(dict.fromkeys(order.ids))
        with self._ledger.begin() as session:
            signature = ledger_letters.find_signature(session, tenant, order.signature)
            return [job.id for job in ledger_letters.dead_jobs(session, tenant, signature, limit=order.limit)]

    def _told(self, action: str, order: DeadLetterOrder, verdicts: list[Verdict], *, asker: Asker) -> Verdicts:
        """Put an order on record, when it was about more than one job, and return what became of it."""
        done = sum(verdict.is_done for verdict in verdicts)
        if len(verdicts) > 1:
            facts: dict[str, Any] = {"signature": order.signature, "jobs": len(verdicts), "done": done}
            with self._ledger.begin() as session:
                audit.append(session, action, actor=asker.actor, tenant=asker.tenant, **facts)
        return Verdicts(jobs=verdicts, done=done)


def _why(error: Exception) -> str:
    if isinstance(error, InvalidJobError):
        return "; ".join(f"{item.field}: {item.rule}" for item in error.errors)
    return str(error)


def _cluster_view(cluster: Cluster) -> ClusterView:
    return ClusterView(name=cluster.name, **cluster._asdict())


def _letter_view(job: Job) -> DeadLetterView:
    return DeadLetterView(
        id=job.id,
        state=job.state,
        reason=job.reason,
        detail=job.detail,
        queue=job.queue,
        prompt=job.prompt[:200],
        created_at=job.created_at,
        ended_at=job.ended_at,
    )


# The use cases around notifications: what came of a job's, which did not arrive, and sending one again.

Standing = Literal["none", "pending", "delivered", "undelivered"]


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
        job_id=notification.job_id,
        message_id=_message_id(notification.job_id),
        state=state,
        callback_url=notification.callback_url,
        payload=notification.payload,
        next_at=notification.next_at,
        delivered_at=notification.delivered_at if state == "delivered" else None,
        replays=notification.replays,
        deliveries=deliveries,
    )


def _try_view(delivery: Delivery) -> TryView:
    names = ("at", "number", "outcome", "status", "detail", "seconds")
    return TryView.model_validate({name: getattr(delivery, name) for name in names})
