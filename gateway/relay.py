"""Carries an admitted call: forwards it, passes the metered reply on, books it exactly once, then ends the reply.

A call is booked before its caller gets the last byte, so whoever acts on the reply finds the bill settled and the rest
of the reserve released. `OpenCalls` watches all open calls with one query, renews their leases with another, and stops
them one by one.

A call's span belongs to its job's trace and follows OpenTelemetry's conventions for generative AI. Only the gateway
meters, so the cost of a trace's spans adds up to the job's bill. Spans hold nothing of prompts or replies.

The upstream client is aiohttp for its speed: a streamed call of 100 events takes 0.5 ms of CPU, with httpx2 over 2 ms.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from uuid import UUID

import aiohttp
from pydantic_core import from_json

from gateway.admission import Admitted, Caller, CircuitReporter, Ended
from gateway.config import GatewayConfig
from gateway.errors import LedgerUnreachableError
from gateway.ledger_client import Ledger
from gateway.messages import MALFORMED, Code, ModelRequest, RefusedError, ReplyReader, retry_headers
from gateway.providers.provider import EventSplitter, Meter, Settlement, UnreadableStreamError, data_of
from ledger import money
from ledger.operations.served_calls import record_call
from monitoring import traces
from routing.policy.prices import BudgetExceeded, Usage
from routing.provider_circuit import read_retry_after
from routing.redaction import redact_all

logger = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Check = Callable[[], Coroutine[Any, Any, None]]

_MAX_REPLY_BYTES = 32 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_DRAIN_SECONDS = 1.0
_IDLE_SECONDS = 4.0
"""Idle connections are dropped after this, before a provider closes them: uvicorn and Node do so after 5 s. A call sent
at that moment is broken off, and paid for as if it had been made."""
_OK = 200
_WAITING = frozenset({b"retry-after", b"x-should-retry"})
_STILL_SECONDS = 5.0
"""A gateway that is late by more than this was stopped, or starved of its processor."""
_BOOKING_SECONDS = 10.0
"""How long a gateway waits at its end for its last calls to be booked; the dispatcher presumes the rest."""


class Stop(NamedTuple):
    """Why a call is stopped before its end."""

    finish: str
    refusal: RefusedError | None
    """What the caller gets; None when the caller has left."""


CLIENT_GONE = Stop("client_gone", None)
SHUT_DOWN = Stop("cut", RefusedError(Code.SHUTTING_DOWN, "the gateway is shutting down"))


class OpenCall:
    """A call in progress."""

    def __init__(self, admitted: Admitted, *, start_seconds: float) -> None:
        self.admitted = admitted
        self.meter = Meter(
            admitted.price, reserved_nanousd=admitted.reserved.nanousd, max_tokens=admitted.reserved.max_tokens
        )
        self.stop: Stop | None = None
        self.reader: asyncio.Task[None] | None = None
        """The task that reads from the provider, as long as it does; cancelled to stop the call."""
        self.is_over = False
        """Nothing more comes from the provider."""
        self._start_seconds = start_seconds
        self.sent_at = time.monotonic()

    @property
    def attempt_id(self) -> UUID:
        """The attempt that makes the call."""
        return self.admitted.caller.bearer.attempt_id

    def note_usage(self, usage: Usage) -> None:
        """Let the provider's client learn from the bill what it may know about later prompts."""
        caller, request = self.admitted.caller, self.admitted.request
        caller.provider.note_usage(request, usage, headers=caller.headers, sent_at=self.sent_at)

    def interrupt(self, stop: Stop) -> None:
        """Stop the call, unless it is over or being stopped.

        The upstream is closed at once, except for a stream that has not begun: its input is billed already, and only
        the first event says how much.
        """
        if self.stop is not None or self.is_over:
            return
        self.stop = stop
        if self.reader is None:
            return
        if self.admitted.request.streams and not self.meter.has_started:
            asyncio.get_running_loop().call_later(self._start_seconds, self._cut)
        else:
            self._cut()

    def _cut(self) -> None:
        if self.reader is not None:
            self.reader.cancel()


