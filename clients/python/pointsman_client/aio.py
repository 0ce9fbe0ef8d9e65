"""The client for asyncio. `sync.py` is made from this file by `make docs`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from uuid import UUID

import httpx2

from pointsman_client.calls import Call, read_answer, retry_after
from pointsman_client.errors import error_of, unreachable
from pointsman_client.models import EventView, JobSummary, JobView, State
from pointsman_client.operations import AsyncOperations

T = TypeVar("T")


class AsyncClient(AsyncOperations):
    """Pointsman over HTTP. Closing it, or leaving its `async with` block, closes its connections.

    Calls are repeated where that can do no harm: after 429 and 503 when the answer says so, and after a cut for what
    only reads or carries an idempotency key. Whoever gives none gets one for each call, so a cut submits no job twice.

    Args:
        url: of the API, such as `https://pointsman.example.com`.
        key: an API key (`pointsman key create`); it names the tenant.
        timeout: seconds for one answer.
        tries: how often a call is tried altogether.
        longest_pause: seconds; an answer that asks for more raises its error at once.
        transport: of httpx2, for proxies and tests.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        tries: int = 5,
        longest_pause: float = 60.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        verify = not url.startswith("http://")  # it follows no redirect, and to read certificates takes 20 ms
        self._http = httpx2.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, transport=transport, verify=verify
        )
        self._tries = tries
        self._longest_pause = longest_pause

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def iterate_jobs(
        self,
        *,
        state: list[State] | None = None,
        tier: list[Literal["spec", "patch", "agent"]] | None = None,
        site: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[JobSummary]:
        """Yield the tenant's jobs, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list_jobs(
                state=state, tier=tier, site=site, text=text, since=since, until=until, cursor=cursor, limit=200
            )
            for job in page.jobs:
                yield job
            if (cursor := page.next_cursor) is None:
                return

    async def list_job_events(self, job_id: UUID, *, after: int = 0) -> list[EventView]:
        """Return the events of a job so far.

        Args:
            job_id: the job.
            after: only those with a higher id.
        """
        query = {"format": "json", "after": after}
        return await self._call(list[EventView], "GET", f"/v1/jobs/{job_id}/events", query=query)

    async def follow_job(self, job_id: UUID, *, after: int = 0) -> AsyncIterator[EventView]:
        """Yield a job's events as they happen until it has ended. A cut stream goes on where it was.

        Args:
            job_id: the job.
            after: id of the last event that is known already.
        """
        failures = count(1)
        while True:
            wait = 1.0
            try:
                async with self._http.stream(
                    "GET", f"/v1/jobs/{job_id}/events", headers={"Last-Event-ID": str(after)}
                ) as answer:
                    if answer.status_code == 204:
                        return
                    if not answer.is_success:
                        wait = self._pause(Call("GET", ""), answer, await answer.aread(), next(failures))
                    else:
                        failures = count(1)  # a job may be quiet for longer than a call may take
                        async for sent in httpx2.EventSource(answer):
                            event = read_answer(EventView, sent.data)
                            after, wait = event.id, 0.0
                            yield event
            except httpx2.TransportError as error:
                wait = self._pause_after_cut(Call("GET", ""), error, next(failures))
            await asyncio.sleep(wait)

    async def wait_for_job(self, job_id: UUID, *, timeout: float | None = None) -> JobView:
        """Return a job once it has ended or waits for a person (`awaiting_approval`, `clarifying`).

        Raises:
            TimeoutError: it did neither within `timeout` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        for pause in count(1):
            job = await self.get_job(job_id)
            if job.is_final or job.state in (State.AWAITING_APPROVAL, State.CLARIFYING):
                return job
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"job {job_id} is {job.state} after {timeout:g} seconds")
            left = 2.0 if until is None else max(0.0, until - time.monotonic())
            await asyncio.sleep(min(0.1 * pause, 2.0, left))
        raise AssertionError

    async def _call(
        self,
        kind: type[T],
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        file: bytes | None = None,
        key: str | None = None,
        takes_key: bool = False,
    ) -> T:
        call = Call.of(method, path, query=query, body=body, file=file, key=key, takes_key=takes_key)
        for number in count(1):
            try:
                answer = await self._http.request(
                    call.method, call.path, params=call.query, content=call.content, headers=call.headers
                )
            except httpx2.TransportError as error:
                wait = self._pause_after_cut(call, error, number)
            else:
                if answer.is_success:
                    return read_answer(kind, answer.content)
                wait = self._pause(call, answer, answer.content, number)
            await asyncio.sleep(wait)
        raise AssertionError

    def _pause(self, call: Call, answer: httpx2.Response, body: bytes, number: int) -> float:
        """Return the seconds until another try, or raise the answer's error."""
        asked = retry_after(answer.headers)
        may_repeat = answer.status_code == 429 or (answer.status_code == 503 and call.is_repeatable)
        if not may_repeat or number >= self._tries or asked is None or asked > self._longest_pause:
            raise error_of(answer.status_code, body, asked)
        return asked

    def _pause_after_cut(self, call: Call, error: httpx2.TransportError, number: int) -> float:
        """Return the seconds until another try, or raise that there was no answer."""
        never_sent = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        if number >= self._tries or not (call.is_repeatable or never_sent):
            raise unreachable(self._http.base_url, error) from error
        return min(0.25 * 2.0**number, self._longest_pause)
