"""The calls in progress of one gateway: watched with one query, renewed with another, and stopped one by one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from gateway.admission import Admitted
from gateway.config import GatewayConfig
from gateway.errors import LedgerUnreachableError
from gateway.ledger_client import Ledger
from gateway.messages import Code, RefusedError
from gateway.providers.provider import Meter, Settlement
from ledger import money
from ledger.attempts import stopped_attempts
from routing.policy.prices import Usage

logger = logging.getLogger(__name__)

Check = Callable[[], Coroutine[Any, Any, None]]
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
        """Forget a call that is booked, or that its own task will book."""
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
        rows = await self._ledger.query(stopped_attempts(list(attempts)))
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
