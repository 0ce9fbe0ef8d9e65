"""SQL that is made once and goes straight to psycopg, and values as PostgreSQL takes them.

SQLAlchemy looks at a statement, its parameters and its result anew each time, which costs three times what sending it
does. What goes through `Statement` is in the caller's transaction and on its connection, prepared there after a few
times, and fails with the errors that SQLAlchemy has for it.

Leases go by the database's clock alone, so hosts may disagree (notes/fleet.md, 3).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import ColumnElement, Connection, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm.attributes import set_committed_value
from sqlmodel import Session, SQLModel

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Statement:
    """A statement with psycopg's placeholders, `%(name)s`: its text never changes, so that its plan can be kept."""

    sql: str
    values: Mapping[str, Any] | None = None
    """What it is run with unless the caller gives values: the gateway takes statement and values on its event loop."""

    def all(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Run it in a session's transaction, or on a connection, and return its rows, as named tuples.

        The session is not flushed before: what its objects have not written yet, this does not see.

        Raises:
            DBAPIError: what SQLAlchemy raises; the message names no parameters.
        """
        connection = where.connection() if isinstance(where, Session) else where
        driver: Any = connection.connection.driver_connection
        values = self.values if values is None else values
        try:
            with driver.cursor(row_factory=namedtuple_row) as cursor:
                # Who counts or explains what SQLAlchemy sends hears of this, too.
                connection.dispatch.before_cursor_execute(connection, cursor, self.sql, values, None, False)
                cursor.execute(self.sql, values)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._as_dbapi_error(error, connection, is_lost=driver.closed) from error

    def one(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first row, or None; see `all`."""
        rows = self.all(where, values)
        return rows[0] if rows else None

    def scalar(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None; see `all`."""
        row = self.one(where, values)
        return None if row is None else row[0]

    def scalars(self, where: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Return the first column of every row; see `all`."""
        return [row[0] for row in self.all(where, values)]

    def _as_dbapi_error(self, error: psycopg.Error, connection: Connection, *, is_lost: bool) -> BaseException:
        if is_lost:
            connection.invalidate(error)
        facts: dict[str, Any] = {"hide_parameters": True, "connection_invalidated": is_lost}
        raised: BaseException = DBAPIError.instance(
            self.sql, None, error, psycopg.Error, dialect=connection.dialect, **facts
        )
        return raised


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


def set_persisted(row: SQLModel, **columns: Any) -> None:
    """Set attributes as a statement has written them into the row: the session does not write them once more."""
    for name, value in columns.items():
        set_committed_value(row, name, value)


def storable(text: str) -> str:
    """Return `text` with what PostgreSQL cannot hold, NUL and lone surrogates, replaced by U+FFFD.

    A model or a caller can write both; neither may stop a job.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def dump_json(value: Any) -> str:
    """Return JSON that `jsonb` takes: the ledger's serializer. Ids and moments become text."""
    text = json.dumps(value, default=str)
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_storable_value(value), default=str)
    return text


def _storable_value(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(name)): _storable_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable_value(item) for item in value]
    return value
