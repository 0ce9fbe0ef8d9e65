"""The calls that are open right now: watched by one query for all of them, kept alive by one, stopped one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple
from uuid import UUID

from gateway.admission import Admitted
from gateway.config import GatewayConfig
from gateway.ledger_client import Ledger, LedgerUnreachableError
from gateway.messages import Code, RefusedError
from gateway.meter import Meter, Settlement
from ledger import money

logger = logging.getLogger(__name__)

Look = Callable[[], Coroutine[Any, Any, None]]

_BOOKING_SECONDS = 10.0
"""How long a gateway that ends waits for its last calls to be booked; the dispatcher presumes the rest."""


class Stop(NamedTuple):
    """Why a call does not run to its end."""

    finish: str
    refusal: RefusedError | None
    """What its caller is told; None when there is no caller any more."""


CLIENT_GONE = Stop("client_gone", None)
SHUT_DOWN = Stop("cut", RefusedError(Code.SHUTTING_DOWN, "the gateway is shutting down"))


class OpenCall:
    """A call on its way, and what is known about it so far."""

    def __init__(self, admitted: Admitted, *, start_seconds: float) -> None:
        self.admitted = admitted
        self.meter = Meter(
            admitted.price, reserved_nanousd=admitted.reserved.nanousd, max_tokens=admitted.reserved.max_tokens
        )
        self.stop: Stop | None = None
        self.pump: asyncio.Task[None] | None = None
        """Reads from the provider; cancelled to stop the call. None before the call is forwarded."""
        self._start_seconds = start_seconds

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes from the provider."""
        return self.pump is not None and self.pump.done()

    @property
    def attempt_id(self) -> UUID:
        """The attempt that makes the call."""
        return self.admitted.caller.bearer.attempt_id

    def interrupt(self, stop: Stop) -> None:
        """Stop the call, unless it is over or being stopped.

        The upstream is closed at once, but for a stream of which nothing has come yet: its input is being paid for, and
        only its first event says how much that is.
        """
        if self.stop is not None or self.is_over:
            return
        self.stop = stop
        if self.pump is None:
            return
        if self.admitted.request.streams and not self.meter.has_started:
            asyncio.get_running_loop().call_later(self._start_seconds, self.pump.cancel)
        else:
            self.pump.cancel()


class OpenCalls:
    """Every open call of this gateway, and the two tasks that look after them."""

    def __init__(self, ledger: Ledger, config: GatewayConfig) -> None:
        self._ledger = ledger
        self._config = config
        self._calls: dict[UUID, OpenCall] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._keepers: list[asyncio.Task[None]] = []

    def open(self) -> None:
        """Start looking after calls; needs a running event loop."""
        self._keepers = [
            asyncio.create_task(self._keep(self._config.watch_seconds, self._watch)),
            asyncio.create_task(self._keep(self._config.renew_seconds, self._renew)),
        ]

    def add(self, call: OpenCall) -> None:
        """Look after a call from now on."""
        self._calls[call.admitted.id] = call

    def remove(self, call: OpenCall) -> None:
        """The call is booked, or will be by a task of its own."""
        self._calls.pop(call.admitted.id, None)

    @property
    def is_idle(self) -> bool:
        """Whether no call is open."""
        return not self._calls

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run work that must come to its end even if the request that began it is gone."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def settle_later(self, call_id: UUID, settlement: Settlement) -> None:
        """Book a call when the ledger is back."""
        self.spawn(self._ledger.settle_later(call_id, settlement))

    async def close(self) -> None:
        """Stop every open call and wait until all of them are booked."""
        for call in list(self._calls.values()):
            call.interrupt(SHUT_DOWN)
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_BOOKING_SECONDS)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)

    async def _keep(self, seconds: float, look: Look) -> None:
        """Look every so often, whatever a look dies of: without it no call is cut or kept alive any more."""
        while True:
            looking = asyncio.create_task(self._every(seconds, look))
            try:
                await asyncio.wait({looking})
            finally:
                looking.cancel()
            error = None if looking.cancelled() else looking.exception()
            logger.error("gateway_look_failed", exc_info=error, extra={"look": look.__name__})

    async def _every(self, seconds: float, look: Look) -> None:
        while True:
            await asyncio.sleep(seconds)
            if self._calls:
                try:
                    await look()
                except LedgerUnreachableError:
                    continue

    async def _watch(self) -> None:
        attempts = {call.attempt_id for call in self._calls.values()}
        rows = await self._ledger.ask(money.stopped_attempts(list(attempts)))
        stops = {row[0]: _stop(has_ended=row[1], is_late=row[2], is_cancelled=row[3]) for row in rows}
        for call in list(self._calls.values()):
            if (stop := stops.get(call.attempt_id)) is not None:
                call.interrupt(stop)

    async def _renew(self) -> None:
        await self._ledger.ask(money.renew_calls(list(self._calls)))


def _stop(*, has_ended: bool, is_late: bool, is_cancelled: bool) -> Stop:
    if is_cancelled:
        return Stop("cut", RefusedError(Code.CANCELLED, "the job was cancelled while this call was open"))
    if is_late and not has_ended:
        return Stop("cut", RefusedError(Code.FENCED, "the attempt's time limit passed while this call was open"))
    return Stop("cut", RefusedError(Code.FENCED, "the attempt lost its job while this call was open"))
