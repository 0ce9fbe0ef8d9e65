"""The gateway's asynchronous ledger client: single statements on the event loop; no call without the ledger.

Every statement of `ledger.money` is a whole transaction, so no session is needed; sessions in threads would triple the
CPU of a call. psycopg's pool would cost as much CPU per statement as the driver itself, at three statements a call. So
there is a fixed number of slots, most recently used first.

Every call of the fleet updates the row of the day's budget. A commit that waits for the disk would hold that row, and
queue all calls behind one disk. So a statement commits asynchronously, which releases the row, and `DurableConnections`
then waits once for everything committed so far. Nothing outside the ledger acts before that wait is over, and inside
the write-ahead log keeps the order.

A booking waits for no disk of the ledger where its loss could only be too dear: the journal has it, and it is within
its reserve, at which the dispatcher presumes a call that stays open. What follows from it in the ledger is later in the
log and so never outlives it. All bookings that come while one statement is under way share the next.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import AsyncRawCursor
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from gateway.errors import LedgerUnreachableError
from gateway.journal import GroupCommit, Journal
from gateway.providers.provider import Settlement
from ledger import money, provider_circuits
from ledger.money import (
    Bearer,
    BearerGone,
    CallStart,
    CapLimit,
    CircuitMissing,
    CircuitRefusal,
    CircuitShut,
    Ended,
    Reserved,
)
from ledger.operations import served_calls
from ledger.operations.served_calls import History, Served
from ledger.store import SILENCE, SILENT_CLIENT, STATEMENT_TIMEOUT_MS, Statement
from ledger.tables import Cap
from routing.policy.prices import BudgetExceeded

logger = logging.getLogger(__name__)

_RETRY_SECONDS = (0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0)
"""Pauses between attempts to book a call while the ledger is away; its lease lasts about as long."""
_PATIENCE = "1s"
"""How long a booking that others share, or wait for, waits for a row that somebody holds."""
_WAIT_SECONDS = 5.0
"""How long a statement waits for a free connection, and a new connection for the server."""
_VALUE = re.compile(r"%\((\w+)\)s")
_WRITE_OUT = "SELECT pg_logical_emit_message(true, 'pointsman', '')"
"""Writes a log record that nobody reads; its commit waits until the write-ahead log is on disk up to it."""
_SERVER = """
SELECT (pg_control_system()).system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8),
       pg_postmaster_start_time()::text
