"""Keep an attempt's lease alive while it works, and learn whether the job is still its own."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

from sqlalchemy import select
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlmodel import col

from ledger.attempts import renew
from ledger.start_attempt import Claim
from ledger.store import Ledger
from ledger.tables import Attempt, Job
from workers import dense
from workers.errors import CancelledByOwnerError, LeaseLostError

logger = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews the leases of a process's attempts in one thread, which ends when none are left.

    An attempt that ends before its first renewal costs no thread: an earlier attempt's thread serves later ones too.
    """

    def __init__(self) -> None:
        self._due: dict[Lease, float] = {}
        self._changed = threading.Condition()
        self._is_running = False

    def add(self, lease: Lease) -> None:
        """Renew a lease from now on, at its policy's interval."""
        with self._changed:
            self._due[lease] = time.monotonic() + lease.renew_seconds
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._keep, name="leases", daemon=True).start()
            elif self._due[lease] <= min(self._due.values()):
                self._changed.notify()

    def drop(self, lease: Lease) -> None:
        """Stop renewing a lease; a renewal under way finds its attempt ended."""
        with self._changed:
            self._due.pop(lease, None)

    def _keep(self) -> None:
        try:
            while due := self._await_due():
                for lease in due:
                    lease.renew()
        except BaseException:
            with self._changed:
                self._is_running = False  # the next attempt starts a new thread
            raise

    def _await_due(self) -> list[Lease]:
        """Wait for the first due leases and return them; none when no lease is left."""
        with self._changed:
            while self._due:
                now = time.monotonic()
                if due := [lease for lease, at in self._due.items() if at <= now]:
                    self._due |= {lease: now + lease.renew_seconds for lease in due}
                    return due
                self._changed.wait(min(self._due.values()) - now)
            self._is_running = False
            return []


class Lease:
    """A claim's lease, renewed by the process's keeper until the block ends."""

    def __init__(self, ledger: Ledger, claim: Claim, keeper: LeaseKeeper) -> None:
        self._ledger = ledger
        self._claim = claim
        self._keeper = keeper
        self._is_lost = False

    @property
    def renew_seconds(self) -> float:
        """The interval of renewals."""
        return self._claim.policy.attempts.lease_renew_seconds

    def __enter__(self) -> Self:
        self._keeper.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._keeper.drop(self)

    def renew(self) -> None:
        """Extend the lease; an unreachable ledger is retried at the next interval."""
        try:
            with self._ledger.begin() as session:
                answer = renew(session, self._claim.attempt, lease_seconds=self._claim.policy.attempts.lease_seconds)
        except SQLAlchemyError:
            logger.warning("lease_not_renewed", exc_info=True)
            return
        self._is_lost = self._is_lost or not answer.holds

    def check(self) -> None:
        """Check with the ledger whether to go on. Called between steps; an unreachable ledger says nothing.

        Raises:
            LeaseLostError: nobody's fault: the job was taken away.
            CancelledByOwnerError: the owner's wish.
            SoftTimeLimit, HandBack: the pool of threads interrupts the attempt.
        """
        dense.check()
        held = select(col(Job.cancel_requested_at)).join(
            Attempt, (col(Attempt.job_id) == col(Job.id)) & (col(Attempt.fence) == col(Job.fence))
        )
        try:
            with self._ledger.begin() as session:
                found = session.execute(held.where(col(Attempt.id) == self._claim.attempt.id)).one_or_none()
        except (OperationalError, InterfaceError, PoolTimeoutError):
            logger.warning("checked_without_ledger")
            return
        if self._is_lost or found is None:
            raise LeaseLostError
        if found.cancel_requested_at is not None:
            raise CancelledByOwnerError
