"""Columns that several tables have: moments, amounts of money, JSON."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, DateTime, Table, inspect, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Field, SQLModel

NOW = text("now()")


def when_column(*, nullable: bool = True, default_now: bool = False) -> Any:
    """Return a moment with time zone, by the database's clock where it sets it."""
    return Field(
        default=None,
        sa_type=DateTime(timezone=True),
        nullable=nullable,
        sa_column_kwargs={"server_default": NOW} if default_now else {},
    )


def json_column(default: type) -> Any:
    """Return a JSON value that is never NULL, made by `default`."""
    return Field(default_factory=default, sa_type=JSONB, nullable=False)


def money_column(*, nullable: bool = False) -> Any:
    """Return an amount in nanodollars: 0 by default, or nothing where that is allowed."""
    return Field(default=None if nullable else 0, sa_type=BigInteger, nullable=nullable)


def table_of(model: type[SQLModel]) -> Table:
    """Return a model's table, for statements that bring no object back: without the ORM they cost a third."""
    table = inspect(model).local_table
    assert isinstance(table, Table)
    return table


def learn(row: SQLModel, **columns: Any) -> None:
    """Note on an object what a statement has written into its row: nothing of it is written once more."""
    for name, value in columns.items():
        set_committed_value(row, name, value)
