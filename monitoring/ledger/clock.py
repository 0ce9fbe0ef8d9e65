"""Time as the ledger sees it: leases go by the database's clock alone, so hosts may disagree (notes/fleet.md, 3)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, func, select


def now() -> ColumnElement[datetime]:
    """Return the database's clock at the moment the statement runs."""
    return func.clock_timestamp()


def after(seconds: float) -> ColumnElement[datetime]:
    """Return the database's clock, `seconds` from now."""
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def moment(seconds: float = 0.0) -> ColumnElement[datetime]:
    """Return the database's clock as it is read once for a whole statement, or `seconds` later: to find rows by a time.

    With `now()` itself the clock would be read for every row, so that no index on the time could be used.
    """
    return select(after(seconds) if seconds else now()).scalar_subquery()
