"""The gateway's way into the ledger: one statement at a time on the event loop, and closed when the ledger is away.

Every statement of `ledger.money` is a whole transaction, so nothing of a session is needed here; sessions in
threads take three times the CPU for each call. psycopg's own pool is made for much more than this (waiting clients,
background workers, checks) and costs as much CPU for each statement as the driver itself; the gateway makes three
statements for each call. So there is a fixed number of slots, of which the one used last comes first.

Every call of the fleet changes the row of the day's budget. Whoever commits and waits for the disk in one holds that
row meanwhile, and all calls stand in line behind one disk. So a statement commits without waiting, which lets go of the
row, and `DurableConnections` waits afterwards, once for everything that was committed by then. What is not on the disk
yet has no effect outside the ledger, and inside nothing that follows from it can get there before it: the log has one
order.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncRawCursor
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from gateway.errors import GatewayError
from gateway.providers import Settlement
from ledger import money, provider_circuits
from ledger.money import Bearer, BearerGone, CallStart, CapLimit, CapsMissing, LaneMissing, LaneRefusal, Reserved
from ledger.sql import Statement
from ledger.store import SILENCE, SILENT_CLIENT, STATEMENT_TIMEOUT_MS
from routing.policy.prices import BudgetExceeded

logger = logging.getLogger(__name__)

_RETRY_SECONDS = (0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0)
"""Pauses between tries to book a call when the ledger is away; its lease lasts about as long."""
_WAIT_SECONDS = 5.0
"""How long a statement waits for a free connection, and a new connection for the server."""
_VALUE = re.compile(r"%\((\w+)\)s")
_WRITE_OUT = "SELECT pg_logical_emit_message(true, 'pointsman', '')"
"""A record in the log that nobody reads: its commit waits until the log is on the disk up to there."""


class LedgerUnreachableError(GatewayError):
    """The ledger does not answer (the operator's fault, or a passing one): no call is made."""


class Ledger:
    """The ledger's money, as the gateway uses it."""

    def __init__(self, ledger_url: str, *, connections: int) -> None:
        self._connections = Connections(ledger_url, size=connections)
        self._durable = DurableConnections(ledger_url, self._connections)

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()
        await self._durable.close()

    async def run(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return when its effect is on the disk.

        Raises:
            LedgerUnreachableError: the ledger does not answer. The statement may or may not have taken effect.
        """
        return await self._run(self._durable, statement)

    async def ask(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Run one statement that changes nothing, or nothing that has to outlive the server.

        Raises:
            LedgerUnreachableError: the ledger does not answer.
        """
        return await self._run(self._connections, statement)

    async def _run(self, way: Connections | DurableConnections, statement: Statement) -> Sequence[tuple[Any, ...]]:
        try:
            return await way.run(statement.sql, statement.values or {})
        except (psycopg.Error, ConnectionsBusyError, OSError) as error:
            logger.warning("ledger_unreachable", extra={"error": type(error).__name__})
            raise LedgerUnreachableError(type(error).__name__) from None

    async def bearer(self, token_hash: str) -> Bearer | None:
        """Look up the attempt that a token belongs to.

        Tried twice: after a restart of the ledger the first try meets a dead connection.

        Raises:
            LedgerUnreachableError: see `run`.
        """
        statement = money.bearer_of(token_hash)
        try:
            rows = await self.ask(statement)
        except LedgerUnreachableError:
            await self._durable.forget_idle()
            rows = await self.ask(statement)
        return money.read_bearer(rows[0]) if rows else None

    async def reserve(
        self, bearer: Bearer, call: CallStart, caps: Sequence[CapLimit]
    ) -> Reserved | BudgetExceeded | LaneRefusal | BearerGone:
        """Reserve a call's worst case, or learn which limit has no room for it, or how its lane is parked.

        Raises:
            LedgerUnreachableError: see `run`.
        """
        for _ in range(3):
            rows = await self.run(money.reserve(bearer, call, caps))
            outcome = money.read_reserve(rows[0], call)
            if isinstance(outcome, CapsMissing):
                await self.run(money.open_caps(caps))
            elif isinstance(outcome, LaneMissing):
                await self.run(provider_circuits.open_row(call.lane.account, call.model))
            else:
                return outcome
        raise LedgerUnreachableError("caps could not be opened")

    async def settle(self, call_id: UUID, settlement: Settlement) -> None:
        """Book a call. Booking it again does nothing.

        Raises:
            LedgerUnreachableError: see `run`.
        """
        await self.run(
            money.settle(
                call_id,
                usage=settlement.usage,
                cost_nanousd=settlement.cost_nanousd,
                finish=settlement.finish,
                status=settlement.status,
                state=settlement.state,
            )
        )

    async def settle_later(self, call_id: UUID, settlement: Settlement) -> None:
        """Book a call as soon as the ledger is back; a call that stays open is presumed by the dispatcher."""
        for pause in _RETRY_SECONDS:
            await asyncio.sleep(pause)
            try:
                return await self.settle(call_id, settlement)
            except LedgerUnreachableError:
                continue
        logger.error("call_left_open", extra={"call_id": str(call_id)})
        return None


class ConnectionsBusyError(TimeoutError):
    """No connection became free in time."""


class Connections:
    """Runs statements, each a transaction of its own, on at most `size` connections.

    Args:
        url: where the ledger is.
        size: how many.
        waits: whether a statement is over only when it is on the disk, as the server is set up.
    """

    def __init__(self, url: str, *, size: int, waits: bool = False) -> None:
        self._url = make_conninfo(url, **SILENCE)
        self._commits = "" if waits else "-c synchronous_commit=off"
        self._slots: asyncio.LifoQueue[psycopg.AsyncConnection[Any] | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._slots.put_nowait(None)
        self._is_closed = False

    async def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Run one statement that returns rows, and commit it.

        Raises:
            psycopg.Error: the statement failed, or the server is away.
            ConnectionsBusyError: too many statements wait already.
        """
        connection = await self._take()
        try:
            if connection is None:
                connection = await self._connect()
            text, names = _numbered(sql)
            cursor = await connection.execute(text, [values[name] for name in names])
            return await cursor.fetchall()
        except psycopg.OperationalError:
            if connection is None or connection.broken:
                await self.forget_idle()
            raise
        finally:
            self._slots.put_nowait(await self._kept(connection))

    async def close(self) -> None:
        """Close every connection: an idle one now, one in use when its statement is done."""
        self._is_closed = True
        await self.forget_idle()

    async def _take(self) -> psycopg.AsyncConnection[Any] | None:
        try:
            return self._slots.get_nowait()
        except asyncio.QueueEmpty:
            pass
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await self._slots.get()
        except TimeoutError:
            raise ConnectionsBusyError from None

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        return await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=0,
            cursor_factory=AsyncRawCursor,
            application_name="pointsman-gateway",
            connect_timeout=round(_WAIT_SECONDS),
            options=f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c TimeZone=UTC {SILENT_CLIENT} {self._commits}",
        )

    async def forget_idle(self) -> None:
        """Drop every idle connection: when one of them is dead, the server was restarted and all of them are."""
        free = self._slots.qsize()
        idle = [self._slots.get_nowait() for _ in range(free)]
        for connection in idle:
            self._slots.put_nowait(None)
            if connection is not None:
                await connection.close()

    async def _kept(self, connection: psycopg.AsyncConnection[Any] | None) -> psycopg.AsyncConnection[Any] | None:
        """Return a connection that another statement may use; any other is closed."""
        if connection is None:
            return None
        if connection.info.transaction_status == TransactionStatus.IDLE and not self._is_closed:
            return connection
        await connection.close()
        return None


class DurableConnections:
    """Runs statements whose effect has to be on the disk before anybody hears of it.

    One that is alone waits for the disk by itself, which saves it a round trip. Where several are under way each lets
    go of its locks first, and one wait serves all. It has a connection of its own beside that of the one that was
    alone, which may wait long for a row that somebody holds.
    """

    def __init__(self, url: str, connections: Connections) -> None:
        self._connections = connections
        self._waiting = Connections(url, size=2, waits=True)
        self._under_way = 0
        self._current: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Run one statement that returns rows; its effect is on the disk.

        Raises:
            psycopg.Error, ConnectionsBusyError: as of `Connections.run`; nobody knows whether it has an effect.
        """
        self._under_way += 1
        try:
            if self._under_way == 1:
                return await self._waiting.run(sql, values)
            rows = await self._connections.run(sql, values)
            await self._written()
            return rows
        finally:
            self._under_way -= 1

    async def _written(self) -> None:
        """Return when everything that was committed before is on the disk."""
        if self._next is None:
            self._next = asyncio.create_task(self._write_out(after=self._current))
        await asyncio.shield(self._next)

    async def _write_out(self, *, after: asyncio.Task[None] | None) -> None:
        if after is not None:
            await asyncio.wait({after})
        self._current, self._next = self._next, None  # who comes from now on may have committed too late for this one
        await self._waiting.run(_WRITE_OUT, {})

    async def forget_idle(self) -> None:
        """Drop the connections that wait: others were found dead, so they will be, too."""
        await self._waiting.forget_idle()

    async def close(self) -> None:
        """Close the connections that wait."""
        await self._waiting.close()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement as the server takes it, with numbers for its values, and their names in that order.

    psycopg would do so each time for a statement as long as the reserve.
    """
    names = tuple(dict.fromkeys(_VALUE.findall(sql)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    return _VALUE.sub(lambda found: numbers[found[1]], sql), names
