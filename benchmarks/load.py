"""HTTP calls at next to no cost of the caller's own: requests are written as bytes, answers only looked at for status.

A client library would be slower than what it is to measure.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

import httptools
import uvloop

BODY = json.dumps(
    {
        "model": "claude-haiku-4-5-20251001",
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": "Does bread rise faster in a warm kitchen? Answer in one word."}],
    }
).encode()
_HTTP_OK = 200


class Caller:
    """One connection to a Messages API, kept open; one call at a time.

    Args:
        url: the API's base URL.
        token: the bearer token that its calls carry.
    """

    def __init__(self, url: str, token: str) -> None:
        self._place = urlsplit(url)
        lines = [
            "POST /v1/messages HTTP/1.1",
            f"host: {self._place.netloc}",
            f"authorization: Bearer {token}",
            "anthropic-version: 2023-06-01",
            "content-type: application/json",
            f"content-length: {len(BODY)}",
        ]
        self._request = "\r\n".join(lines).encode() + b"\r\n\r\n" + BODY

    async def open(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._place.hostname, self._place.port)
        return self

    async def call(self) -> None:
        """Call the model, on a new connection where the server has closed the old one meanwhile.

        Raises:
            ConnectionError: it did not answer well.
        """
        if not await self._call():
            await self.open()
            if not await self._call():
                raise ConnectionError("the server closes its connections at once")

    async def _call(self) -> bool:
        """Call the model; False when nothing came back."""
        self._writer.write(self._request)
        self._is_complete, self._said = False, b""
        parser = httptools.HttpResponseParser(self)
        while not self._is_complete:
            if not (part := await self._reader.read(65_536)):
                return False
            parser.feed_data(part)
        if parser.get_status_code() != _HTTP_OK:
            raise ConnectionError(f"it said {parser.get_status_code()}: {self._said[:500]!r}")
        return True

    def on_body(self, body: bytes) -> None:
        """For the parser."""
        self._said += body

    def on_message_complete(self) -> None:
        """For the parser."""
        self._is_complete = True


class Callers:
    """Calls of several connections, driven from outside of any event loop."""

    def __init__(self, url: str, tokens: Sequence[str]) -> None:
        self._loop = uvloop.new_event_loop()
        self._callers = [self._loop.run_until_complete(Caller(url, token).open()) for token in tokens]

    def close(self) -> None:
        self._loop.close()

    def each(self, times: int) -> list[float]:
        """Return what each of so many calls took, in seconds, all on the first connection."""

        async def run() -> list[float]:
            took = []
            for _ in range(times):
                began = time.perf_counter()
                await self._callers[0].call()
                took.append(time.perf_counter() - began)
            return took

        return self._loop.run_until_complete(run())

    def together(self, times: int) -> float:
        """Return what so many calls took together, in seconds, shared out evenly over all connections."""

        async def share(caller: Caller, calls: int) -> None:
            for _ in range(calls):
                await caller.call()

        async def run() -> None:
            shares = [times // len(self._callers)] * len(self._callers)
            for place in range(times % len(shares)):
                shares[place] += 1
            await asyncio.gather(*map(share, self._callers, shares))

        began = time.perf_counter()
        self._loop.run_until_complete(run())
        return time.perf_counter() - began
