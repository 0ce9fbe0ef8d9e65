"""Time as the ledger sees it: leases go by the database's clock alone, so hosts may disagree (notes/fleet.md, 3)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, func


def now() -> ColumnElement[datetime]:
    """Return the database's clock at the moment the statement runs."""
    return func.clock_timestamp()


def after(seconds: float) -> ColumnElement[datetime]:
    """Return the database's clock, `seconds` from now."""
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
