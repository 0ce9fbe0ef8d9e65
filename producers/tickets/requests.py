"""A ticket as the body of a job: one way from every source, so that all of them are refused for the same reasons."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from routing.jobs import SiteName
from routing.ticket import Label

MAX_BODY_CHARACTERS = 32 * 1024


class TicketBody(BaseModel):
    """A ticket, as it is submitted: the body of `POST /v1/runs`."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)

    project: SiteName
    title: str = Field(min_length=1, max_length=300)
    body: str = Field(default="", max_length=MAX_BODY_CHARACTERS)
    labels: Annotated[tuple[Label, ...], Field(max_length=50)] = ()
    priority: Literal["P0", "P1", "P2", "P3"] = "P2"
    source: str | None = Field(default=None, min_length=1, max_length=100)
    url: str | None = Field(default=None, max_length=2048, pattern=r"^https?://[^\s]+$")
    budget_usd: float | None = Field(default=None, gt=0, le=25, allow_inf_nan=False)
    callback_url: str | None = None
    idempotency_key: str | None = None


def job_body(ticket: TicketBody) -> dict[str, Any]:
    """Return the body of the job that a ticket asks for: its text is the prompt, the rest goes along."""
    prompt = f"{ticket.title}\n\n{ticket.body}" if ticket.body else ticket.title
    beside = {"title": ticket.title, "labels": list(ticket.labels), "source": ticket.source, "url": ticket.url}
    asked: dict[str, Any] = {
        "prompt": prompt, "project": ticket.project, "priority": ticket.priority, "budget_usd": ticket.budget_usd,
        "callback_url": ticket.callback_url, "idempotency_key": ticket.idempotency_key,
        "ticket": {name: value for name, value in beside.items() if value is not None},
    }  # fmt: skip
    return {name: value for name, value in asked.items() if value is not None}
