"""Which schema a ledger has, as seen by a process made for one: for a while, two versions share a ledger.

A revision's number says it: `0002` is the second of era `00`. Within an era every migration only adds (a test reads the
scripts), so a process works on any newer revision of its own era. On an older one it waits for `pointsman migrate`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Engine, text
from sqlalchemy.exc import InterfaceError, OperationalError, ProgrammingError

from monitoring.errors import SchemaMismatchError
from monitoring.ledger.store import create_ledger_engine

logger = logging.getLogger(__name__)

SCRIPTS = Path(__file__).parent / "migrations"
PATIENCE_SECONDS = 60.0
"""How long a process that was started before `pointsman migrate` waits for it."""
_POLL_SECONDS = 1.0
_ERA_DIGITS = 2


class Fit(StrEnum):
    """How a ledger's schema stands to the one that this version was made for."""

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    """Of the same era: it has what this version needs, and more."""
    FOREIGN = "foreign"
    """Of another era: what this version needs may be gone."""


def fit_of(found: str | None, wanted: str) -> Fit:
    """Tell how a ledger at revision `found`, None for an empty one, stands to what a version wants."""
    if found == wanted:
        return Fit.CURRENT
    if found is None or found < wanted:
        return Fit.OLDER
    return Fit.NEWER if found[:_ERA_DIGITS] == wanted[:_ERA_DIGITS] else Fit.FOREIGN


def wanted_revision() -> str:
    """Return the newest revision that this version knows."""
    return max(path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*_*.py"))


def found_revision(engine: Engine) -> str | None:
    """Return the revision that a ledger is at, None when it has no schema."""
    try:
        with engine.connect() as connection:
            revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
            return revision
    except ProgrammingError:
        return None


def fit(engine: Engine) -> Fit:
    """Tell how a ledger stands to this version."""
    return fit_of(found_revision(engine), wanted_revision())


def serves(engine: Engine) -> bool:
    """Tell whether this version can work on a ledger: it has the schema that it was made for, or a newer one."""
    return fit(engine) in (Fit.CURRENT, Fit.NEWER)


def await_schema(
    ledger_url: str, *, patience_seconds: float = PATIENCE_SECONDS, pause: Callable[[float], None] = time.sleep
) -> None:
    """Wait until a ledger has a schema that this version can work on; called once, at a process's start.

    A ledger that is away is nobody's wrong version: whoever starts then goes on and waits for it in its own way.

    Args:
        ledger_url: where the ledger is.
        patience_seconds: how long to wait for a migration.
        pause: sleeps for so many seconds.

    Raises:
        SchemaMismatchError: the operator's fault: it was not migrated in time, or is of another era.
    """
    engine = create_ledger_engine(ledger_url, pool_size=0)
    wanted, deadline = wanted_revision(), time.monotonic() + patience_seconds
    try:
        while (found := found_revision(engine)) != wanted:
            match fit_of(found, wanted):
                case Fit.NEWER:
                    logger.warning("ledger_is_newer", extra={"found": found, "made_for": wanted})
                    return
                case Fit.FOREIGN:
                    raise SchemaMismatchError(found, wanted)
            if time.monotonic() >= deadline:
                raise SchemaMismatchError(found, wanted)
            logger.warning("ledger_is_older", extra={"found": found, "made_for": wanted})
            pause(_POLL_SECONDS)
    except (OperationalError, InterfaceError):
        logger.warning("ledger_unreachable")
    finally:
        engine.dispose()
