"""Leases in the ledger by which sweeps of site files and backups keep out of each other's way, on whichever hosts.

One sweep at a time. A sweep looks for backups after it has read what is to be kept, and reads it again once they are
over: it would remove files that their moment names. It may go on beside a backup that begins later, as what it removes
the ledger had given up before that moment.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from sqlalchemy.exc import SQLAlchemyError

from ledger.operations.leaders import lead, leaders, resign
from ledger.store import Ledger
from producers.errors import FileLeaseLostError

logger = logging.getLogger(__name__)

SWEEPER, BACKUP = "sweeper", "backup"
LEASE_SECONDS = 60.0
_WAIT_SECONDS = 0.2


@dataclass(eq=False)
class FileLease:
    """Held within a `with` block, which begins when its role is free; a thread renews it.

    Who was paused, or is cut off from the ledger, learns by `check` that its turn is over.
    """

    ledger: Ledger
    role: str
    """`SWEEPER` or `BACKUP`."""
    seconds: float = LEASE_SECONDS
    """How long it outlives a process that died."""
    on_wait: Callable[[], None] = lambda: None
    """Called once if it is not free at once."""

    def __post_init__(self) -> None:
        self._holder = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
        self._held_until = 0.0
        self._ending = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        if not (is_held := self._lead()):
            self.on_wait()
        while not is_held and not self._lead():
            self._ending.wait(_WAIT_SECONDS)
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._renewing.join()
        with suppress(SQLAlchemyError), self.ledger.begin() as session:  # else it lapses
            resign(session, self.role, self._holder)

    def check(self) -> None:
        """Check that nobody else can hold it.

        Raises:
            FileLeaseLostError: nobody's fault: it could not be renewed in time.
        """
        if time.monotonic() >= self._held_until:
            raise FileLeaseLostError(self.role)

    def has_waited_for(self, role: str) -> bool:
        """Wait until nobody holds another lease, and return whether somebody did.

        Raises:
            FileLeaseLostError: as `check`.
        """
        has_waited = False
        while self._is_held(role):
            has_waited = True
            self._ending.wait(_WAIT_SECONDS)
            self.check()
        return has_waited

    def _is_held(self, role: str) -> bool:
        with self.ledger.begin() as session:
            return role in leaders(session)

    def _lead(self) -> bool:
        began = time.monotonic()
        with self.ledger.begin() as session:
            is_held = lead(session, self.role, self._holder, seconds=self.seconds)
        if is_held:
            self._held_until = began + self.seconds
        return is_held

    def _renew(self) -> None:
        while not self._ending.wait(self.seconds / 4):
            try:
                if not self._lead():
                    return
            except SQLAlchemyError:
                logger.warning("ledger_unreachable")
