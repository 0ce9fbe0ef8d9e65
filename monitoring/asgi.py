"""The ASGI server of every program: uvicorn's, without its wakes, and with an end to requests that do not arrive."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio import TimerHandle, Transport
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TICK_SECONDS = 0.5


class Server(uvicorn.Server):
    """A server that sleeps while idle; uvicorn's own wakes ten times a second to see whether to exit."""

    async def main_loop(self) -> None:
        """Keep the date of replies, and look for the end."""
        while not await self.on_tick(0):
            await asyncio.sleep(_TICK_SECONDS)


def _refusal(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()


_TOO_SLOW = _refusal("408 Request Timeout")
_TOO_LARGE = _refusal("431 Request Header Fields Too Large")


class TimedHttpProtocol(HttpToolsProtocol):
    """HTTP/1.1 for strangers: each request's head has a deadline and a size, and its body a deadline.

    uvicorn limits the pause between two requests and nothing else: each begun and never finished one would hold its
    connection, and a buffer that grows with whatever comes, for ever.
    """

    head_seconds = 10.0
    """For a whole head, from the connection or, where it is kept alive, from the request's first byte."""
    body_seconds = 20.0
    """For a body, and a second more for each `body_bytes` that have come."""
    body_bytes = 16_384
    head_bytes = 65_536
    """Limit of an incomplete head, body or trailers, plus what one read brought with it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: TimerHandle | None = None
        self._due = 0.0
        self._has_begun = False
        self._unread = 0
        """Bytes of a head, or of trailers, that is not whole yet."""

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
        self._unread += len(data)
        super().data_received(data)
        if self._unread > self.head_bytes:
            self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Wait for the body."""
        self._unread = 0
        super().on_headers_complete()
        self._wait(self.body_seconds)

    def on_body(self, body: bytes) -> None:
        """Allow a long body more time."""
        self._unread = 0
        self._due += len(body) / self.body_bytes
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop waiting."""
        self._stop_waiting()
        self._has_begun, self._unread = False, 0
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
        if self.flow.read_paused:  # this server is slow, not the client
            self._due = max(self._due, self.loop.time() + self.head_seconds)
        if self._due > self.loop.time():
            self._timer = self.loop.call_at(self._due, self._give_up)
            return
        self._refuse(_TOO_SLOW)

    def _refuse(self, why: bytes) -> None:
        is_answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if self._has_begun and not is_answering:
            self.transport.write(why)
        self.transport.close()


def leave_on_signals() -> None:
    """Let SIGTERM and SIGINT end this process with exit code 0: a server raises them again when it has shut down."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))


def uvicorn_config(
    app: Any, *, host: str, port: int, grace_seconds: int, lifespan: Literal["on", "off"] = "off", **limits: int
) -> uvicorn.Config:
    """Return the settings of a program's server: what came over a proxy is not believed, and programs log themselves.

    Args:
        app: an ASGI application.
        host: the address to listen on.
        port: there.
        grace_seconds: how long requests may take after a signal.
        lifespan: whether the application is told of start and end.
        limits: uvicorn's own: `limit_concurrency`, `timeout_keep_alive`.
    """
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="uvloop",
        http=TimedHttpProtocol,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=grace_seconds,
        **limits,  # type: ignore[arg-type]
    )
