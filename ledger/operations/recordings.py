"""Recorded model calls: what a tenant wants kept of its jobs' calls, so that they can be replayed offline.

A recording is redacted before it is written and goes with its job, or earlier when the tenant's days are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlmodel import Session, col, select

from ledger.record_tables import RecordedCall
from ledger.store import Statement
from ledger.tables import Job

RECORD = """
INSERT INTO recorded_call (id, job_id, expires_at, request, reply)
SELECT %(id)s, job.id, clock_timestamp() + make_interval(secs => tenant.recording_days * 86400), %(request)s, %(reply)s
  FROM job JOIN tenant ON tenant.name = job.tenant
 WHERE job.id = %(job_id)s AND tenant.recording_days > 0
ON CONFLICT DO NOTHING
RETURNING id
"""


def record_call(call_id: UUID, job_id: UUID, *, request: str, reply: str) -> Statement:
    """Return the statement that keeps a call, unless its tenant wants none kept by now.

    Args:
        call_id: of the call in the ledger.
        job_id: the job that made it.
        request: the redacted request, as JSON.
        reply: the redacted reply with its usage, as JSON.
    """
    return Statement(RECORD, {"id": call_id, "job_id": job_id, "request": request, "reply": reply})


def recordings_of(session: Session, root_id: UUID) -> Sequence[RecordedCall]:
    """Return the recorded calls of a session's jobs, in the order they ended."""
    query = select(RecordedCall).join(Job, col(Job.id) == col(RecordedCall.job_id))
    return session.exec(query.where(col(Job.root_id) == root_id).order_by(col(RecordedCall.at))).all()
