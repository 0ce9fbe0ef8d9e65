"""A job's events as they happen: server-sent events that can be resumed, and that end with the job."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy.exc import DBAPIError
from sse_starlette import ServerSentEvent
from starlette.concurrency import run_in_threadpool

from monitoring.ledger.events import events_after
from monitoring.ledger.jobs import find_job
from monitoring.ledger.record_tables import Event
from monitoring.ledger.store import Ledger
from producers.job_views import EventView
from producers.jobs import describe_events
from routing.jobs import State, is_end

logger = logging.getLogger(__name__)

PAGE = 500
_LATE = timedelta(seconds=15)
"""An event's id is taken before its transaction commits, so an event may appear below one that was sent already. No
transaction of the ledger lasts this long (monitoring/ledger/store.py)."""


class News(NamedTuple):
    """What one look at the ledger found."""

    events: Sequence[EventView]
    is_over: bool
    """The job has ended and its events are all here."""


@dataclass
class Tail:
    """Where one reader of a job's events stands."""

    floor: int
    """Every event up to this id is done with."""
    sent: set[int] = field(default_factory=set)

    def fresh(self, events: Sequence[Event]) -> list[Event]:
        """Return those of the events above the floor that were not sent yet, and move on."""
        news = [event for event in events if event.id not in self.sent]
        self.sent.update(event.id for event in news if event.id is not None)
        if events:
            self._raise_floor(events, events[-1].at - _LATE, is_full=len(events) >= PAGE)
        return news

    def _raise_floor(self, events: Sequence[Event], settled_before: datetime, *, is_full: bool) -> None:
        settled = [event.id or 0 for event in events if is_full or event.at < settled_before]
        self.floor = max([self.floor, *settled])
        self.sent = {event_id for event_id in self.sent if event_id > self.floor}


def look(ledger: Ledger, job_id: UUID, *, tenant: str, tail: Tail) -> News:
    """Read what is new. The state is read first: when it is an end, all that led there is visible.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    with ledger.begin() as session:
        ended = is_end(State(find_job(session, job_id, tenant=tenant).state))
        events = events_after(session, job_id, after_id=tail.floor, limit=PAGE)
        fresh = tail.fresh(events)
        return News(describe_events(session, fresh), ended and len(events) < PAGE)


async def watch(
    ledger: Ledger, job_id: UUID, *, tenant: str, tail: Tail, first: News, poll_seconds: float,
    stopping: threading.Event,
) -> AsyncIterator[News]:  # fmt: skip
    """Yield what is new about a job from `first` on, until it has ended, the process stops or the ledger is away."""
    news = first
    while True:
        yield news
        if news.is_over or stopping.is_set():
            return
        await asyncio.sleep(poll_seconds)
        try:
            news = await run_in_threadpool(look, ledger, job_id, tenant=tenant, tail=tail)
        except DBAPIError:
            logger.warning("event_stream_cut", extra={"job_id": str(job_id)})
            return


async def as_json(found: AsyncIterator[News]) -> AsyncIterator[ServerSentEvent]:
    """Yield each event as a line of the HTTP door's stream; a reader that is cut off resumes by the last id."""
    async for news in found:
        for event in news.events:
            data = json.dumps(event.model_dump(mode="json"), separators=(",", ":"))
            yield ServerSentEvent(data=data, event=event.kind, id=str(event.id))
