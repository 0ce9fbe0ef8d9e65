"""The gateway as an ASGI application: two paths that reach a provider, two health checks, and nothing else.

It is raw ASGI: a framework's request and response objects would take a third of the time of a whole call.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import uvicorn

from gateway import messages as messages_api
from gateway.admission import Admission, Caller, CircuitReporter
from gateway.bearers import logged_path
from gateway.config import GatewayConfig
from gateway.errors import LedgerUnreachableError
from gateway.fleet_budget import FleetBudget
from gateway.journal import Journal
from gateway.ledger_client import Ledger
from gateway.messages import Code, ModelRequest, RefusedError
from gateway.open_calls import CLIENT_GONE, OpenCall, OpenCalls
from gateway.reconciliation import Reconciliation
from gateway.relay import Relay, trace_call
from gateway.upstream import open_session, read_up_to
from monitoring.asgi import Server, leave_on_signals, uvicorn_config
from monitoring.config import CellsConfig
from routing.policy.platform import Policy

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_COUNT_SECONDS = 10.0
_MAX_COUNT_BYTES = 64 * 1024
_IP_FREEBIND = 15
"""Linux option (ip(7)) to bind to an address that does not exist yet; Python has no name for it."""


ALONE = CellsConfig()
"""Of a gateway whose installation is no cell."""


class Gateway:
    """One gateway process."""

    def __init__(self, config: GatewayConfig, ledger_url: str, policy: Policy, cells: CellsConfig) -> None:
        self.instance = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._config = config
        self._max_body_bytes = policy.gateway.max_body_bytes
        self._journal = Journal(config.journal, instance=self.instance)
        self._ledger = Ledger(ledger_url, connections=config.ledger_connections, journal=self._journal)
        keep_days = min(config.journal_days, policy.retention.job_days)  # what retention deletes is no loss
        self._reconciliation = Reconciliation(config.journal, self._ledger, keep_days=keep_days)
        self._calls = OpenCalls(self._ledger, self._config)
        self._fleet = FleetBudget(cells)
        self._admission = Admission(
            self._ledger,
            self._config,
            policy,
            instance=self.instance,
            count_tokens=self._count_tokens,
            settle_later=self._calls.settle_later,
            fleet=self._fleet,
        )
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._session = open_session(self._config)
        self._calls.open()
        reconciling = asyncio.create_task(self._reconciliation.run(every_seconds=self._config.reconcile_seconds))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._calls.close()
        reconciling.cancel()
        await asyncio.gather(reconciling, return_exceptions=True)
        self._reconciliation.close()
        self._journal.close()
        await self._session.close()
        await self._ledger.close()
        self._fleet.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        try:
            match scope["method"], scope["path"]:
                case "POST", messages_api.MESSAGES_PATH:
                    await self._message(scope, receive, send)
                case "POST", messages_api.COUNT_PATH:
                    await self._count(scope, receive, send)
                case ("GET" | "HEAD", "/api/hello") | ("GET", "/healthz"):
                    health = {
                        "service": "pointsman-gateway",
                        "stood_still_seconds_ago": self._calls.stood_still_seconds_ago,
                    }
                    await _reply(send, 200, [(b"content-type", b"application/json")], messages_api.encode(health))
                case _:
                    raise RefusedError(Code.NOT_FOUND, "this gateway serves the Messages API and nothing else")
        except RefusedError as refusal:
            logger.info("call_refused", extra={"code": refusal.code.value, "path": logged_path(scope["path"])})
            await _reply(send, refusal.status, refusal.headers, refusal.body)
        except LedgerUnreachableError:
            closed = RefusedError(Code.LEDGER_UNREACHABLE, "the ledger is unreachable: no call is made without it")
            await _reply(send, closed.status, closed.headers, closed.body)

    async def _message(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        caller = await self._admission.caller(headers, peer=_peer(scope), reserves=True)
        request = self._admission.request(caller, await self._body(headers, receive))
        with trace_call(caller, request):
            await self._carry(caller, request, receive, send)

    async def _carry(self, caller: Caller, request: ModelRequest, receive: Receive, send: Send) -> None:
        admitted = await self._admission.admit(caller, request)
        assert self._session is not None
        call = OpenCall(admitted, start_seconds=self._config.start_seconds)
        relay = Relay(call, send, session=self._session, circuit=CircuitReporter(admitted, self._ledger))
        carried = self._calls.spawn(relay.run(self._ledger, self._calls))
        client = asyncio.ensure_future(receive())
        client.add_done_callback(lambda leaving: None if leaving.cancelled() else call.interrupt(CLIENT_GONE))
        try:
            await asyncio.shield(carried)
        finally:
            client.cancel()

    async def _count(self, scope: Any, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        caller = await self._admission.caller(headers, peer=_peer(scope))
        request = self._admission.request(caller, await self._body(headers, receive), is_count=True)
        answer = await self._ask_count(caller, request)
        if answer is None:
            raise _unreachable()
        status, passed, body = answer
        await _reply(send, status, passed, caller.provider.pass_back(body, status=status))

    async def _count_tokens(self, caller: Caller, request: ModelRequest) -> int | None:
        """Ask the provider for a tighter bound than the request's own, free of charge."""
        answer = await self._ask_count(caller, request)
        if answer is None or caller.provider.trouble_of(answer[0]) is not None:
            raise _unreachable()
        return caller.provider.read_count(answer[2]) if answer[0] == 200 else None

    async def _ask_count(
        self, caller: Caller, request: ModelRequest
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
        """Return the provider's status, headers and body; None where it offers no count or cannot be reached."""
        upstream = caller.provider.count(request, headers=caller.headers)
        if upstream is None:
            return None
        await self._admission.take_count(caller)
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=_COUNT_SECONDS)
        try:
            async with self._session.post(
                upstream.url, data=upstream.body, headers=upstream.headers, allow_redirects=False, timeout=timeout
            ) as response:
                headers = caller.provider.reply_headers(response.headers)
                return response.status, headers, await read_up_to(response, _MAX_COUNT_BYTES)
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        limit = self._max_body_bytes
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            raise RefusedError(Code.TOO_LARGE, f"the body must not be longer than {limit} bytes")
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(Code.BAD_REQUEST, "the body is not complete")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise RefusedError(Code.TOO_LARGE, f"the body must not be longer than {limit} bytes")
            if not message.get("more_body", False):
                return b"".join(parts)


