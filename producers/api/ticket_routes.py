"""Webhooks of trackers over HTTP: signed by the tracker, and so without an API key."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel

from producers.api.bodies import body_reader
from producers.api.resources import ResourcesDep
from producers.tickets.door import MAX_DELIVERY_BYTES, TicketDoor, Tracker
from producers.tickets.news import Ignored

router = APIRouter(prefix="/v1/tickets", tags=["tickets"])

Delivery = Annotated[bytes, Depends(body_reader(MAX_DELIVERY_BYTES))]


class DeliveryView(BaseModel):
    """What became of a delivery."""

    run_id: UUID | None = None
    is_new: bool = False
    """False when the ticket was being worked on already, or the delivery came again."""
    ignored: str | None = None
    """Why nothing was done."""


@router.post("/{tracker}/{tenant}/{project}", response_model=DeliveryView)
def take_delivery(
    tracker: Tracker, tenant: str, project: str, resources: ResourcesDep, body: Delivery, request: Request,
    response: Response,
) -> DeliveryView:  # fmt: skip
    """Take a webhook of GitHub or Linear: a ticket that gets the project's label becomes a run (202)."""
    door = TicketDoor(resources.ledger, resources.submitter, resources.accounts)
    taken = door.take(body, dict(request.headers), tenant=tenant, project=project, tracker=tracker)
    if isinstance(taken, Ignored):
        return DeliveryView(ignored=taken.why)
    response.status_code = 202
    return DeliveryView(run_id=taken.run_id, is_new=taken.is_new)
