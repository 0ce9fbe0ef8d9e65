"""The gateway as an ASGI application: two paths that reach a provider, two that say the gateway is there, nothing else.

Raw ASGI on purpose: a framework's request and response objects would cost a third of the time of a whole call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from pydantic_core import from_json

from routing.policy import Policy
from sandbox.gateway.accounts import Accounts, LedgerUnreachableError
from sandbox.gateway.admission import Admission, Caller
from sandbox.gateway.auth import logged_path
from sandbox.gateway.body import CheckedBody
from sandbox.gateway.calls import CLIENT_GONE, OpenCall, OpenCalls
from sandbox.gateway.config import GatewayConfig
from sandbox.gateway.lanes import LaneReports
from sandbox.gateway.refusals import Code, RefusedError
from sandbox.gateway.relay import Relay
from sandbox.gateway.spans import trace_call
from sandbox.gateway.upstream import open_session, read_up_to, request_headers, response_headers, without_key

logger = logging.getLogger(__name__)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]

_BODY_SECONDS = 60.0
_COUNT_SECONDS = 10.0
_COUNT_MARGIN = 50
"""The provider calls its own count an estimate: one part in so many is added to it, and as many tokens."""
_MAX_COUNT_BYTES = 64 * 1024
_HELLO = b'{"service":"pointsman-gateway"}'


class Gateway:
    """One gateway process."""

    def __init__(self, config: GatewayConfig, ledger_url: str, policy: Policy) -> None:
        self.instance = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._config = config
        self._max_body_bytes = policy.gateway.max_body_bytes
        self._accounts = Accounts(ledger_url, connections=config.ledger_connections)
        self._calls = OpenCalls(self._accounts, self._config)
        self._admission = Admission(
            self._accounts, self._config, policy, instance=self.instance, count_tokens=self._count_tokens,
            settle_later=self._calls.settle_later,
        )  # fmt: skip
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
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._calls.close()
        await self._session.close()
        await self._accounts.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Any, receive: Receive, send: Send) -> None:
        try:
            match scope["method"], scope["path"]:
                case "POST", "/v1/messages":
                    await self._message(scope, receive, send)
                case "POST", "/v1/messages/count_tokens":
                    await self._count(scope, receive, send)
                case ("GET" | "HEAD", "/api/hello") | ("GET", "/healthz"):
                    await _reply(send, 200, [(b"content-type", b"application/json")], _HELLO)
                case _:
                    raise RefusedError(Code.NOT_FOUND, "this gateway serves the Messages API and nothing else")
        except RefusedError as refusal:
            logger.info("call_refused", extra={"code": refusal.code.value, "path": logged_path(scope["path"])})
            await _reply(send, refusal.status, refusal.headers, refusal.body)
        except LedgerUnreachableError:
            closed = RefusedError(Code.LEDGER_UNREACHABLE, "the ledger is unreachable: no call is made without it")
            await _reply(send, closed.status, closed.headers, closed.body)

    async def _message(self, scope: Any, receive: Receive, send: Send) -> None:
        caller = await self._admission.caller(_headers(scope), peer=_peer(scope))
        body = self._admission.body(caller, await self._body(scope, receive))
        with trace_call(caller, body):
            await self._carry(caller, body, receive, send)

    async def _carry(self, caller: Caller, body: CheckedBody, receive: Receive, send: Send) -> None:
        admitted = await self._admission.admit(caller, body)
        assert self._session is not None
        call = OpenCall(admitted, start_seconds=self._config.start_seconds)
        relay = Relay(call, send, session=self._session, lane=LaneReports(admitted, self._accounts))
        carried = self._calls.spawn(relay.run(self._accounts, self._calls))
        client = asyncio.ensure_future(receive())
        await asyncio.wait({carried, client}, return_when=asyncio.FIRST_COMPLETED)
        if client.done():
            call.interrupt(CLIENT_GONE)
        else:
            client.cancel()
        await asyncio.shield(carried)

    async def _count(self, scope: Any, receive: Receive, send: Send) -> None:
        caller = await self._admission.caller(_headers(scope), peer=_peer(scope))
        body = self._admission.body(caller, await self._body(scope, receive), is_counted=True)
        try:
            async with self._ask_count(caller, body.encoded) as response:
                answer = without_key(await read_up_to(response, _MAX_COUNT_BYTES), caller.provider)
                status, headers = response.status, response_headers(response)
        except (aiohttp.ClientError, TimeoutError):
            raise RefusedError(Code.PROVIDER_UNREACHABLE, "the model provider cannot be reached") from None
        await _reply(send, status, headers, answer)

    async def _count_tokens(self, caller: Caller, body: CheckedBody) -> int | None:
        """Ask the provider for a tighter bound than the body's size; it is free of charge."""
        try:
            async with self._ask_count(caller, body.for_count()) as response:
                answer = await read_up_to(response, _MAX_COUNT_BYTES)
            tokens = from_json(answer)["input_tokens"] if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            return None
        return tokens + tokens // _COUNT_MARGIN + _COUNT_MARGIN

    def _ask_count(self, caller: Caller, encoded: bytes) -> Any:
        assert self._session is not None
        return self._session.post(
            caller.provider.base_url.rstrip("/") + "/v1/messages/count_tokens",
            data=encoded,
            headers=request_headers(caller.headers, caller.provider, call_id=None),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=_COUNT_SECONDS),
        )

    async def _body(self, scope: Any, receive: Receive) -> bytes:
        limit = self._max_body_bytes
        announced = _headers(scope).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            raise RefusedError(Code.TOO_LARGE, f"the body must not be longer than {limit} bytes")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_SECONDS):
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
        except TimeoutError:
            raise RefusedError(Code.BAD_REQUEST, "the body took too long to arrive") from None


def _headers(scope: Any) -> Mapping[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def _peer(scope: Any) -> str | None:
    """Return where a request comes from. Headers are not asked: a box writes them."""
    return scope["client"][0] if scope.get("client") else None


async def _reply(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})
