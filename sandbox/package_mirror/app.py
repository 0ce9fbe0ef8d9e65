"""The mirror as an ASGI application: GET and HEAD of packages' metadata and files, and nothing else.

It is a process of its own, so that a registry's data is never parsed where a provider key is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import closing, suppress
from typing import Any, BinaryIO, Protocol
from urllib.parse import urlsplit

import uvicorn
from pydantic_core import to_json

from gateway.bearers import address_of, check_address, check_bearer, logged_path, token_of
from gateway.errors import LedgerUnreachableError
from gateway.ledger_client import Ledger
from gateway.messages import RefusedError
from ledger import events
from ledger.attempts import attempt_at, hash_token
from monitoring.asgi import Server, leave_on_signals, uvicorn_config
from routing.policy.platform import Policy
from sandbox.config import MirrorConfig
from sandbox.errors import MirrorRefusedError
from sandbox.package_mirror.descriptions import SHORT, Descriptions, Form
from sandbox.package_mirror.packages import Description, File, Incoming, Origin, Outbound, Packument, Store, parse_path
from sandbox.package_mirror.python_packages import SIMPLE_JSON, Distribution, Project, as_html, parse_python_path
from sandbox.package_mirror.registries import Registries, read_all

logger = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]

_MAX_ADMITTED = 4096
_CHUNK_BYTES = 64 * 1024
_HELLO = b"{}"
_WINDOW_SECONDS = 300.0
"""Misses of a box are counted for this long: none lives longer by default."""
_GRACE_SECONDS = 5
_MAX_CONNECTIONS = 512


class Admission(Protocol):
    """Says whose requests are served."""

    async def check(self, headers: Mapping[bytes, bytes], *, peer: str | None) -> str:
        """Return an id of the box that a request comes from: its address is none, since addresses are reused at once.

        Raises:
            MirrorRefusedError: the caller's fault; 503 when nobody can tell.
        """


class Callers:
    """Admits boxes with a live attempt, by their token or their forwarder's address.

    The ledger's answer is cached for a moment, since an install makes hundreds of requests.
    """

    def __init__(self, ledger: Ledger, policy: Policy, *, believed_seconds: float) -> None:
        self._ledger = ledger
        self._policy = policy
        self._believed_seconds = believed_seconds
        self._admitted: dict[tuple[str, str | None], tuple[str, float]] = {}
        """Attempts, and until when they are believed."""

    async def check(self, headers: Mapping[bytes, bytes], *, peer: str | None) -> str:
        """See `Admission.check`."""
        address = address_of(peer)
        if address is None:
            raise MirrorRefusedError(401, "packages are for boxes: this request has no address")
        token_hash = hash_token(token_of(headers)) if b"authorization" in headers else None
        now = time.monotonic()
        attempt, until = self._admitted.get((address, token_hash), ("", 0.0))
        if until > now:
            return attempt
        try:
            attempt = await self._attempt(address, token_hash)
        except RefusedError as refusal:
            raise MirrorRefusedError(refusal.status, refusal.message) from None
        except LedgerUnreachableError:
            raise MirrorRefusedError(503, "the ledger is unreachable: callers cannot be authenticated") from None
        if len(self._admitted) >= _MAX_ADMITTED:
            self._admitted.clear()
        self._admitted[address, token_hash] = attempt, now + self._believed_seconds
        return attempt

    async def _attempt(self, address: str, token_hash: str | None) -> str:
        if token_hash is not None:
            bearer = check_bearer(await self._ledger.bearer(token_hash))
            check_address(bearer, address=address, limits=self._policy.queues[bearer.queue])
            return str(bearer.attempt_id)
        for (attempt_id,) in await self._ledger.query(attempt_at(address)):
            return str(attempt_id)
        raise MirrorRefusedError(401, "packages are for boxes: no live attempt is bound to this address")


class Transfer:
    """Sends one file while it is hashed, and its last piece only once the digest matches.

    So a caller never gets a whole file with the wrong content, and need not wait for the end before it gets the
    beginning. Each piece is read after the previous one was sent, so that a slow box slows the download.
    """

    def __init__(self, origin: Origin, send: Send) -> None:
        self._origin = origin
        self._send = send
        self.sent_bytes = 0
        self.has_begun = False

    async def from_store(self, store: Store) -> bool:
        """Send the file from the store; False if it is missing or corrupt. A corrupt file is removed.

        If a file proves corrupt after its beginning was sent, the response breaks off.
        """
        entry = store.open(self._origin.digest)
        if entry is None:
            return False
        file, size = entry
        with file:
            is_whole = await self._pass_on(_pieces(file), length=size)
        if not is_whole:
            logger.warning("package_damaged", extra={"digest": self._origin.digest.hex})
            store.remove(self._origin.digest)
        return is_whole or self.has_begun

    async def from_registry(self, outbound: Outbound, store: Store, config: MirrorConfig) -> None:
        """Send the file from the registry, and store it.

        Raises:
            MirrorRefusedError: the registry's fault.
        """
        async with outbound.get(self._origin.url, {"accept-encoding": "identity"}, is_raw=True) as response:
            if response.status != 200:
                status = 404 if response.status in (404, 410) else 502
                raise MirrorRefusedError(status, f"the registry answered {response.status} for this file")
            length = response.content_length
            if length is not None and length > config.package_bytes:
                raise MirrorRefusedError(502, f"the file is longer than {config.package_bytes} bytes")
            with closing(Incoming(store)) as incoming:
                pieces = incoming.watch(_bounded(response.content.iter_chunked(_CHUNK_BYTES), config.package_bytes))
                if not await self._pass_on(pieces, length=length, keep=lambda: incoming.keep(self._origin.digest)):
                    raise MirrorRefusedError(502, "the file does not match the registry's digest")

    async def _pass_on(
        self, pieces: AsyncIterator[bytes], *, length: int | None, keep: Callable[[], None] | None = None
    ) -> bool:
        """Send pieces, the last one only if the digest matches."""
        hasher = self._origin.digest.hasher()
        held = b""
        async for piece in pieces:
            hasher.update(piece)
            if held:
                await self._give(held, length=length, is_last=False)
            held = piece
        if hasher.hexdigest() != self._origin.digest.hex:
            return False
        if keep is not None:
            keep()
        await self._give(held, length=length, is_last=True)
        return True

    async def _give(self, piece: bytes, *, length: int | None, is_last: bool) -> None:
        if not self.has_begun:
            self.has_begun = True
            headers = [(b"content-type", b"application/octet-stream"), (b"cache-control", b"private, max-age=86400")]
            if length is not None:
                headers.append((b"content-length", str(length).encode()))
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        self.sent_bytes += len(piece)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield a stored file; where the disk fails, it ends, and its digest says so."""
    with suppress(OSError):
        while piece := file.read(_CHUNK_BYTES):
            yield piece


