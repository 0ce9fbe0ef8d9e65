"""Keep an attempt's lease alive while it works, and learn whether the job is still its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from ledger.attempts import renew_all
from ledger.start_attempt import Claim
from ledger.store import LEDGER_UNREACHABLE, Ledger, Statement
from workers import dense
from workers.errors import CancelledByOwnerError, LeaseLostError

logger = logging.getLogger(__name__)

_HELD = Statement("""
    SELECT job.cancel_requested_at FROM attempt JOIN job ON job.id = attempt.job_id AND job.fence = attempt.fence
     WHERE attempt.id = %(attempt)s
""")
_TOGETHER = 0.2
"""The part of its interval by which a lease may be renewed early, so that many are renewed in one statement."""


class LeaseKeeper:
    """Renews the leases of a process's attempts in one thread, which ends when none are left.

    An attempt that ends before its first renewal costs no thread: an earlier attempt's thread serves later ones too.
    """

    def __init__(self, renew: Callable[[Sequence[Lease]], None] | None = None) -> None:
        self._renew = renew or renew_leases
        self._due: dict[Lease, float] = {}
        self._changed = threading.Condition()
        self._is_running = False
        self._wakes_at = 0.0
        """When the thread wakes next; a lease that is due sooner wakes it earlier."""

    def add(self, lease: Lease) -> None:
        """Renew a lease from now on, at its policy's interval."""
        with self._changed:
            self._due[lease] = time.monotonic() + lease.renew_seconds
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._keep, name="leases", daemon=True).start()
            elif self._due[lease] < self._wakes_at:
                self._changed.notify()

    def drop(self, lease: Lease) -> None:
        """Stop renewing a lease; a renewal under way finds its attempt ended."""
        with self._changed:
            self._due.pop(lease, None)

    def _keep(self) -> None:
        try:
            while due := self._await_due():
                self._renew(due)
        except BaseException:
            with self._changed:
                self._is_running = False  # the next attempt starts a new thread
            raise

    def _await_due(self) -> list[Lease]:
        """Wait for the first due leases and return them; none when no lease is left."""
        with self._changed:
            while self._due:
                now, self._wakes_at = time.monotonic(), min(self._due.values())
                if self._wakes_at <= now:
                    early = {lease: at - _TOGETHER * lease.renew_seconds for lease, at in self._due.items()}
                    due = [lease for lease, at in early.items() if at <= now]
                    self._due |= {lease: now + lease.renew_seconds for lease in due}
                    return due
                self._changed.wait(self._wakes_at - now)
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

    @property
    def group(self) -> tuple[Ledger, float]:
        """What it has in common with leases that are renewed together."""
        return self._ledger, self._claim.policy.attempts.lease_seconds

    @property
    def attempt_id(self) -> UUID:
        """Its attempt's id."""
        return self._claim.attempt.id

    def lose(self) -> None:
        """Note that the job was taken away."""
        self._is_lost = True

    def check(self) -> None:
        """Check with the ledger whether to go on. Called between steps; an unreachable ledger says nothing.

        Raises:
            LeaseLostError: nobody's fault: the job was taken away.
            CancelledByOwnerError: the owner's wish.
            SoftTimeLimit, HandBack: the pool of threads interrupts the attempt.
        """
        dense.check()
        try:
            with self._ledger.look() as connection:
                found = _HELD.one(connection, {"attempt": self._claim.attempt.id})
        except LEDGER_UNREACHABLE:
            logger.warning("checked_without_ledger")
            return
        if self._is_lost or found is None:
            raise LeaseLostError
        if found.cancel_requested_at is not None:
            raise CancelledByOwnerError


def renew_leases(leases: Sequence[Lease]) -> None:
    """Extend leases; an unreachable ledger is retried at the next interval."""
    groups: dict[tuple[Ledger, float], dict[UUID, Lease]] = defaultdict(dict)
    for lease in leases:
        groups[lease.group][lease.attempt_id] = lease
    for (ledger, seconds), group in groups.items():
        try:
            with ledger.begin() as session:
                answers = renew_all(session, group, lease_seconds=seconds)
        except SQLAlchemyError:
            logger.warning("leases_not_renewed", exc_info=True, extra={"leases": len(group)})
            continue
        for attempt_id, holds in answers.items():
            if not holds:
                group[attempt_id].lose()