class OpenCalls:
    """Every open call of this gateway, and the two tasks that look after them."""

    def __init__(self, ledger: Ledger, config: GatewayConfig) -> None:
        self._ledger = ledger
        self._config = config
        self._calls: dict[UUID, OpenCall] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._stood_still_at: float | None = None

    @property
    def stood_still_seconds_ago(self) -> float | None:
        """When this process last stood still; None if it never did."""
        at = self._stood_still_at
        return None if at is None else asyncio.get_running_loop().time() - at

    def open(self) -> None:
        """Start the background tasks; needs a running event loop."""
        self._keepers = [
            asyncio.create_task(self._supervise(self._config.watch_seconds, self._watch)),
            asyncio.create_task(self._supervise(self._config.renew_seconds, self._renew)),
        ]

    def add(self, call: OpenCall) -> None:
        """Look after a call."""
        self._calls[call.admitted.id] = call

    def remove(self, call: OpenCall) -> None:
        """Forget a call that is booked, or that a task of its own will book."""
        self._calls.pop(call.admitted.id, None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work that must finish even if the request that began it is gone."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def settle_later(self, call_id: UUID, settlement: Settlement) -> None:
        """Book a call when the ledger is back."""
        self.spawn(self._ledger.settle_later(call_id, settlement))

    async def close(self) -> None:
        """Stop every open call and wait until all are booked."""
        for call in list(self._calls.values()):
            call.interrupt(SHUT_DOWN)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_BOOKING_SECONDS)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _supervise(self, seconds: float, check: Check) -> None:
        """Run `check` periodically and restart it when it crashes: without it no call is cut or renewed."""
        while True:
            running = asyncio.create_task(self._repeat(seconds, check))
            try:
                await asyncio.wait({running})
            finally:
                running.cancel()
            error = None if running.cancelled() else running.exception()
            logger.error("gateway_look_failed", exc_info=error, extra={"look": check.__name__})

    async def _repeat(self, seconds: float, check: Check) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due_at = clock() + seconds
            await asyncio.sleep(seconds)
            if clock() - due_at > _STILL_SECONDS:
                self._stood_still_at = clock()
            if self._calls:
                try:
                    await check()
                except LedgerUnreachableError:
                    continue

    async def _watch(self) -> None:
        attempts = {call.attempt_id for call in self._calls.values()}
        rows = await self._ledger.query(money.stopped_attempts(list(attempts)))
        stops = {row[0]: _stop(has_ended=row[1], is_late=row[2], is_cancelled=row[3]) for row in rows}
        for call in list(self._calls.values()):
            if (stop := stops.get(call.attempt_id)) is not None:
                call.interrupt(stop)

    async def _renew(self) -> None:
        await self._ledger.query(money.renew_calls(list(self._calls)))


def _stop(*, has_ended: bool, is_late: bool, is_cancelled: bool) -> Stop:
    if is_cancelled:
        return Stop("cut", RefusedError(Code.CANCELLED, "the job was cancelled while this call was open"))
    if is_late and not has_ended:
        return Stop("cut", RefusedError(Code.FENCED, "the attempt's time limit passed while this call was open"))
    return Stop("cut", RefusedError(Code.FENCED, "the attempt lost its job while this call was open"))


