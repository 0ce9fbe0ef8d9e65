"""Carry one admitted call: forward it, pass the reply on while it is metered, book it exactly once, then say the end.

A call is booked before its caller gets the last byte, so whoever acts on the reply finds the bill settled and the rest
of the reserve free.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from monitoring.ledger import money
from routing.lanes import trouble_of
from routing.prices import Usage, format_usd
from sandbox.gateway.accounts import Accounts, LedgerUnreachableError
from sandbox.gateway.calls import OpenCall, OpenCalls, Stop
from sandbox.gateway.lanes import Ended, LaneReports
from sandbox.gateway.meter import Settlement
from sandbox.gateway.refusals import Code, RefusedError, retry_headers
from sandbox.gateway.spans import note_settled
from sandbox.gateway.sse import EventSplitter, EventTooLargeError, data_of
from sandbox.gateway.upstream import read_up_to, request_headers, response_headers, retry_after_of, without_key

logger = logging.getLogger(__name__)

Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_MAX_REPLY_BYTES = 32 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_DRAIN_SECONDS = 1.0
_HANG_UP_SECONDS = 0.5
_OK = 200
_WAITING = frozenset({b"retry-after", b"x-should-retry"})


class Relay:
    """One call between its caller and its provider."""

    def __init__(
        self, call: OpenCall, send: Send, *, session: aiohttp.ClientSession, lane: LaneReports
    ) -> None:  # fmt: skip
        self._call = call
        self._lane = lane
        self._send = send
        self._session = session
        self._status: int | None = None
        """The provider's HTTP status, once it has answered."""
        self._was_sent = False
        """Whether the provider may have the request."""
        self._headers: Headers = []
        self._has_begun = False
        """The caller has the head of a stream."""
        self._rest = b""
        """What the caller gets after the call is booked."""
        self._retry_after: float | None = None
        """What the provider named."""
        self._parked_seconds = 0.0
        """For how long the call's lane is parked because of how the call ended."""

    async def run(self, accounts: Accounts, calls: OpenCalls) -> None:
        """Carry the call to its end. It is booked whatever happens on the way."""
        call = self._call
        calls.add(call)
        try:
            if call.stop is None:
                call.pump = asyncio.create_task(self._pump())
                await asyncio.wait({call.pump})
            settlement = self._settlement()
            try:
                await accounts.settle(call.admitted.id, settlement)
            except LedgerUnreachableError:
                calls.settle_later(call.admitted.id, settlement)
        finally:
            calls.remove(call)
        self._log(settlement)
        note_settled(call.admitted, settlement)
        await self._report(settlement)
        if call.stop is not None and call.stop.refusal is not None and call.stop.refusal.code is Code.COST_CAP:
            await _record_cut(accounts, call)
        await self._finish()
        if call.pump and not call.pump.cancelled() and (error := call.pump.exception()) is not None:
            logger.error("relay_failed", exc_info=error, extra={"call_id": str(call.admitted.id)})

    async def _pump(self) -> None:
        admitted = self._call.admitted
        provider = admitted.caller.provider
        url = provider.base_url.rstrip("/") + "/v1/messages"
        headers = request_headers(admitted.caller.headers, provider, call_id=admitted.id)
        self._was_sent = True
        try:
            async with self._session.post(url, data=admitted.sent, headers=headers, allow_redirects=False) as response:
                self._status = response.status
                self._headers = response_headers(response)
                if response.status != _OK:
                    self._retry_after = retry_after_of(response)
                    self._rest = without_key(await read_up_to(response, _MAX_ERROR_BYTES), provider)
                elif admitted.body.streams:
                    await self._stream(response)
                else:
                    await self._read_whole(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            self._was_sent = False
        except (aiohttp.ClientError, TimeoutError, EventTooLargeError) as error:
            logger.info("provider_gone", extra={"error": type(error).__name__, "call_id": str(admitted.id)})

    async def _read_whole(self, response: aiohttp.ClientResponse) -> None:
        body = await read_up_to(response, _MAX_REPLY_BYTES)
        self._call.meter.read_message(body)
        self._rest = body

    async def _stream(self, response: aiohttp.ClientResponse) -> None:
        splitter = EventSplitter()
        await self._begin(_OK)
        try:
            async for chunk in response.content.iter_any():
                events = splitter.feed(chunk)
                self._count(events)
                if self._lane.is_awaited and self._call.meter.has_started:
                    await self._lane.taken()
                if self._call.meter.is_complete:
                    self._rest = b"".join(events)
                    await _drain(response)
                    return
                if self._must_stop():
                    return
                if events:
                    await self._send({"type": "http.response.body", "body": b"".join(events), "more_body": True})
        finally:
            if not self._call.meter.is_complete:
                await self._hang_up(response, splitter)

    def _count(self, events: list[bytes]) -> None:
        for event in events:
            self._call.meter.read(data_of(event))

    async def _hang_up(self, response: aiohttp.ClientResponse, splitter: EventSplitter) -> None:
        """Tell the provider to stop, and count what it had sent until it heard: it is paid for.

        Our half of the connection is closed at once; what comes over the other half is read until the provider closes
        it, too. TLS knows no half-closed connections: there only what has arrived is counted.
        """
        try:
            transport = response.connection.transport if response.connection else None
            if transport is not None and transport.can_write_eof():
                transport.write_eof()
                async with asyncio.timeout(_HANG_UP_SECONDS):
                    async for chunk in response.content.iter_any():
                        self._count(splitter.feed(chunk))
            elif response.content.exception() is None:
                self._count(splitter.feed(response.content.read_nowait()))
        except (aiohttp.ClientError, OSError, TimeoutError):
            logger.debug("provider_hung_up")
        finally:
            response.close()

    def _must_stop(self) -> bool:
        call = self._call
        if call.stop is not None:
            return call.meter.has_started
        if call.meter.is_overrun:
            reserved = format_usd(call.admitted.reserved.nanousd)
            call.stop = Stop("cut", RefusedError(Code.COST_CAP, f"the call has used the {reserved} reserved for it"))
        return call.stop is not None

    async def _begin(self, status: int) -> None:
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": self._headers})

    async def _report(self, settlement: Settlement) -> None:
        """Tell the fleet how the provider took the call."""
        call, meter = self._call, self._call.meter
        await self._lane.settled(settlement)
        is_answered = meter.is_complete or self._status not in (None, _OK)
        if call.stop is not None and not is_answered and not meter.has_failed:
            return await self._lane.given_up()
        status = self._status if is_answered else None
        trouble = trouble_of(status, kind=meter.error_kind)
        self._parked_seconds = await self._lane.ended(Ended(trouble, self._retry_after))
        if self._parked_seconds and not self._has_begun:
            kept = [(name, value) for name, value in self._headers if name not in _WAITING]
            self._headers = [*kept, *retry_headers(self._parked_seconds)]
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

    async def _finish(self) -> None:
        """Send what is left to say; when the caller is gone this goes nowhere."""
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
        wait = self._parked_seconds or None
        if self._was_sent:
            return RefusedError(Code.PROVIDER_GONE, "the model provider broke off the call", retry_after=wait)
        return RefusedError(Code.PROVIDER_UNREACHABLE, "the model provider cannot be reached", retry_after=wait)

    def _log(self, settlement: Settlement) -> None:
        admitted = self._call.admitted
        logger.info(
            "call_settled",
            extra={
                "call_id": str(admitted.id), "job_id": str(admitted.caller.bearer.job_id), "model": admitted.body.model,
                "finish": settlement.finish, "state": settlement.state, "status": settlement.status,
                "cost_nanousd": settlement.cost_nanousd, "reserved_nanousd": admitted.reserved.nanousd,
            },
        )  # fmt: skip


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read to the end of a reply that is complete, so that its connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while not response.content.at_eof():
                await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        response.close()


async def _record_cut(accounts: Accounts, call: OpenCall) -> None:
    try:
        await accounts.run(money.limit_hit(call.admitted.caller.bearer, scope="call", phase="stream"))
    except LedgerUnreachableError:
        logger.warning("limit_hit_not_recorded", extra={"call_id": str(call.admitted.id)})
