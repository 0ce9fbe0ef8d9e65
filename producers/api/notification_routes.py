"""Notifications over HTTP: what came of a job's callback, which did not arrive, and sending one again."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from monitoring.ledger.notifications import Wanted
from producers.api.resources import Reader, ResourcesDep, SubmitCaller
from producers.notifications import NotificationsPage, NotificationView

router = APIRouter(prefix="/v1", tags=["notifications"])


@router.get("/notifications")
def get_notifications(
    resources: ResourcesDep,
    caller: Reader,
    state: Annotated[Wanted, Query(description="Given up, or still being tried.")] = "undelivered",
    cursor: Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> NotificationsPage:
    """List the notifications that the tenant's receivers do not have, the newest first."""
    return resources.notifications.not_delivered(caller.tenant, wanted=state, cursor=cursor, limit=limit)


@router.get("/jobs/{job_id}/notification")
def get_notification(resources: ResourcesDep, caller: Reader, job_id: UUID) -> NotificationView:
    """Return the notification of a job's end, and what came of each try to deliver it."""
    return resources.notifications.show(job_id, tenant=caller.tenant)


@router.post("/jobs/{job_id}/notification/replay", status_code=202)
def replay_notification(resources: ResourcesDep, caller: SubmitCaller, job_id: UUID) -> NotificationView:
    """Send a job's notification again, whether it arrived or not: the same id and body, with all its tries before it.

    A receiver that keeps the ids (`webhook-id`) of what it has handled does nothing twice.
    """
    return resources.notifications.replay(job_id, tenant=caller.tenant, actor=caller.actor)