def _unreachable() -> RefusedError:
    return RefusedError(Code.PROVIDER_UNREACHABLE, "the model provider cannot be reached")


def _headers(scope: Any) -> Mapping[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def _peer(scope: Any) -> str | None:
    """Return a request's source address; forwarding headers are ignored, because a box can forge them."""
    return scope["client"][0] if scope.get("client") else None


async def _reply(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def server_config(config: GatewayConfig, ledger_url: str, policy: Policy, cells: CellsConfig = ALONE) -> uvicorn.Config:
    """Return the ASGI server's settings around a new gateway."""
    return uvicorn_config(
        Gateway(config, ledger_url, policy, cells),
        host=config.host,
        port=config.port,
        lifespan="on",
        grace_seconds=math.ceil(config.grace_seconds),
        timeout_keep_alive=75,
    )


def listeners(config: GatewayConfig, server: uvicorn.Config) -> list[socket.socket] | None:
    """Return the sockets to listen on; None when the server's own one is enough.

    The address of the box engine's bridge disappears with the engine; the gateway keeps serving everybody else, and
    boxes again when the engine is back.

    Raises:
        OSError: the address is in use.
    """
    if not config.box_host:
        return None
    second = socket.socket()
    second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    second.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
    second.bind((config.box_host, config.port))
    return [server.bind_socket(), second]


def serve(config: GatewayConfig, ledger_url: str, policy: Policy, cells: CellsConfig = ALONE) -> None:
    """Serve until SIGTERM or SIGINT, then leave with exit code 0."""
    leave_on_signals()
    server = server_config(config, ledger_url, policy, cells)
    gc.freeze()
    gc.set_threshold(10_000)  # a call leaves few cycles; at the default, looking for them is a tenth of its CPU
    Server(server).run(listeners(config, server))
