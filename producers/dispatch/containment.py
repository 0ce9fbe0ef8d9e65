"""How the dispatcher and its threads go on after a row, a step or the ledger fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from psycopg.errors import DeadlockDetected, LockNotAvailable, QueryCanceled, SerializationFailure
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from producers.errors import LeadLostError

logger = logging.getLogger(__name__)

_ONE_ROW = (QueryCanceled, DeadlockDetected, LockNotAvailable, SerializationFailure)
"""Errors of a single statement, such as a lock timeout: the ledger itself is there."""


@contextmanager
def contained(what: str, **facts: Any) -> Iterator[None]:
    """Let one row or step fail alone: it is logged and tried again in the next round.

    Only an unreachable ledger ends the round, since everything else would fail as well.
    """
    try:
        yield
    except LeadLostError:
        raise
    except (OperationalError, InterfaceError) as error:
        if not isinstance(error.orig, _ONE_ROW):
            raise
        logger.warning("left_for_next_round", exc_info=True, extra={"step": what, **facts})
    except Exception:
        logger.exception("left_for_next_round", extra={"step": what, **facts})


@contextmanager
def surviving(what: str) -> Iterator[None]:
    """Keep a thread's work going after any error, also an unreachable ledger."""
    try:
        with contained(what):
            yield
    except SQLAlchemyError:
        logger.warning("ledger_unreachable")


class Deliverer(Protocol):
    """Sends what the ledger holds for a receiver outside."""

    def deliver_due(self, *, limit: int = 20) -> int:
        """Send what is due; returns how many deliveries were tried."""


def deliver(sender: Deliverer, stopping: threading.Event, *, tick_seconds: float) -> None:
    """Deliver what is due until stopped, one at a time, so that a stop waits for one receiver at most."""
    while not stopping.wait(tick_seconds):
        with surviving(type(sender).__name__):
            while not stopping.is_set() and sender.deliver_due(limit=1):
                pass