class Relay:
    """One call between its caller and its provider."""

    def __init__(self, call: OpenCall, send: Send, *, session: aiohttp.ClientSession, circuit: CircuitReporter) -> None:
        self._call = call
        self._circuit = circuit
        self._send = send
        self._session = session
        self._status: int | None = None
        """The provider's HTTP status, once it has answered."""
        self._was_sent = False
        """Whether the provider may have the request."""
        self._headers: Headers = []
        self._has_begun = False
        """Whether the caller has the response's status and headers."""
        self._rest = b""
        """What the caller gets after the call is booked."""
        self._sent = bytearray()
        """What it got before, where the tenant wants calls recorded."""
        self._retry_after: float | None = None
        """Seconds the provider asked callers to wait."""
        self._open_seconds = 0.0
        """For how long the end of the call opens its circuit."""

    async def run(self, ledger: Ledger, calls: OpenCalls) -> None:
        """Carry the call to its end; it is booked whatever happens on the way."""
        call = self._call
        calls.add(call)
        try:
            if call.stop is None:
                await self._read()
            settlement = self._settlement()
            try:
                await ledger.settle(call.admitted.id, settlement)
            except LedgerUnreachableError:
                calls.settle_later(call.admitted.id, settlement)
        finally:
            calls.remove(call)
        call.note_usage(settlement.usage)
        self._log(settlement)
        trace_settlement(call.admitted, settlement)
        await self._report(settlement)
        if call.admitted.caller.bearer.is_recorded and call.meter.is_complete:
            await self._record(ledger)
        if call.stop is not None and call.stop.refusal is not None and call.stop.refusal.code is Code.BUDGET_EXCEEDED:
            await _record_cut(ledger, call)
        await self._finish()

    async def _read(self) -> None:
        """Read from the provider until it ends or the call is stopped."""
        call, task = self._call, asyncio.current_task()
        assert task is not None
        call.reader = task
        try:
            await self._pump()
        except asyncio.CancelledError:
            if call.stop is None:
                raise
            task.uncancel()
        except Exception as error:
            logger.error("relay_failed", exc_info=error, extra={"call_id": str(call.admitted.id)})
        finally:
            call.reader, call.is_over = None, True

    async def _pump(self) -> None:
        admitted = self._call.admitted
        provider, sent = admitted.caller.provider, admitted.sent
        self._was_sent = True
        try:
            async with self._session.post(
                sent.url, data=sent.body, headers=sent.headers, allow_redirects=False
            ) as response:
                self._status = response.status
                self._headers = provider.reply_headers(response.headers)
                if response.status != _OK:
                    self._retry_after = retry_after_of(response)
                    self._rest = provider.pass_back(
                        await read_up_to(response, _MAX_ERROR_BYTES), status=response.status
                    )
                elif admitted.request.streams:
                    await self._stream(response)
                else:
                    await self._read_whole(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            self._was_sent = False
        except (aiohttp.ClientError, TimeoutError, UnreadableStreamError) as error:
            logger.info("provider_gone", extra={"error": type(error).__name__, "call_id": str(admitted.id)})

    async def _read_whole(self, response: aiohttp.ClientResponse) -> None:
        body = await read_up_to(response, _MAX_REPLY_BYTES)
        self._rest = self._call.admitted.caller.provider.read_reply(body, self._call.meter)

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        reply = self._call.admitted.caller.provider.open_stream(self._call.meter)
        await self._begin(_OK)
        try:
            async for chunk in response.content.iter_any():
                events = reply.feed(chunk)
                if self._circuit.is_awaited and self._call.meter.has_started:
                    await self._circuit.report_success()
                if self._call.meter.is_complete:
                    self._rest = events
                    await _drain(response)
                    return
                if self._must_stop():
                    return
                if events and self._call.admitted.caller.bearer.is_recorded:
                    self._sent += events
                if events:
                    await self._send({"type": "http.response.body", "body": events, "more_body": True})
        finally:
            if not self._call.meter.is_complete:
                response.close()

    def _must_stop(self) -> bool:
        call = self._call
        if call.stop is not None:
            return call.meter.has_started
        if call.meter.is_overrun:
            exceeded = BudgetExceeded("call", limit_nanousd=call.admitted.reserved.nanousd)
            call.stop = Stop("cut", RefusedError(Code.BUDGET_EXCEEDED, str(exceeded)))
        return call.stop is not None

    async def _begin(self, status: int) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": self._headers})

    async def _report(self, settlement: Settlement) -> None:
        """Report to the circuit how the provider took the call."""
        call, meter = self._call, self._call.meter
        await self._circuit.return_tokens(settlement)
        is_answered = meter.is_complete or self._status not in (None, _OK)
        if call.stop is not None and not is_answered and not meter.has_failed:
            return await self._circuit.report_unknown()
        status = self._status if is_answered else None
        trouble = call.admitted.caller.provider.trouble_of(status, kind=meter.error_kind)
        self._open_seconds = await self._circuit.report_end(Ended(trouble, self._retry_after))
        if self._open_seconds and not self._has_begun:
            headers = [(name, value) for name, value in self._headers if name not in _WAITING]
            self._headers = [*headers, *retry_headers(self._open_seconds)]
        return None

    def _settlement(self) -> Settlement:
        call, meter = self._call, self._call.meter
        if meter.is_complete:
            return meter.settlement(finish="completed", status=_OK)
        if not self._was_sent:
            return Settlement(Usage(), 0, "settled", call.stop.finish if call.stop else "provider_gone", 0)
        if self._status not in (None, _OK):
            return Settlement(Usage(), 0, "settled", "refused", self._status or 0)
        if meter.has_failed and not meter.has_started:
            return Settlement(Usage(), 0, "settled", "refused", _OK)
        status = _OK if self._has_begun else 0
        return meter.settlement(finish=call.stop.finish if call.stop else "provider_gone", status=status)

    async def _record(self, ledger: Ledger) -> None:
        """Keep a call that was served whole, redacted. If it cannot be kept its caller gets the reply all the same."""
        admitted = self._call.admitted
        sent = bytes(self._sent + self._rest)
        if (message := _message_of(sent, is_streamed=admitted.request.streams)) is None:
            return
        pair = (("request", admitted.request.fields), ("reply", message))
        texts = {name: json.dumps(redact_all(value)) for name, value in pair}
        try:
            await ledger.run(record_call(admitted.id, admitted.caller.bearer.job_id, **texts))
        except LedgerUnreachableError:
            logger.warning("call_not_recorded", extra={"call_id": str(admitted.id)})

    async def _finish(self) -> None:
        """Send the rest of the reply; if the caller has left, it goes nowhere."""
        if self._rest or self._status not in (None, _OK):
            if not self._has_begun:
                await self._begin(self._status or _OK)
        elif self._has_begun:
            self._rest = self._refusal().event
        else:
            refusal = self._refusal()
            self._headers, self._rest = refusal.headers, refusal.body
            await self._begin(refusal.status)
        await self._send({"type": "http.response.body", "body": self._rest})

    def _refusal(self) -> RefusedError:
        if self._call.stop is not None and self._call.stop.refusal is not None:
            return self._call.stop.refusal
        wait = self._open_seconds or None
        if self._was_sent:
            return RefusedError(Code.PROVIDER_GONE, "the model provider broke off the call", retry_after=wait)
        return RefusedError(Code.PROVIDER_UNREACHABLE, "the model provider cannot be reached", retry_after=wait)

    def _log(self, settlement: Settlement) -> None:
        admitted = self._call.admitted
        logger.info(
            "call_settled",
            extra={
                "call_id": str(admitted.id),
                "job_id": str(admitted.caller.bearer.job_id),
                "model": admitted.request.model,
                "finish": settlement.finish,
                "state": settlement.state,
                "status": settlement.status,
                "cost_nanousd": settlement.cost_nanousd,
                "reserved_nanousd": admitted.reserved.nanousd,
            },
        )


def _message_of(sent: bytes, *, is_streamed: bool) -> dict[str, Any] | None:
    """Return the message that a caller was sent; None if it is not whole, or not of the API."""
    try:
        if not is_streamed:
            message = from_json(sent)
            return message if isinstance(message, dict) else None
        reader = ReplyReader()
        for part in EventSplitter().feed(sent):
            if isinstance(event := from_json(data_of(part) or b"null"), dict):
                reader.read(event)
        return reader.message()
    except MALFORMED:
        return None


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read to the end of a complete reply, so that its connection can be reused."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while not response.content.at_eof():
                await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        response.close()


async def _record_cut(ledger: Ledger, call: OpenCall) -> None:
    try:
        await ledger.run(money.limit_hit(call.admitted.caller.bearer, scope="call", phase="stream"))
    except LedgerUnreachableError:
        logger.warning("limit_hit_not_recorded", extra={"call_id": str(call.admitted.id)})


def open_session(config: GatewayConfig) -> aiohttp.ClientSession:
    """Return the HTTP session for every call of this gateway; needs a running event loop."""
    connector = aiohttp.TCPConnector(
        limit=config.upstream_connections, keepalive_timeout=_IDLE_SECONDS, ttl_dns_cache=60
    )
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=config.connect_seconds, sock_read=config.silence_seconds)
    return aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=True, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
    )


