"""Keep an attempt's lease alive while it works, and hear what the ledger says about it."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import col

from monitoring.ledger.attempts import Claim, renew
from monitoring.ledger.store import Ledger
from monitoring.ledger.tables import Job
from workers.errors import CancelledByOwnerError, LeaseLostError

logger = logging.getLogger(__name__)


class Lease:
    """A claim's heartbeat: renews from a thread until the block ends."""

    def __init__(self, ledger: Ledger, claim: Claim) -> None:
        self._ledger = ledger
        self._claim = claim
        self._stopping = threading.Event()
        self._is_lost = False
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)

    def _beat(self) -> None:
        attempts = self._claim.policy.attempts
        while not self._stopping.wait(attempts.lease_renew_seconds):
            try:
                with self._ledger.begin() as session:
                    answer = renew(session, self._claim.attempt, lease_seconds=attempts.lease_seconds)
            except SQLAlchemyError:
                logger.warning("lease_not_renewed", exc_info=True)
                continue
            self._is_lost = self._is_lost or not answer.holds

    def check(self) -> None:
        """Ask the ledger whether to go on: to be called between steps.

        Raises:
            LeaseLostError: nobody's fault: the job was taken away.
            CancelledByOwnerError: the owner's wish.
        """
        with self._ledger.begin() as session:
            wanted = select(col(Job.fence), col(Job.cancel_requested_at)).where(col(Job.id) == self._claim.job.id)
            fence, cancelled_at = session.execute(wanted).one()
        if self._is_lost or fence != self._claim.attempt.fence:
            raise LeaseLostError
        if cancelled_at is not None:
            raise CancelledByOwnerError
