"""Doors: which addresses a live attempt's box stands behind, and what came in through them besides model calls."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_core import to_json

from monitoring.ledger.events import EventKind
from monitoring.ledger.money import Statement

_IS_OPEN = """
SELECT EXISTS (
    SELECT FROM attempt JOIN job ON job.id = attempt.job_id
    WHERE attempt.ended_at IS NULL AND attempt.door = %(address)s AND attempt.deadline > clock_timestamp()
      AND attempt.fence = job.fence AND job.cancel_requested_at IS NULL
)
"""

_TELL = """
INSERT INTO event (kind, data)
SELECT %(kind)s, jsonb_build_object('result', told.result, 'requests', told.requests, 'bytes', told.bytes)
FROM jsonb_to_recordset(%(counts)s::jsonb) AS told (result text, requests bigint, bytes bigint)
RETURNING id
"""


def is_open(address: str) -> Statement:
    """Ask whether an attempt that may go on is bound to this address: one row with true or false."""
    return Statement(_IS_OPEN, {"address": address})


def tell_mirror(counts: Mapping[str, tuple[int, int]]) -> Statement:
    """Record what the package mirror did since it last told: requests and bytes sent, by result."""
    rows = [{"result": result, "requests": requests, "bytes": sent} for result, (requests, sent) in counts.items()]
    return Statement(_TELL, {"kind": EventKind.MIRROR.value, "counts": to_json(rows).decode()})
