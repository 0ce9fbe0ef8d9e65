"""SQL that is made once and goes straight to psycopg, for statements that are on every job's way.

SQLAlchemy looks at a statement, its parameters and its result anew each time, which costs three times what sending it
does. What goes through here is in the caller's transaction and on its connection, prepared there after a few times, and
fails with the errors that SQLAlchemy has for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session


class Statement:
    """A statement with psycopg's placeholders, `%(name)s`: its text never changes, so that its plan can be kept."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def all(self, asked: Session | Connection, values: Mapping[str, Any] | None = None) -> list[Any]:
        """Run it in a session's transaction, or on a connection, and return its rows, as named tuples.

        The session is not flushed before: what its objects have not written yet, this does not see.

        Raises:
            DBAPIError: what SQLAlchemy raises; the message names no parameters.
        """
        connection = asked.connection() if isinstance(asked, Session) else asked
        driver: Any = connection.connection.driver_connection
        try:
            with driver.cursor(row_factory=namedtuple_row) as cursor:
                # Who counts or explains what SQLAlchemy sends hears of this, too.
                connection.dispatch.before_cursor_execute(connection, cursor, self.sql, values, None, False)
                cursor.execute(self.sql, values)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            raise self._told(error, connection, is_lost=driver.closed) from error

    def one_or_none(self, asked: Session | Connection, values: Mapping[str, Any] | None = None) -> Any:
        """Return the one row, or None; see `all`."""
        rows = self.all(asked, values)
        return rows[0] if rows else None

    def _told(self, error: psycopg.Error, connection: Connection, *, is_lost: bool) -> BaseException:
        if is_lost:
            connection.invalidate(error)
        return DBAPIError.instance(
            self.sql, None, error, psycopg.Error, hide_parameters=True, connection_invalidated=is_lost,
            dialect=connection.dialect,
        )  # fmt: skip
