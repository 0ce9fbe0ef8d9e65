"""How attempts were lately, by queue: read once for all that is estimated from it, at the same cost however many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import text
from sqlmodel import Session

NEWEST = 1_000
"""Attempts, over all queues, that tell how attempts are now."""

_LATELY = text("""
    SELECT queue, count(*), count(seconds), coalesce(avg(seconds), 0), coalesce(var_pop(seconds), 0),
           coalesce(avg(nanousd) FILTER (WHERE seconds IS NOT NULL), 0)::float,
           (count(*) FILTER (WHERE ago <= 300) / 300.0)::float, (count(*) FILTER (WHERE ago <= 1800) / 1800.0)::float
      FROM (
        SELECT queue, extract(epoch FROM ended_at - started_at)::float AS seconds,
               extract(epoch FROM clock_timestamp() - started_at)::float AS ago,
               (SELECT coalesce(sum(cost_nanousd), 0) FROM call WHERE call.attempt_id = attempt.id) AS nanousd
          FROM attempt
         WHERE started_at > (SELECT clock_timestamp() - interval '1 hour')
         ORDER BY started_at DESC LIMIT :newest
    ) AS newest GROUP BY queue
""")


class Lately(NamedTuple):
    """How a queue's newest attempts of the last hour were."""

    begun: int
    ended: int
    seconds: float
    """On average, of those that ended; so are the next two."""
    variance: float
    nanousd: float
    in_5_minutes: float
    """Starts per second."""
    in_30_minutes: float


def read_lately(session: Session) -> Mapping[str, Lately]:
    """Return how the newest attempts were, by queue."""
    return {queue: Lately(*values) for queue, *values in session.execute(_LATELY, {"newest": NEWEST})}
