"""The mirror as an ASGI application: GET and HEAD of packages' descriptions and files, and nothing else.

It is a process of its own, beside the gateway: whatever a registry sends, it is read where no provider key is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic_core import to_json

from monitoring.ledger import events
from routing.policy import Policy
from sandbox.gateway.auth import logged_path
from sandbox.gateway.ledger import Ledger, LedgerUnreachableError
from sandbox.mirror.callers import Callers
from sandbox.mirror.config import MirrorConfig
from sandbox.mirror.descriptions import SHORT, Descriptions
from sandbox.mirror.errors import MirrorRefusedError
from sandbox.mirror.outbound import Outbound
from sandbox.mirror.paths import Description, File, parse_path
from sandbox.mirror.registries import Registries, path_of
from sandbox.mirror.store import Store
from sandbox.mirror.transfer import Transfer

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_HELLO = b"{}"
_WINDOW_SECONDS = 300.0
"""Doors are used again: what is held against one is forgotten after so long, the longest life of a box."""


class Mirror:
    """One mirror process."""

    def __init__(self, config: MirrorConfig, ledger_url: str, policy: Policy, registries: Registries) -> None:
        self._config = config
        self._registries = registries
        self._prefixes = tuple({path_of(url) for url in registries.urls})
        self._ledger = Ledger(ledger_url, connections=config.ledger_connections)
        self._callers = Callers(self._ledger, policy, believed_seconds=config.door_seconds)
        self._store = Store(config.cache, max_bytes=config.cache_bytes)
        self._unknown: Counter[str] = Counter()
        self._window_until = 0.0
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._outbound: Outbound
        self._descriptions: Descriptions
        self._teller: asyncio.Task[None]

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._outbound = Outbound(self._registries, self._config)
        self._descriptions = Descriptions(self._outbound, self._registries, self._config)
        self._teller = asyncio.create_task(self._tell_often())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._teller.cancel()
        await self._tell()
        await self._outbound.close()
        await self._ledger.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Any, send: Send) -> None:
        if scope["path"] == "/-/ping":
            await _reply(send, 200, _HELLO, method=scope["method"])
            return
        try:
            async with asyncio.timeout(self._config.request_seconds):
                await self._serve(scope, send)
        except MirrorRefusedError as refusal:
            self._requests["failed" if refusal.status >= 500 else "refused"] += 1
            logger.info("package_refused", extra={"status": refusal.status, "path": logged_path(scope["path"])})
            allow = [(b"allow", b"GET, HEAD")] if refusal.status == 405 else []
            body = to_json({"error": refusal.message})
            await _reply(send, refusal.status, body, method=scope["method"], headers=allow)
        except TimeoutError:
            self._requests["failed"] += 1
            logger.info("package_too_slow", extra={"path": logged_path(scope["path"])})

    async def _serve(self, scope: Any, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise MirrorRefusedError(405, "this mirror is read only")
        asked = parse_path(scope["path"], prefixes=self._prefixes)
        if asked is None or scope["query_string"]:
            raise MirrorRefusedError(404, "this mirror has packages' descriptions and files, and nothing else")
        headers = dict(scope["headers"])
        door = await self._callers.check(headers, peer=scope["client"][0] if scope.get("client") else None)
        if time.monotonic() > self._window_until:
            self._unknown.clear()
            self._window_until = time.monotonic() + _WINDOW_SECONDS
        if self._unknown[door] >= self._config.unknown_per_door:
            raise MirrorRefusedError(429, "too many packages were asked for that do not exist")
        try:
            if isinstance(asked, Description):
                await self._describe(asked, headers, send, method=scope["method"])
            else:
                await self._send_file(asked, send, method=scope["method"])
        except MirrorRefusedError as refusal:
            if refusal.status == 404:
                self._unknown[door] += 1
            raise

    async def _describe(self, asked: Description, headers: Mapping[bytes, bytes], send: Send, *, method: str) -> None:
        is_short = SHORT.encode() in headers.get(b"accept", b"")
        packument, is_hit = await self._descriptions.get(asked.name, is_short=is_short)
        etag = packument.etag.encode()
        named = [(b"etag", etag), (b"vary", b"accept"), (b"cache-control", b"private, max-age=60")]
        if headers.get(b"if-none-match") == etag:
            await send({"type": "http.response.start", "status": 304, "headers": named})
            await send({"type": "http.response.body", "body": b""})
            self._count(is_hit=is_hit, sent=0)
            return
        kind = SHORT.encode() if is_short else b"application/json"
        await _reply(send, 200, packument.body, method=method, headers=named, kind=kind)
        self._count(is_hit=is_hit, sent=len(packument.body) if method == "GET" else 0)

    async def _send_file(self, asked: File, send: Send, *, method: str) -> None:
        packument, _ = await self._descriptions.get(asked.name, is_short=True)
        origin = packument.files.get(asked.file)
        if origin is None:
            raise MirrorRefusedError(404, "the operator's registry has no such file, or states no digest for it")
        if method == "HEAD":
            await _reply(send, 200, b"", method=method, kind=b"application/octet-stream")
            self._count(is_hit=True, sent=0)
            return
        transfer = Transfer(origin, send)
        try:
            is_hit = await transfer.from_store(self._store)
            if not is_hit:
                await transfer.from_registry(self._outbound, self._store, self._config)
            self._count(is_hit=is_hit, sent=transfer.sent_bytes)
        except MirrorRefusedError:
            if not transfer.has_begun:
                raise
            self._requests["failed"] += 1  # an answer that has begun can only be broken off
            logger.warning("package_broken_off", extra={"file": asked.file[:80]})

    def _count(self, *, is_hit: bool, sent: int) -> None:
        result = "hit" if is_hit else "fetched"
        self._requests[result] += 1
        self._bytes[result] += sent

    async def _tell_often(self) -> None:
        while True:
            await asyncio.sleep(self._config.tell_seconds)
            await self._tell()

    async def _tell(self) -> None:
        requests, self._requests = self._requests, Counter()
        sent, self._bytes = self._bytes, Counter()
        if not requests:
            return
        try:
            counts = {result: (number, sent[result]) for result, number in requests.items()}
            await self._ledger.run(events.record_mirror_use(counts))
        except LedgerUnreachableError:
            self._requests.update(requests)
            self._bytes.update(sent)


async def _reply(
    send: Send, status: int, body: bytes, *, method: str, headers: list[tuple[bytes, bytes]] | None = None,
    kind: bytes = b"application/json",
) -> None:  # fmt: skip
    named = [(b"content-type", kind), *(headers or [])]
    if method != "HEAD" or body:
        named.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
