"""The fleet's budget of a day where several cells share it: a cell spends what it has leased of it, no more.

Slices only grow within their day, so a gateway that has an old view has the smaller one. What passes no gateway is
charged by a worker, which keeps no view and asks each time. Without cells the policy's budget is the cell's own, and
nothing is asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from gateway.errors import LedgerUnreachableError
from ledger.cells.directory import Directory
from ledger.money import CapLimit
from monitoring.config import CellsConfig
from routing.policy.prices import NANOUSD_PER_USD

logger = logging.getLogger(__name__)

FLEET_DAY = "fleet_day"
_REST_SECONDS = 2.0
"""How long a directory that did not answer is not asked: of the calls that wait only the first has its timeout."""


class FleetBudget:
    """What this cell has leased of the fleet's budget, as far as this process knows."""

    def __init__(self, config: CellsConfig) -> None:
        url = config.directory_url.get_secret_value()
        self._directory = Directory(url) if url else None
        self._cell = config.name
        self._slice_nanousd = round(config.slice_usd * NANOUSD_PER_USD)
        self._day, self._leased = "", 0
        self._asking = asyncio.Lock()
        self._rests_until = 0.0

    def close(self) -> None:
        """Close the connections to the directory."""
        if self._directory is not None:
            self._directory.close()

    def within(self, caps: Sequence[CapLimit]) -> tuple[CapLimit, ...]:
        """Return a call's caps with the cell's slice for the fleet's budget."""
        if self._directory is None:
            return tuple(caps)
        *others, fleet = caps
        leased = self._leased if fleet.key == self._day else 0
        return (*others, fleet._replace(limit_nanousd=min(fleet.limit_nanousd, leased)))

    async def extend(self, caps: Sequence[CapLimit], tried: Sequence[CapLimit], *, needed_nanousd: int) -> bool:
        """Lease a further slice for a call that found no room; False when the fleet has no more.

        `caps` are the call's with the whole fleet's budget, `tried` those that had no room.

        Raises:
            LedgerUnreachableError: the directory is away: nobody knows what the fleet has left.
        """
        if self._directory is None:
            return False
        fleet, known = caps[-1], tried[-1].limit_nanousd
        async with self._asking:
            if self.within(caps)[-1].limit_nanousd > known:
                return True  # another call has raised it meanwhile
            if time.monotonic() < self._rests_until:
                raise LedgerUnreachableError("the directory did not answer a moment ago")
            try:
                leased = await asyncio.to_thread(
                    self._directory.lease,
                    self._cell,
                    day=fleet.key,
                    limit=fleet.limit_nanousd,
                    known=self._leased if fleet.key == self._day else 0,
                    least=needed_nanousd,
                    slice_nanousd=self._slice_nanousd,
                )
            except SQLAlchemyError as error:
                logger.warning("directory_unreachable")
                self._rests_until = time.monotonic() + _REST_SECONDS
                raise LedgerUnreachableError from error
            self._day, self._leased = fleet.key, leased
            return self.within(caps)[-1].limit_nanousd > known

    def leased(self, fleet: CapLimit, total_nanousd: int) -> CapLimit:
        """Return the fleet's budget as this cell may book it, with a slice for so much in total if the fleet has it.

        Raises:
            LedgerUnreachableError: the directory is away: nobody knows what the fleet has left.
        """
        if self._directory is None:
            return fleet
        lease = partial(self._directory.lease, self._cell, day=fleet.key, limit=fleet.limit_nanousd)
        try:
            has = lease(known=0, least=0, slice_nanousd=0)
            if (lacking := total_nanousd - has) > 0:  # a slice more, since calls go on meanwhile
                has = lease(known=has, least=lacking, slice_nanousd=lacking + self._slice_nanousd)
        except SQLAlchemyError as error:
            logger.warning("directory_unreachable")
            raise LedgerUnreachableError from error
        return fleet._replace(limit_nanousd=min(fleet.limit_nanousd, has))
