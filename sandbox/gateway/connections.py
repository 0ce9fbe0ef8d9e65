"""Connections to the ledger: a fixed number of slots, the one used last first.

psycopg's own pool is made for much more than this (waiting clients, background workers, checks) and costs as much CPU
for each statement as the driver itself; the gateway makes three statements for each call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from monitoring.ledger.store import SILENCE, SILENT_CLIENT, STATEMENT_TIMEOUT_MS

logger = logging.getLogger(__name__)

_WAIT_SECONDS = 5.0
"""How long a statement waits for a free connection, and a new connection for the server."""


class ConnectionsBusyError(TimeoutError):
    """No connection became free in time."""


class Connections:
    """Runs statements, each a transaction of its own, on at most `size` connections."""

    def __init__(self, url: str, *, size: int) -> None:
        self._url = make_conninfo(url, **SILENCE)
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
            cursor = await connection.execute(sql, values)
            return await cursor.fetchall()
        except psycopg.OperationalError:
            if connection is None or connection.broken:
                await self._forget_idle()
            raise
        finally:
            self._slots.put_nowait(await self._kept(connection))

    async def close(self) -> None:
        """Close every connection: an idle one now, one in use when its statement is done."""
        self._is_closed = True
        await self._forget_idle()

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
            application_name="pointsman-gateway",
            connect_timeout=round(_WAIT_SECONDS),
            options=f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c TimeZone=UTC {SILENT_CLIENT}",
        )

    async def _forget_idle(self) -> None:
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
