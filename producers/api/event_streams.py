"""Event streams of jobs: those that one process has open share one look at the ledger, and are limited in number.

Nothing notifies of events: a NOTIFY makes commits wait for each other, and one look for all costs milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlmodel import col
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from ledger.events import events_after_each
from ledger.jobs import find_job
from ledger.store import Ledger
from ledger.tables import Job
from producers.errors import TooManyStreamsError
from producers.use_cases.jobs import EventView, describe_events
from producers.use_cases.people import Holder, still_valid
from routing.jobs import State, is_end
from routing.policy.platform import Streams

logger = logging.getLogger(__name__)

_PING_SECONDS = 15
HOLDER_SECONDS = 2.0
"""How often a process looks whose key or session was revoked: their streams end within that time and a look."""


class News(NamedTuple):
    """The events of one read."""

    events: Sequence[EventView]
    is_over: bool
    """The job has ended, and these are its last events."""


def read_events(ledger: Ledger, job_id: UUID, *, tenant: str, after: int) -> News:
    """Read the events of a tenant's job after one of them.

    Raises:
        JobNotFoundError: the caller's fault.
    """
    with ledger.begin() as session:
        find_job(session, job_id, tenant=tenant)
    return read_news(ledger, {job_id: after})[job_id]


def read_news(ledger: Ledger, positions: Mapping[UUID, int]) -> dict[UUID, News]:
    """Read the events of jobs, each after the last one that was seen of it.

    The states are read first: if one is final, every event before it is visible.
    """
    with ledger.begin() as session:
        states = dict(session.execute(select(col(Job.id), col(Job.state)).where(col(Job.id).in_(positions))).all())
        pages = events_after_each(session, positions)
        views = iter(describe_events(session, [event for page in pages.values() for event in page.events]))
    return {
        job_id: News(
            [next(views) for _ in page.events],
            is_over=page.is_all and (job_id not in states or is_end(State(states[job_id]))),
        )
        for job_id, page in pages.items()
    }


class _Waiting(NamedTuple):
    """A stream that waits for news."""

    job_id: UUID
    after: int
    holder: Holder | None
    told: asyncio.Future[News | None]

    def tell(self, news: News | None) -> None:
        """Hand on what is news to this stream; None cuts it."""
        if news is not None:
            news = news._replace(events=[event for event in news.events if event.id > self.after])
        if not self.told.done() and (news is None or news.events or news.is_over):
            self.told.set_result(news)


class EventStreams:
    """The open event streams of a process, all in one event loop."""

    def __init__(self, ledger: Ledger, rules: Streams, *, poll_seconds: float) -> None:
        self._ledger = ledger
        self._rules = rules
        self._poll_seconds = poll_seconds
        self._open: Counter[UUID | None] = Counter()
        self._waiting: set[_Waiting] = set()
        self._holders: Counter[Holder] = Counter()
        self._revoked: frozenset[Holder] = frozenset()
        self._checked_at = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._is_stopping = False

    def stop(self) -> None:
        """End all streams at their next look."""
        self._is_stopping = True

    def open(self, key_id: UUID | None, content: AsyncIterator[ServerSentEvent]) -> EventSourceResponse:
        """Return the stream of a key's holder.

        Raises:
            TooManyStreamsError: the key has as many as it may, or the process has.
        """
        if self._open[key_id] >= self._rules.per_key:
            raise TooManyStreamsError("key", self._rules.per_key, self._rules.retry_seconds)
        if self._open.total() >= self._rules.per_process:
            raise TooManyStreamsError("process", self._rules.per_process, self._rules.retry_seconds)
        return _Response(content, self._open, key_id)

    async def follow(
        self, job_id: UUID, *, holder: Holder | None, after: int, first: News, tick_seconds: float | None = None
    ) -> AsyncIterator[News]:
        """Yield a job's news from `first` on until it has ended, the process stops or the ledger is away.

        It ends, too, within seconds after its holder's key or session was revoked. With `tick_seconds`, yield after
        that time even if there are none.
        """
        news: News | None = first
        if holder is not None:
            self._holders[holder] += 1
        try:
            while news is not None and holder not in self._revoked:
                yield news
                if news.is_over or self._is_stopping:
                    return
                after = news.events[-1].id if news.events else after
                news = await self._next(job_id, holder, after, tick_seconds)
        finally:
            if holder is not None:
                self._holders -= Counter((holder,))  # which drops those of whom none is left

    async def _next(self, job_id: UUID, holder: Holder | None, after: int, tick_seconds: float | None) -> News | None:
        waiting = _Waiting(job_id, after, holder, asyncio.get_running_loop().create_future())
        self._waiting.add(waiting)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            done, _ = await asyncio.wait((waiting.told,), timeout=tick_seconds)
            return waiting.told.result() if done else News((), is_over=False)
        finally:
            self._waiting.discard(waiting)

    async def _look(self) -> None:
        """Look for all streams that wait, as long as there are any."""
        try:
            while self._waiting and not self._is_stopping:
                await asyncio.sleep(self._poll_seconds)
                await self._look_for_revoked()
                streams = tuple(self._waiting)  # streams opened during the query may be at another position
                positions: dict[UUID, int] = {}
                for stream in streams:
                    positions[stream.job_id] = min(stream.after, positions.get(stream.job_id, stream.after))
                found = await run_in_threadpool(read_news, self._ledger, positions)
                for stream in streams:
                    stream.tell(found[stream.job_id])
        except DBAPIError:
            logger.warning("event_streams_cut", extra={"streams": len(self._waiting)})
        finally:
            for stream in self._waiting:
                stream.tell(None)

    async def _look_for_revoked(self) -> None:
        """Cut the streams of those whose key or session was revoked: one look for all holders of the process."""
        if time.monotonic() - self._checked_at < HOLDER_SECONDS:
            return
        holders = frozenset(self._holders)
        self._revoked = holders - await run_in_threadpool(self._valid, holders)
        self._checked_at = time.monotonic()
        for stream in self._waiting:
            if stream.holder in self._revoked:
                stream.tell(None)

    def _valid(self, holders: frozenset[Holder]) -> set[Holder]:
        with self._ledger.look() as connection:
            return still_valid(connection, holders)


class _Response(EventSourceResponse):
    """A stream that counts as open while it is sent, however it ends."""

    def __init__(
        self, content: AsyncIterator[ServerSentEvent], count: Counter[UUID | None], key_id: UUID | None
    ) -> None:
        super().__init__(content, ping=_PING_SECONDS, headers={"Cache-Control": "no-store"})
        self._count = count
        self._key_id = key_id
        count[key_id] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._count[self._key_id] -= 1
            if not self._count[self._key_id]:
                del self._count[self._key_id]


async def as_json(source: AsyncIterator[News]) -> AsyncIterator[ServerSentEvent]:
    """Yield each event for a stream that clients can resume after the last id."""
    async for news in source:
        for event in news.events:
            data = json.dumps(event.model_dump(mode="json"), separators=(",", ":"))
            yield ServerSentEvent(data=data, event=event.kind, id=str(event.id))
