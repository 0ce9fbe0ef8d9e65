"""Bring a ledger to the current schema, once, however many processes ask for it, while older ones work on it.

Each statement waits only briefly for its lock, since whatever stands in line for a table holds up everybody behind it;
a migration that did not get one steps back and comes again. Each of its operations can be done twice, so that it also
goes on where another try, or a crash, left it. How single operations are made so is in `rolling`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from alembic import command
from alembic.config import Config
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from monitoring.errors import LedgerBusyError, SchemaMismatchError
from monitoring.ledger import rolling
from monitoring.ledger.schema import SCRIPTS, Fit, fit_of, found_revision, wanted_revision

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 120.0
"""How long a migration tries to get its locks, or waits for another one."""
_PAUSE_SECONDS = 0.5
_LOCK_KEY = 7_041_776
"""PostgreSQL advisory lock: migrations run one at a time."""


def migrate(engine: Engine, *, to: str = "", patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Upgrade the ledger's schema; does nothing when it is there already, or newer.

    Args:
        engine: the ledger.
        to: the revision, empty for the newest.
        patience_seconds: how long to try.

    Raises:
        SchemaMismatchError: the operator's fault: the ledger is of another era.
        LedgerBusyError: nobody's fault: it stayed busy; nothing is half done that the next try does not complete.
    """
    deadline = time.monotonic() + patience_seconds
    with _alone(engine, deadline=deadline) as connection:
        found, wanted = found_revision(engine), to or wanted_revision()
        match fit_of(found, wanted):
            case Fit.FOREIGN:
                raise SchemaMismatchError(found, wanted)
            case Fit.OLDER:
                _upgrade(connection, wanted, deadline=deadline)


@contextmanager
def _alone(engine: Engine, *, deadline: float) -> Iterator[Connection]:
    """Give a connection for one migration at a time.

    The lock is asked for again and again: whoever waited for it in one statement would hold a snapshot, and building an
    index beside others waits for every old snapshot.
    """
    with engine.connect() as connection:
        try:
            while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LOCK_KEY}):
                connection.commit()
                _wait(deadline)
            for setting in ("statement_timeout = 0", "idle_in_transaction_session_timeout = 0"):
                connection.execute(text(f"SET {setting}"))
            connection.commit()
            yield connection
        finally:
            connection.invalidate()  # neither the lock nor the settings may come back to the pool


def _upgrade(connection: Connection, to: str, *, deadline: float) -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.attributes["connection"] = connection
    while True:
        connection.execute(text(f"SET lock_timeout = {rolling.LOCK_TIMEOUT_MS}"))
        connection.commit()
        try:
            command.upgrade(config, to)
            connection.commit()
            return
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable | DeadlockDetected):
                raise
            logger.warning("migration_waits_for_a_lock")
        connection.rollback()
        _wait(deadline)


def _wait(deadline: float) -> None:
    if time.monotonic() >= deadline:
        raise LedgerBusyError
    time.sleep(_PAUSE_SECONDS)