async def _bounded(pieces: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > limit:
            raise MirrorRefusedError(502, f"the file is longer than {limit} bytes")
        yield piece


class Mirror:
    """One mirror. Use is counted in the ledger, if there is one, which is closed with it."""

    def __init__(
        self, config: MirrorConfig, registries: Registries, admission: Admission, *, ledger: Ledger | None = None
    ) -> None:
        self._config = config
        self._registries = registries
        self._prefixes = tuple({urlsplit(url).path for url in registries.npm_urls})
        self._ledger = ledger
        self._admission = admission
        self._store = Store(config.cache, max_bytes=config.cache_bytes)
        self._unknown: Counter[str] = Counter()
        self._window_until = 0.0
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._outbound: Outbound
        self._descriptions: Descriptions
        self._recorder: asyncio.Task[None]

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
        self._recorder = asyncio.create_task(self._record_periodically())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._recorder.cancel()
        await self._record()
        await self._outbound.close()
        if self._ledger is not None:
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
        target = parse_python_path(scope["path"]) or parse_path(scope["path"], prefixes=self._prefixes)
        if target is None or scope["query_string"]:
            raise MirrorRefusedError(404, "this mirror serves packages' metadata and files, and nothing else")
        headers = dict(scope["headers"])
        box = await self._admission.check(headers, peer=scope["client"][0] if scope.get("client") else None)
        if time.monotonic() > self._window_until:
            self._unknown.clear()
            self._window_until = time.monotonic() + _WINDOW_SECONDS
        if self._unknown[box] >= self._config.unknown_per_box:
            raise MirrorRefusedError(429, "too many nonexistent packages were requested")
        try:
            if isinstance(target, Description):
                await self._describe(target, headers, send, method=scope["method"])
            elif isinstance(target, Project):
                await self._list(target, headers, send, method=scope["method"])
            else:
                await self._send_file(target, send, method=scope["method"])
        except MirrorRefusedError as refusal:
            if refusal.status == 404:
                self._unknown[box] += 1
            raise

    async def _describe(self, target: Description, headers: Mapping[bytes, bytes], send: Send, *, method: str) -> None:
        is_short = SHORT.encode() in headers.get(b"accept", b"")
        found = await self._descriptions.get(target.name, Form.SHORT if is_short else Form.FULL)
        await self._show(found, headers, send, method=method, kind=SHORT if is_short else "application/json")

    async def _list(self, target: Project, headers: Mapping[bytes, bytes], send: Send, *, method: str) -> None:
        page, is_hit = await self._descriptions.get(target.name, Form.PYTHON)
        kind = SIMPLE_JSON
        if SIMPLE_JSON.encode() not in headers.get(b"accept", b""):
            page, kind = Packument(as_html(page.body), f'{page.etag[:-1]}h"', page.files), "text/html; charset=utf-8"
        await self._show((page, is_hit), headers, send, method=method, kind=kind)

    async def _show(
        self, found: tuple[Packument, bool], headers: Mapping[bytes, bytes], send: Send, *, method: str, kind: str
    ) -> None:
        packument, is_hit = found
        etag = packument.etag.encode()
        named = [(b"etag", etag), (b"vary", b"accept"), (b"cache-control", b"private, max-age=60")]
        if headers.get(b"if-none-match") == etag:
            await send({"type": "http.response.start", "status": 304, "headers": named})
            await send({"type": "http.response.body", "body": b""})
            self._count(is_hit=is_hit, sent=0)
            return
        await _reply(send, 200, packument.body, method=method, headers=named, kind=kind.encode())
        self._count(is_hit=is_hit, sent=len(packument.body) if method == "GET" else 0)

    async def _send_file(self, target: File | Distribution, send: Send, *, method: str) -> None:
        packument, _ = await self._descriptions.get(
            target.name, Form.PYTHON if isinstance(target, Distribution) else Form.SHORT
        )
        origin = packument.files.get(target.file)
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
            self._requests["failed"] += 1  # a response that has begun can only be broken off
            logger.warning("package_broken_off", extra={"file": target.file[:80]})

    def _count(self, *, is_hit: bool, sent: int) -> None:
        result = "hit" if is_hit else "fetched"
        self._requests[result] += 1
        self._bytes[result] += sent

    async def _record_periodically(self) -> None:
        while True:
            await asyncio.sleep(self._config.record_seconds)
            await self._record()

    async def _record(self) -> None:
        requests, self._requests = self._requests, Counter()
        sent, self._bytes = self._bytes, Counter()
        if not requests or self._ledger is None:
            return
        try:
            counts = {result: (number, sent[result]) for result, number in requests.items()}
            await self._ledger.run(events.record_mirror_use(counts))
        except LedgerUnreachableError:
            self._requests.update(requests)
            self._bytes.update(sent)


async def _reply(
    send: Send,
    status: int,
    body: bytes,
    *,
    method: str,
    headers: list[tuple[bytes, bytes]] | None = None,
    kind: bytes = b"application/json",
) -> None:
    named = [(b"content-type", kind), *(headers or [])]
    if method != "HEAD" or body:
        named.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def fleet_mirror(config: MirrorConfig, ledger_url: str, policy: Policy, registries: Registries) -> Mirror:
    """Return the mirror of an installation: it serves boxes with a live attempt, and counts in the ledger."""
    ledger = Ledger(ledger_url, connections=config.ledger_connections)
    callers = Callers(ledger, policy, believed_seconds=config.caller_cache_seconds)
    return Mirror(config, registries, callers, ledger=ledger)


def server_config(config: MirrorConfig, mirror: Mirror) -> uvicorn.Config:
    """Return the ASGI server's settings around a mirror."""
    return uvicorn_config(
        mirror,
        host=config.host,
        port=config.port,
        lifespan="on",
        grace_seconds=_GRACE_SECONDS,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=30,
    )


def serve(config: MirrorConfig, ledger_url: str, policy: Policy, *, environment: Mapping[str, str]) -> None:
    """Serve until SIGTERM or SIGINT, then leave with exit code 0.

    Raises:
        RegistryConfigError: the operator's fault: neither npm nor an npmrc names a registry, or pip's is no URL.
    """
    registries = read_all(config, environment)
    leave_on_signals()
    Server(server_config(config, fleet_mirror(config, ledger_url, policy, registries))).run()
