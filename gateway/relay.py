"""Carries an admitted call: forwards it, passes the metered reply on, books it exactly once, then ends the reply.

A call is booked before its caller gets the last byte, so whoever acts on the reply finds the bill settled and the rest
of the reserve released.

A call's span belongs to its job's trace and follows OpenTelemetry's conventions for generative AI. Only the gateway
meters, so the cost of a trace's spans adds up to the job's bill. Spans hold nothing of prompts or replies.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
from pydantic_core import from_json

from gateway.admission import Admitted, Caller, CircuitReporter
from gateway.errors import LedgerUnreachableError
from gateway.ledger_client import Ledger
from gateway.messages import MALFORMED, Code, ModelRequest, RefusedError, ReplyReader, retry_headers
from gateway.open_calls import OpenCall, OpenCalls, Stop
from gateway.providers.provider import EventSplitter, Settlement, UnreadableStreamError, data_of
from gateway.upstream import drain, read_up_to, retry_after_of
from ledger import money
from ledger.operations.served_calls import record_call
from monitoring import traces
from routing.policy.prices import BudgetExceeded, Usage
from routing.redaction import redact_all

logger = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_MAX_REPLY_BYTES = 32 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_OK = 200
_WAITING = frozenset({b"retry-after", b"x-should-retry"})


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
                    body = await read_up_to(response, _MAX_ERROR_BYTES)
                    self._status = provider.status_of(response.status, body)
                    self._rest = provider.pass_back(body, status=self._status)
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
                    await drain(response)
                    return
                if self._call.meter.has_failed:  # a caller that leaves now does so because of the failure
                    self._rest = events
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
        self._open_seconds = await self._circuit.report_end(trouble, retry_after=self._retry_after)
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


async def _record_cut(ledger: Ledger, call: OpenCall) -> None:
    try:
        await ledger.run(money.limit_hit(call.admitted.caller.bearer, scope="call", phase="stream"))
    except LedgerUnreachableError:
        logger.warning("limit_hit_not_recorded", extra={"call_id": str(call.admitted.id)})


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
