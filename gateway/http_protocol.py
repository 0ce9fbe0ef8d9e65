"""HTTP/1.1 for every server that strangers reach: a request that does not arrive in time is given up.

uvicorn limits the pause between two requests and nothing else: each begun and never finished one would hold its
connection, and a buffer, for ever.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class TimedHttpProtocol(HttpToolsProtocol):
    """A connection with a deadline for the head of each request, and one for its body."""

    head_seconds = 10.0
    """For a whole head, from the connection or, where it is kept alive, from the request's first byte."""
    body_seconds = 20.0
    """For a body, and a second more for each `body_bytes` that have come."""
    body_bytes = 16_384

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: TimerHandle | None = None
        self._due = 0.0
        self._has_begun = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of what begins here."""
        if self._timer is None:
            self._wait(self.head_seconds)
        self._has_begun = True
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        super().on_headers_complete()
        self._wait(self.body_seconds)

    def on_body(self, body: bytes) -> None:
        """Allow a long body more time."""
        self._due += len(body) / self.body_bytes
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._has_begun = False
        super().on_message_complete()

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._due = self.loop.time() + seconds
        self._timer = self.loop.call_at(self._due, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _give_up(self) -> None:
        if self.flow.read_paused:  # we are the ones who are slow
            self._due = max(self._due, self.loop.time() + self.head_seconds)
        if self._due > self.loop.time():
            self._timer = self.loop.call_at(self._due, self._give_up)
            return
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if self._has_begun and not is_answering:
            self.transport.write(_TOO_SLOW)
        self.transport.close()
