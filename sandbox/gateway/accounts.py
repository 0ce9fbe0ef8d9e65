"""The gateway's way into the ledger: one statement at a time on the event loop, and closed when the ledger is away.

Every statement of `monitoring.ledger.money` is a whole transaction, so nothing of a session is needed here; sessions in
threads take three times the CPU for each call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg

from monitoring.ledger import money, provider_circuits
from monitoring.ledger.money import (
    Bearer,
    BearerGone,
    CallStart,
    CapLimit,
    CapRefusal,
    CapsMissing,
    LaneMissing,
    LaneRefusal,
    Reserved,
)
from monitoring.ledger.sql import Statement
from sandbox.errors import SandboxError
from sandbox.gateway.connections import Connections, ConnectionsBusyError, Kept
from sandbox.gateway.meter import Settlement

logger = logging.getLogger(__name__)

_RETRY_SECONDS = (0.1, 0.3, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0)
"""Pauses between tries to book a call when the ledger is away; its lease lasts about as long."""


class LedgerUnreachableError(SandboxError):
    """The ledger does not answer (the operator's fault, or a passing one): no call is made."""


class Accounts:
    """The ledger's money, as the gateway uses it."""

    def __init__(self, ledger_url: str, *, connections: int) -> None:
        self._connections = Connections(ledger_url, size=connections)
        self._kept = Kept(ledger_url, self._connections)

    async def close(self) -> None:
        """Close every connection."""
        await self._connections.close()
        await self._kept.close()

    async def run(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Run one statement and return when its effect is on the disk.

        Raises:
            LedgerUnreachableError: the ledger does not answer. The statement may or may not have taken effect.
        """
        return await self._run(self._kept, statement)

    async def ask(self, statement: Statement) -> Sequence[tuple[Any, ...]]:
        """Run one statement that changes nothing, or nothing that has to outlive the server.

        Raises:
            LedgerUnreachableError: the ledger does not answer.
        """
        return await self._run(self._connections, statement)

    async def _run(self, way: Connections | Kept, statement: Statement) -> Sequence[tuple[Any, ...]]:
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
            await self._kept.forget_idle()
            rows = await self.ask(statement)
        return money.read_bearer(rows[0]) if rows else None

    async def reserve(
        self, bearer: Bearer, call: CallStart, caps: Sequence[CapLimit]
    ) -> Reserved | CapRefusal | LaneRefusal | BearerGone:  # fmt: skip
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
                call_id, usage=settlement.usage, cost_nanousd=settlement.cost_nanousd, finish=settlement.finish,
                status=settlement.status, state=settlement.state,
            )
        )  # fmt: skip

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
