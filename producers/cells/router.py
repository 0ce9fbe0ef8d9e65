"""A reverse proxy before several cells: it finds the cell of a request and hands both streams through.

It has no state but what the directory told it a moment ago, and decides about nobody's rights: it believes a request's
tenant only so far as to choose a cell. Heads are written anew on both ways, hop by hop (RFC 9110, 7.6.1), and bodies
are framed anew, so that no two readers can disagree about where a request ends. What a client says came over other
proxies is dropped, as the cells believe none of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import httpx2
import uvloop
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from sqlalchemy.exc import SQLAlchemyError
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ledger.cells.directory import Directory
from monitoring.config import CellsConfig
from producers.api.app import create_server, run_servers
from producers.api.problems import problem
from producers.config import ApiConfig
from producers.errors import BodyTooLargeError
from routing.cells import (
    TENANT_COOKIE,
    Cell,
    CellRefusal,
    Clue,
    choose_cell,
    clue_of,
    is_login,
)

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 2**20
"""More than any cell takes: the largest is an archive of a site."""
MAX_FORM_BYTES = 4_096
"""Of a login, which is read whole."""
_MOST_KNOWN = 10_000
_RETRY = {"Retry-After": "2"}
_CONNECT_SECONDS = 3.0
_SILENT_SECONDS = 90.0
"""Between two parts of an answer; event streams have signs of life in between."""
_LOOK_UPS = 8
"""At the same moment: strangers' keys must not take all connections of the directory."""
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_DROPPED = _HOP_BY_HOP | frozenset(b"forwarded x-real-ip expect content-length".split())


class Known(NamedTuple):
    """Where a request went that gave this clue, and when the directory said so."""

    cell: Cell
    tenant: str | None
    at: float


