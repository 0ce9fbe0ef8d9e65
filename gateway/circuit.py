"""What a gateway reports to the fleet's circuit breaker for one model of an account: how the provider took a call.

An ordinary call through a closed circuit without rate limits of ours reports nothing, so nothing is added to its cost.
A ledger that is away is no reason to fail a call that has been made: the next one reports again.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from gateway.admission import Admitted
from gateway.ledger_client import Ledger, LedgerUnreachableError
from gateway.meter import Settlement
from ledger import provider_circuits
from ledger.store import Statement
from routing.provider_circuit import Trouble, pauses

logger = logging.getLogger(__name__)


class Ended(NamedTuple):
    """How a call ended, for its circuit's sake."""

    trouble: Trouble | None
    """None when the provider is well."""
    retry_after: float | None
    """Seconds that the provider named."""


class CircuitReports:
    """Reports one call to the circuit of its account and model."""

    def __init__(self, admitted: Admitted, ledger: Ledger) -> None:
        self._ledger = ledger
        self._model = admitted.request.model
        self._lane = admitted.lane
        self._taken_tokens = admitted.lane.input_tokens + admitted.reserved.max_tokens
        self._is_test = admitted.reserved.is_lane_test
        self.is_awaited = self._is_test or admitted.reserved.lane_failures > 0
        """Whether the fleet waits to hear that the provider takes calls."""

    async def taken(self) -> None:
        """Say that the provider takes calls: as soon as it has begun to reply, others need not wait any longer."""
        if self.is_awaited:
            self.is_awaited = False
            await self._run(provider_circuits.succeed(self._lane.account, self._model, is_test=self._is_test))
            self._is_test = False

    async def given_up(self) -> None:
        """Say that nobody knows how the provider would have taken the call."""
        if self._is_test:
            await self._run(provider_circuits.give_up_test(self._lane.account, self._model))

    async def ended(self, ended: Ended) -> float:
        """Say how the call ended, and return for how many seconds its circuit is open because of it."""
        if ended.trouble is None:
            await self.taken()
            return 0.0
        steps = pauses(ended.trouble, self._lane.rules, retry_after=ended.retry_after, is_probe=self._is_test)
        statement = provider_circuits.fail(
            self._lane.account,
            self._model,
            trouble=ended.trouble,
            pauses=steps,
            asked=ended.retry_after,
            is_test=self._is_test,
        )
        rows = await self._run(statement)
        failure = provider_circuits.read_failure(rows[0]) if rows else provider_circuits.Failure(0, 0.0)
        about = {"model": self._model, "trouble": ended.trouble.value, "failures": failure.failures}
        logger.warning("circuit_failure", extra={**about, "open_seconds": round(failure.parked_seconds, 3)})
        return failure.parked_seconds

    async def settled(self, settlement: Settlement) -> None:
        """Put what a call took from the bucket and did not use back."""
        if self._lane.rules.tokens_per_minute is None or settlement.state != "settled":
            return
        usage = settlement.usage
        used = usage.input_tokens + usage.cache_write_tokens + usage.output_tokens
        if (left := self._taken_tokens - used) > 0:
            await self._run(provider_circuits.give_back(self._lane.account, self._model, tokens=left))

    async def _run(self, statement: Statement) -> list[tuple[object, ...]]:
        try:
            return list(await self._ledger.run(statement))
        except LedgerUnreachableError:
            logger.warning("circuit_not_reported", extra={"model": self._model})
            return []