def retry_after_of(response: aiohttp.ClientResponse) -> float | None:
    """Return the seconds a provider asks callers to wait, by its own clock where it sends one; None without a time."""
    now = datetime.now(UTC)
    with suppress(ValueError, TypeError):
        shown = parsedate_to_datetime(response.headers.get("date", ""))
        now = shown if shown.tzinfo is not None else now
    return read_retry_after(response.headers.get("retry-after"), now=now)


async def read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return a body, truncated after about `limit` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > limit:
            response.close()
            break
    return b"".join(parts)


@contextmanager
def trace_call(caller: Caller, request: ModelRequest) -> Iterator[None]:
    """Trace a call within its job's trace, whatever trace its sender claims."""
    if not traces.is_on():
        yield
        return
    bearer = caller.bearer
    parent = caller.headers.get(b"traceparent", b"").decode("latin-1")
    facts: traces.Facts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": caller.account.label,
        "gen_ai.request.model": request.model,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.stream": request.streams,
        "pointsman.job.id": str(bearer.job_id),
        "pointsman.tenant": bearer.tenant,
    }
    trace = traces.within(bearer.trace, parent)
    with traces.of_job(f"chat {request.model}", trace, kind=traces.Kind.CLIENT, facts=facts):
        try:
            yield
        except RefusedError as refusal:
            traces.note({"error.type": refusal.code.value})
            raise


def trace_settlement(admitted: Admitted, settlement: Settlement) -> None:
    """Note on the span what a call used and what it is booked at."""
    if not traces.is_on():
        return
    usage: Usage = settlement.usage
    traces.note(
        {
            "gen_ai.response.model": admitted.request.model,
            # By the convention the input counts what came from a cache, too; ours does not.
            "gen_ai.usage.input_tokens": usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "http.response.status_code": settlement.status or None,
            "error.type": _error_of(settlement),
            "pointsman.call.id": str(admitted.id),
            "pointsman.call.finish": settlement.finish,
            "pointsman.call.cost_nanousd": settlement.cost_nanousd,
            "pointsman.call.reserved_nanousd": admitted.reserved.nanousd,
        }
    )


def _error_of(settlement: Settlement) -> str | None:
    """Return what went wrong with a call: the provider's status where that says it, else how the call ended."""
    if settlement.finish == "completed":
        return None
    return str(settlement.status) if settlement.status >= HTTPStatus.BAD_REQUEST else settlement.finish