class RouterMetrics:
    """A router's own metrics, at `/router/metrics`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "pointsman_router_requests",
            "Requests by the cell that they were led to, and its answer or why there is none.",
            ("cell", "outcome"),
            registry=self.registry,
        )
        self.directory_up = Gauge(
            "pointsman_router_directory_up", "1 if the directory answered last.", registry=self.registry
        )


class Places:
    """What the directory said, for as long as a lease; while it is away, what it said last."""

    def __init__(self, directory: Directory, *, lease_seconds: float, clock: Callable[[], float] = time.monotonic):
        self._directory = directory
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._known: dict[Clue, Known] = {}
        self._looking = asyncio.Semaphore(_LOOK_UPS)
        self.metrics = RouterMetrics()

    async def find(self, clue: Clue) -> Known | CellRefusal:
        """Return the cell of a clue."""
        known = self._known.get(clue)
        if known is not None and self._clock() - known.at < self._lease_seconds:
            return known
        try:
            async with self._looking:
                found = await asyncio.to_thread(self._look_up, clue)
        except SQLAlchemyError:
            self.metrics.directory_up.set(0)
            logger.warning("directory_unreachable")
            return known or CellRefusal.DIRECTORY_UNREACHABLE
        self.metrics.directory_up.set(1)
        if isinstance(found, Known):
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[clue] = found
        return found

    def _look_up(self, clue: Clue) -> Known | CellRefusal:
        at = self._clock()
        tenants, keys = (clue.tenant,) if clue.tenant else (), (clue.key_hash,) if clue.key_hash else ()
        said = self._directory.look_up(tenants=tenants, keys=keys)
        cell = choose_cell(said, clue)
        tenant = clue.tenant if clue.tenant in said.tenants else said.keys.get(clue.key_hash or "")
        return Known(cell, tenant, at) if isinstance(cell, Cell) else cell

    async def cells(self) -> list[Cell]:
        """Return all cells; none while the directory is away."""
        with suppress(SQLAlchemyError):
            return [*(await asyncio.to_thread(self._directory.look_up)).cells.values()]
        return []


class Router:
    """The ASGI application before the API and consoles of several cells, or before their pages."""

    def __init__(self, places: Places, *, url_of: Callable[[Cell], str], is_secure: bool = False) -> None:
        self._places = places
        self._url_of = url_of
        self._is_secure = is_secure
        self._previews: dict[str, Known] = {}
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS, pool=_CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            follow_redirects=False,
            trust_env=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; at the server's end, close the connections to the cells."""
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                if event == "shutdown":
                    await self._client.aclose()
                await send({"type": f"lifespan.{event}.complete"})
        elif scope["type"] == "http":
            with suppress(ClientDisconnect):
                response = await self._answer(Request(scope, receive))
                await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw.decode("latin-1")
        if path == "/router/healthz":
            return Response("ok", media_type="text/plain")
        if path == "/router/metrics":
            return Response(generate_latest(self._places.metrics.registry), media_type=CONTENT_TYPE_LATEST)
        form = await _read_form(request) if is_login(request.method, path) else b""
        if form is None:
            return problem(413, "invalid_request", f"a login has at most {MAX_FORM_BYTES} bytes")
        query = request.url.query
        if path.startswith("/preview/"):
            found = await self._find_preview(path.split("/")[2], request)
        else:
            headers = {name.lower(): value for name, value in request.headers.items()}
            found = await self._places.find(clue_of(path, headers, query=query, form=form))
        if isinstance(found, CellRefusal):
            self._count("none", found.value)
            return problem(503, found.value, "no cell can be asked now; nothing was accepted", headers=_RETRY)
        body = _content(form) if form else _bounded(request)
        response = await self._forward(request, found, raw, body, has_form=bool(form))
        if path.startswith("/console") and found.tenant is not None and (form or "tenant" in request.query_params):
            response.raw_headers.append((b"set-cookie", _cookie(found.tenant, is_secure=self._is_secure)))
        return response

    async def _forward(
        self, request: Request, known: Known, raw: bytes, body: AsyncIterator[bytes], *, has_form: bool
    ) -> Response:
        query: bytes = request.scope["query_string"]
        url = httpx2.URL(self._url_of(known.cell)).copy_with(raw_path=raw + (b"?" + query if query else b""))
        headers = _end_to_end(request.scope["headers"], dropped=_DROPPED)
        has_body = has_form or "transfer-encoding" in request.headers or "content-length" in request.headers
        if (length := request.headers.get("content-length")) is not None and "transfer-encoding" not in request.headers:
            headers.append((b"content-length", length.encode()))
        asked = self._client.build_request(request.method, url, headers=headers, content=body if has_body else None)
        for name in ("user-agent", "accept", "accept-encoding", "connection"):  # the client's own, or none
            if name not in request.headers:
                asked.headers.pop(name, None)
        try:
            answer = await self._client.send(asked, stream=True)
        except BodyTooLargeError:
            self._count(known.cell.name, "4xx")
            return problem(413, "invalid_request", f"a body has at most {MAX_BODY_BYTES} bytes")
        except httpx2.TransportError as error:
            self._count(known.cell.name, CellRefusal.UNREACHABLE.value)
            logger.warning("cell_unreachable", extra={"cell": known.cell.name, "error": type(error).__name__})
            detail = (
                "the cell of this tenant cannot be reached; whether the request arrived is not known: send it again"
            )
            return problem(503, CellRefusal.UNREACHABLE.value, detail, headers=_RETRY)
        self._count(known.cell.name, f"{answer.status_code // 100}xx")
        response = StreamingResponse(
            answer.aiter_raw(), status_code=answer.status_code, background=BackgroundTask(answer.aclose)
        )
        response.raw_headers = _end_to_end(answer.headers.raw, dropped=_HOP_BY_HOP | {b"date", b"server"})
        return response

    def _count(self, cell: str, outcome: str) -> None:
        self._places.metrics.requests.labels(cell, outcome).inc()

    async def _find_preview(self, token: str, request: Request) -> Known | CellRefusal:
        """Ask the cells whose link it is: only they can read it."""
        name = hashlib.sha256(token.encode()).hexdigest()
        found = await self._places.find(Clue())
        if isinstance(found, CellRefusal):
            return found
        kept = self._previews.get(name)
        if kept is not None and kept.at == found.at:
            return kept
        cells = await self._places.cells() or [found.cell]
        asked = await asyncio.gather(*(self._knows(cell, token) for cell in cells))
        cell = next((cell for cell, knows in zip(cells, asked, strict=True) if knows), found.cell)
        if len(self._previews) >= _MOST_KNOWN:
            self._previews.clear()
        self._previews[name] = known = Known(cell, None, found.at)
        return known

    async def _knows(self, cell: Cell, token: str) -> bool:
        url = httpx2.URL(self._url_of(cell)).copy_with(raw_path=f"/preview/{token}/".encode())
        with suppress(httpx2.TransportError):
            return (await self._client.head(url)).status_code != 404
        return False


async def _bounded(request: Request) -> AsyncIterator[bytes]:
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError(MAX_BODY_BYTES)
        yield part


async def _content(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _read_form(request: Request) -> bytes | None:
    """Return the body of a login; None for one that is too long."""
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MAX_FORM_BYTES:
            return None
    return data


def _end_to_end(headers: Iterable[tuple[bytes, bytes]], *, dropped: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are not for this hop alone, nor named by its `Connection`."""
    lower = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in lower if name == b"connection" for word in value.split(b",")}
    return [
        (name, value)
        for name, value in lower
        if name not in dropped and name not in named and not name.startswith(b"x-forwarded-")
    ]


def _cookie(tenant: str, *, is_secure: bool) -> bytes:
    secure = "; Secure" if is_secure else ""
    return f"{TENANT_COOKIE}={tenant}; Path=/console; HttpOnly; SameSite=Lax{secure}".encode()


def serve(config: CellsConfig) -> None:
    """Serve API, consoles and pages of all cells until SIGTERM or SIGINT."""
    directory = Directory(config.directory_url.get_secret_value())
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, directory))
    finally:
        directory.close()


async def _serve(config: CellsConfig, directory: Directory) -> None:
    places = Places(directory, lease_seconds=config.lease_seconds)
    is_secure = config.public_url.startswith("https:")
    routers = (
        Router(places, url_of=lambda cell: cell.api_url, is_secure=is_secure),
        Router(places, url_of=lambda cell: cell.pages_url),
    )
    listeners = (ApiConfig(host=config.host, port=port) for port in (config.port, config.pages_port))
    pairs = zip(routers, listeners, strict=True)
    await run_servers([create_server(router, config=each, lifespan="on") for router, each in pairs])