"""
"""Fails on a standby, which takes no writes."""


class CapOpenedError(Exception):
    """Another call opened one of the same caps at the same moment (nobody's fault): nothing was reserved."""


class Ledger:
    """Reserves and settles calls in the ledger."""

    def __init__(self, ledger_url: str, *, connections: int, journal: Journal | None = None) -> None:
        self._connections = Connections(ledger_url, size=connections)
        self._durable = DurableConnections(ledger_url, self._connections)
        self._journal = journal
        self._open: dict[UUID, _Opened] = {}
        """Calls that are reserved and not booked yet."""
        self._bookings = GroupCommit(self._book_ended)

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()
        await self._durable.close()

    async def run(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return when its effect is on disk.

        Raises:
            LedgerUnreachableError: the ledger does not answer. The statement may or may not have taken effect.
            CapOpenedError: only of a reserve.
        """
        return await self._run(self._durable, statement)

    async def query(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Run one statement whose effect, if any, need not survive a crash of the server.

        Raises:
            LedgerUnreachableError: the ledger does not answer.
        """
        return await self._run(self._connections, statement)

    async def _run(
        self, connections: Connections | DurableConnections, statement: Statement
    ) -> Sequence[tuple[Any, ...]]:
        try:
            return await connections.run(statement.sql, statement.values or {})
        except (psycopg.Error, ConnectionsBusyError, OSError) as error:
            if isinstance(error, psycopg.errors.UniqueViolation) and error.diag.table_name == Cap.__tablename__:
                raise CapOpenedError from None
            logger.warning("ledger_unreachable", extra={"error": type(error).__name__})
            raise LedgerUnreachableError(type(error).__name__) from None

    async def bearer(self, token_hash: str) -> Bearer | None:
        """Look up the attempt that a token belongs to.

        Tried twice: after a restart of the ledger the first try meets a dead connection.

        Raises:
            LedgerUnreachableError: the ledger does not answer.
        """
        statement = money.bearer_of(token_hash)
        try:
            rows = await self.query(statement)
        except LedgerUnreachableError:
            await self._durable.forget_idle()
            rows = await self.query(statement)
        return money.read_bearer(rows[0]) if rows else None

    async def reserve(
        self, bearer: Bearer, call: CallStart, caps: Sequence[CapLimit]
    ) -> Reserved | BudgetExceeded | CircuitRefusal | BearerGone:
        """Reserve a call's worst case, or return the budget, circuit or lost job that forbids it.

        Raises:
            LedgerUnreachableError: the reservation may or may not have been made.
        """
        is_gated = call.circuit.is_metered
        for _ in range(4 + len(caps)):  # another call may be the first to open each of them
            try:
                rows = await self.run(money.reserve(bearer, call, caps, is_gated=is_gated))
            except CapOpenedError:
                continue
            outcome = money.read_reserve(rows[0], call)
            if isinstance(outcome, CircuitShut):
                is_gated = True
            elif isinstance(outcome, CircuitMissing):
                await self.run(provider_circuits.open_row(call.circuit.account, call.model))
            else:
                if isinstance(outcome, Reserved):
                    self._open[call.id] = _Opened(bearer, call, tuple(caps), outcome)
                return outcome
        raise LedgerUnreachableError("budgets could not be opened")

    async def settle(self, call_id: UUID, settlement: Settlement) -> None:
        """Write a call into the journal, and book it. Booking it again does nothing.

        Raises:
            LedgerUnreachableError: the call may or may not have been booked.
        """
        served = self._served(call_id, settlement)
        if self._journal is None or served is None:
            return await self._settle(call_id, settlement, served)
        written = self._journal.append(served)
        try:
            return await self._settle(call_id, settlement, served)
        finally:
            await written

    async def settle_later(self, call_id: UUID, settlement: Settlement) -> None:
        """Book a call as soon as the ledger is back; the dispatcher presumes the cost of a call that stays open."""
        served = self._served(call_id, settlement)
        for pause in _RETRY_SECONDS:
            await asyncio.sleep(pause)
            try:
                return await self._settle(call_id, settlement, served)
            except LedgerUnreachableError:
                continue
        self._open.pop(call_id, None)
        logger.error("call_left_open", extra={"call_id": str(call_id)})
        return None

    def _served(self, call_id: UUID, settlement: Settlement) -> Served | None:
        """Return what the journal notes of a call; None when it used nothing."""
        opened = self._open.get(call_id)
        is_used = any((settlement.cost_nanousd, *settlement.usage))
        return opened.served(settlement) if opened is not None and is_used else None

    async def _settle(self, call_id: UUID, settlement: Settlement, served: Served | None) -> None:
        ended, opened = Ended(call_id, **settlement._asdict()), self._open.get(call_id)
        is_kept = self._journal is not None and served is not None
        if is_kept and opened is not None and ended.cost_nanousd <= opened.reserved.nanousd:
            has_row = await self._bookings.join(ended)
        else:
            has_row = await self._settle_alone(ended)
        if isinstance(has_row, LedgerUnreachableError):
            raise has_row
        if not has_row and served is not None:
            await self._book_lost(served)
        self._open.pop(call_id, None)

    async def _settle_alone(self, ended: Ended, *, patience: str | None = None) -> bool | LedgerUnreachableError:
        """Book a call durably, and return whether it had an open row."""
        try:
            return bool(await self.run(money.settle_all([ended], patience=patience)))
        except LedgerUnreachableError as error:
            return error

    async def _book_ended(self, ended: Sequence[Ended]) -> Sequence[bool | LedgerUnreachableError]:
        """Book what ended meanwhile; a call that the ledger does not take keeps no other from being booked."""
        try:
            booked = {call_id for (call_id,) in await self.query(money.settle_all(ended, patience=_PATIENCE))}
        except LedgerUnreachableError:
            return await asyncio.gather(*(self._settle_alone(call, patience=_PATIENCE) for call in ended))
        return [call.id in booked for call in ended]

    async def book(self, served: Served) -> None:
        """Book a call of the journal durably, since it is not looked at again; booking it again does nothing.

        Raises:
            LedgerUnreachableError: the call may or may not have been booked.
        """
        facts = {name: getattr(served, name) for name in Settlement._fields}
        if not await self.run(money.settle_all([Ended(served.id, **facts)])):
            await self._book_lost(served)

    async def _book_lost(self, served: Served) -> None:
        """Book a call whose row this ledger may have lost."""
        [[has_row, is_known]] = await self.query(served_calls.standing_of(served))
        if has_row:
            return
        caps, call = served_calls.book_lost(served, is_known=is_known)
        await self.run(caps)
        if await self.run(call):
            logger.error("call_row_was_lost", extra={"call_id": str(served.id), "attempt_is_known": is_known})
        elif is_known:  # until now, perhaps
            await self._book_lost(served)

    async def history(self) -> History:
        """Name the ledger and its history.

        Raises:
            LedgerUnreachableError: the ledger does not answer.
        """
        [row] = await self.query(served_calls.history())
        return History(*row)

    async def unbooked(self, call_ids: Sequence[UUID]) -> set[UUID]:
        """Return those calls whose cost is not booked, and make sure that no earlier booking can be lost any more.

        Raises:
            LedgerUnreachableError: the ledger does not answer.
        """
        await self.run(Statement(_WRITE_OUT))
        return {call_id for (call_id,) in await self.query(served_calls.unbooked(call_ids))}


class _Opened(NamedTuple):
    """A call that is reserved."""

    bearer: Bearer
    call: CallStart
    caps: tuple[CapLimit, ...]
    reserved: Reserved

    def served(self, settlement: Settlement) -> Served:
        bearer, call = self.bearer, self.call
        return Served(
            ledger=bearer.ledger,
            id=call.id,
            job_id=bearer.job_id,
            attempt_id=bearer.attempt_id,
            tenant=bearer.tenant,
            queue=bearer.queue.value,
            tier=bearer.tier,
            caps=self.caps,
            provider=call.provider,
            model=call.model,
            key_hash=call.key_hash,
            gateway=call.gateway,
            prices_as_of=call.prices_as_of,
            max_tokens=self.reserved.max_tokens,
            served_at=datetime.now(UTC),
            **settlement._asdict(),
        )


class ConnectionsBusyError(TimeoutError):
    """No connection became free in time."""


@dataclass(frozen=True, eq=False)
class Link:
    """A connection by its cursor, which knows the statements' types by now, and the server at its other end."""

    cursor: AsyncRawCursor[Any]
    server: tuple[Any, ...] | None
    """Cluster, timeline and start: another one after a restart, a promotion or a restored copy."""
    opened_at: float


class Executed(NamedTuple):
    """A statement that was committed."""

    rows: Sequence[tuple[Any, ...]]
    link: Link


class Connections:
    """Runs statements, each in its own transaction, on at most `size` connections.

    `waits` says whether a commit waits for the disk.
    """

    def __init__(self, url: str, *, size: int, waits: bool = False) -> None:
        self._url = make_conninfo(url, **SILENCE)
        self._commits = "" if waits else "-c synchronous_commit=off"
        self._slots: asyncio.LifoQueue[Link | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._slots.put_nowait(None)
        self._is_closed = False

    async def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Run one statement that returns rows, and commit it.

        Raises:
            psycopg.Error: the statement failed, or the server is away.
            ConnectionsBusyError: too many statements wait already.
        """
        return (await self.execute(sql, values)).rows

    async def execute(self, sql: str, values: Mapping[str, Any]) -> Executed:
        """Run one statement as `run` does; also return the link that it ran on."""
        link = await self._take()
        try:
            if link is None:
                link = await self._connect()
            text, names = _numbered(sql)
            await link.cursor.execute(text, [values[name] for name in names])
            return Executed(await link.cursor.fetchall(), link)
        except psycopg.OperationalError:
            if link is None or link.cursor.connection.broken:
                await self.forget_idle()
            raise
        finally:
            self._slots.put_nowait(await self._reusable(link))

    async def close(self) -> None:
        """Close every connection: an idle one now, one in use when its statement is done."""
        self._is_closed = True
        await self.forget_idle()

    async def _take(self) -> Link | None:
        try:
            return self._slots.get_nowait()
        except asyncio.QueueEmpty:
            pass
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                return await self._slots.get()
        except TimeoutError:
            raise ConnectionsBusyError from None

    async def _connect(self) -> Link:
        connection = await psycopg.AsyncConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=0,
            application_name="pointsman-gateway",
            connect_timeout=round(_WAIT_SECONDS),
            options=f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c TimeZone=UTC {SILENT_CLIENT} {self._commits}",
        )
        try:
            server = await (await connection.execute(_SERVER)).fetchone()
        except BaseException:  # a call that is cancelled here, too, would leave it open
            await connection.close()
            raise
        return Link(AsyncRawCursor(connection), server, asyncio.get_running_loop().time())

    async def forget_idle(self) -> None:
        """Drop every idle connection: one dead connection means that the server restarted and all are dead."""
        free = self._slots.qsize()
        idle = [self._slots.get_nowait() for _ in range(free)]
        for link in idle:
            self._slots.put_nowait(None)
            if link is not None:
                await link.cursor.connection.close()

    async def _reusable(self, link: Link | None) -> Link | None:
        """Return the link if another statement may use it; otherwise close it."""
        if link is None:
            return None
        if link.cursor.connection.info.transaction_status == TransactionStatus.IDLE and not self._is_closed:
            return link
        await link.cursor.connection.close()
        return None


class DurableConnections:
    """Runs statements whose effect must be on disk before anybody acts on it.

    A lone statement waits for the disk in its own commit, which saves a round trip. Concurrent statements release their
    locks first and share one wait. That wait has a second connection, since the lone statement may block on a row.
    """

    def __init__(self, url: str, connections: Connections) -> None:
        self._connections = connections
        self._waiting = Connections(url, size=2, waits=True)
        self._under_way = 0
        self._flushes = GroupCommit(self._write_out)

    async def run(self, sql: str, values: Mapping[str, Any]) -> Sequence[tuple[Any, ...]]:
        """Run one statement that returns rows; its effect is on disk afterwards.

        Raises:
            psycopg.Error, ConnectionsBusyError: as in `Connections.run`; the statement may have taken effect, and
                be lost again.
        """
        self._under_way += 1
        try:
            if self._under_way == 1:
                return await self._waiting.run(sql, values)
            began = asyncio.get_running_loop().time()
            committed = await self._connections.execute(sql, values)
            await self._check_flushed(committed.link, await self._flushes.join(None), began=began)
            return committed.rows
        finally:
            self._under_way -= 1

    async def _write_out(self, waiting: Sequence[None]) -> Sequence[Link]:
        """Wait until everything committed so far is on disk, and return the link that waited."""
        return [(await self._waiting.execute(_WRITE_OUT, {})).link] * len(waiting)

    async def _check_flushed(self, committed: Link, written: Link, *, began: float) -> None:
        """Check that no crash and no other server came between a commit and the write-out.

        A crash ends every connection: one that was open before the statement and after the write-out saw none.

        Raises:
            psycopg.OperationalError: the statement may be lost.
        """
        if written.server != committed.server:
            await self._connections.forget_idle()
            await self.forget_idle()
            raise psycopg.OperationalError("the ledger's server changed between commit and flush")
        if written.opened_at > began:
            await committed.cursor.connection.execute("SELECT 1")  # the cursor may serve another by now

    async def forget_idle(self) -> None:
        """Drop the waiting connections: they are as dead as the others."""
        await self._waiting.forget_idle()

    async def close(self) -> None:
        """Close the waiting connections."""
        await self._waiting.close()


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with numbered placeholders, and the names of its values in that order.

    Cached, because psycopg would convert the long reserve statement on every call.
    """
    names = tuple(dict.fromkeys(_VALUE.findall(sql)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    return _VALUE.sub(lambda found: numbers[found[1]], sql), names
