"""Plays one reply: paces it, breaks it where a fault says so, and notices when the client has left.

Pauses come before a write, and the client is looked for after the pause: what a client cut off is never
counted as sent.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from aiohttp import ClientConnectionResetError, web

from sandbox.rehearsal.events import (
    error_body,
    error_event,
    error_text,
    error_type,
    malformed_event,
    message_body,
    stream_steps,
)
from sandbox.rehearsal.log import Finish
from sandbox.rehearsal.reply import Reply
from sandbox.rehearsal.scenario import Fault
from sandbox.rehearsal.tokens import CHARACTERS_PER_TOKEN


class Pace(NamedTuple):
    """How fast a reply is written."""

    first_token_seconds: float
    tokens_per_second: float


@dataclass
class Progress:
    """How far a reply came. The request log is written from it, whatever ends the call."""

    characters: int = 0
    """Characters sent."""
    has_begun: bool = False
    """Whether the message's first event, or the whole message, was sent."""
    status: int | None = None
    finish: Finish = "completed"
    is_stalled: bool = False


class ClientGoneError(ConnectionError):
    """The client closed its connection before the reply ended."""


class _Sink(Protocol):
    async def write(self, data: bytes) -> None: ...

    async def end(self) -> web.StreamResponse: ...

    async def fail(self, fault: Fault) -> web.StreamResponse: ...


class StreamSink:
    """Sends server-sent events."""

    def __init__(self, http: web.Request, request_id: str, progress: Progress) -> None:
        self._http, self._request_id, self._progress = http, request_id, progress
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "request-id": request_id,
        }
        self._response = web.StreamResponse(headers=headers)

    async def write(self, data: bytes) -> None:
        """Send some events."""
        if not self._response.prepared:
            await self._response.prepare(self._http)
            self._progress.status = 200
        await self._response.write(data)

    async def end(self) -> web.StreamResponse:
        """End the response."""
        await self._response.write_eof()
        return self._response

    async def fail(self, fault: Fault) -> web.StreamResponse:
        """Send the event of an injected error, or a broken one, and end."""
        if fault.kind == "malformed":
            await self.write(malformed_event())
        else:
            await self.write(error_event(error_type(fault.status), error_text(fault.status), self._request_id))
        return await self.end()


class BodySink:
    """Sends the whole message at its end."""

    def __init__(self, reply: Reply, request_id: str, progress: Progress) -> None:
        self._reply, self._request_id, self._progress = reply, request_id, progress

    async def write(self, data: bytes) -> None:
        """Send nothing: the message is sent whole."""

    async def end(self) -> web.StreamResponse:
        """Return the message."""
        self._progress.status = 200
        return web.json_response(message_body(self._reply), headers={"request-id": self._request_id})

    async def fail(self, fault: Fault) -> web.StreamResponse:
        """Return an injected error, or a message that ends in the middle."""
        if fault.kind == "status":
            self._progress.has_begun = False
            self._progress.status = fault.status
            return status_response(fault, self._request_id)
        whole = await self.end()
        assert isinstance(whole, web.Response)
        text = whole.text or ""
        return web.Response(
            text=text[: len(text) // 2], content_type="application/json", headers={"request-id": self._request_id}
        )


def status_response(fault: Fault, request_id: str) -> web.Response:
    """Return the HTTP error of an injected fault."""
    headers = {"request-id": request_id}
    if fault.retry_after_seconds is not None:
        headers["retry-after"] = f"{fault.retry_after_seconds:g}"
    if fault.should_retry is not None:
        headers["x-should-retry"] = str(fault.should_retry).lower()
    body = error_body(error_type(fault.status), error_text(fault.status), request_id)
    return web.json_response(body, status=fault.status, headers=headers)


@dataclass
class Stage:
    """One reply being played to one client."""

    http: web.Request
    sink: _Sink
    progress: Progress
    pace: Pace | None
    """None = no pauses."""
    fault: Fault | None
    _started: float = 0.0

    async def play(self, reply: Reply) -> web.StreamResponse:
        """Send the reply to its end, or to where its fault strikes.

        Raises:
            ClientGoneError: the client left; `progress` says how much it was sent.
        """
        self._started = asyncio.get_running_loop().time()
        pending, fault = self.fault, self.fault
        for step in stream_steps(reply, boundary=fault.after_characters if fault else None):
            await self._pause(step.characters)
            if pending and (self.progress.characters >= pending.after_characters or step.is_last):
                if (response := await self._strike(pending)) is not None:
                    return response
                pending = None
            try:
                await self.sink.write(step.data)
            except ClientConnectionResetError:
                raise ClientGoneError from None
            self.progress.has_begun = True
            self.progress.characters += step.characters
        return await self.sink.end()

    async def _pause(self, characters: int) -> None:
        """Wait until `characters` more are due, and look whether the client is still there."""
        if self.pace is not None:
            written = (self.progress.characters + characters) / CHARACTERS_PER_TOKEN
            due = self._started + self.pace.first_token_seconds + written / self.pace.tokens_per_second
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        elif characters:
            await asyncio.sleep(0)
        self._look()

    def _look(self) -> None:
        if self.http.transport is None or self.http.transport.is_closing():
            raise ClientGoneError

    async def _strike(self, fault: Fault) -> web.StreamResponse | None:
        """Let a fault happen. Returns the response when it ends the reply."""
        if fault.kind == "stall":
            self.progress.is_stalled = True
            await asyncio.sleep(fault.seconds)
            self._look()
            self.progress.is_stalled = False
            self._started += fault.seconds
            return None
        if fault.kind == "cut":
            self.progress.finish = "server_cut"
            if self.http.transport is not None:
                self.http.transport.close()
            raise ConnectionAbortedError
        self.progress.finish = "fault"
        return await self.sink.fail(fault)
