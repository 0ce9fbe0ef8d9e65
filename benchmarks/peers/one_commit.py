"""The floor: one row of a job's size, inserted and committed over a connection that is open."""

from collections.abc import Callable

import psycopg
from psycopg.types.json import Json

from benchmarks.places import PEER_DATABASE, body, place


def operation() -> Callable[[], object]:
    """Return what commits one row."""
    connection = psycopg.connect(place(PEER_DATABASE), autocommit=True)
    connection.execute("CREATE TABLE IF NOT EXISTS floor (id bigserial PRIMARY KEY, body jsonb)")
    return lambda: connection.execute("INSERT INTO floor (body) VALUES (%s)", (Json(body(0)),))
