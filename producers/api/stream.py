"""A job's events as they happen: server-sent events that can be resumed, and that end with the job."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.exc import DBAPIError
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from monitoring.ledger.events import events_after
from monitoring.ledger.jobs import find_job
from monitoring.ledger.store import Ledger
from producers.jobs import EventView, describe_events
from routing.jobs import State, is_end

logger = logging.getLogger(__name__)


class News(NamedTuple):
    """What one look at the ledger found."""

    events: Sequence[EventView]
    is_over: bool
    """The job has ended and its events are all here."""


def look(ledger: Ledger, job_id: UUID, *, tenant: str, after: int) -> News:
    """Read what came after an event. The state is read first: when it is an end, all that led there is visible.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    with ledger.begin() as session:
        ended = is_end(State(find_job(session, job_id, tenant=tenant).state))
        told = events_after(session, job_id, after_id=after)
        return News(describe_events(session, told.events), ended and told.is_all)


async def watch(
    ledger: Ledger, job_id: UUID, *, tenant: str, after: int, first: News, poll_seconds: float,
    stopping: threading.Event,
) -> AsyncIterator[News]:  # fmt: skip
    """Yield what is new about a job from `first` on, until it has ended, the process stops or the ledger is away."""
    news = first
    while True:
        yield news
        if news.is_over or stopping.is_set():
            return
        after = news.events[-1].id if news.events else after
        await asyncio.sleep(poll_seconds)
        try:
            news = await run_in_threadpool(look, ledger, job_id, tenant=tenant, after=after)
        except DBAPIError:
            logger.warning("event_stream_cut", extra={"job_id": str(job_id)})
            return


async def as_json(found: AsyncIterator[News]) -> AsyncIterator[ServerSentEvent]:
    """Yield each event as a line of the HTTP door's stream; a reader that is cut off resumes by the last id."""
    async for news in found:
        for event in news.events:
            data = json.dumps(event.model_dump(mode="json"), separators=(",", ":"))
            yield ServerSentEvent(data=data, event=event.kind, id=str(event.id))
