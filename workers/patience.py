"""Control work that meets a forge, a Den or a disk that is away waits in the ledger, with growing pauses.

No worker waits with it: the attempt ends, the job is held for a time, and any worker takes it up then. Publishing
and advancing a run can be done again from the start and come to the same, so nothing but the tries is kept.
"""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import func, select
from sqlmodel import Session

from monitoring.ledger.attempts import hold
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.jobs import close_attempt, rest
from monitoring.ledger.sql import now
from monitoring.ledger.start_attempt import Claim
from monitoring.ledger.tables import Job
from routing.jobs import Reason
from routing.policy import Pauses
from routing.queues import QueueName
from routing.waits import RESTING, pause_before
from workers.lifecycle import Resources

logger = logging.getLogger(__name__)

_HOUR_SECONDS = 3600.0
_WHY_LIMIT = 400


def try_later(claimed: Claim, resources: Resources, *, reason: Reason, why: str) -> bool:
    """Let control work be done again after a pause; False when it has waited as long as the policy lets it.

    Args:
        claimed: the job and this attempt.
        resources: what every task needs.
        reason: what is away.
        why: the same in words, for the job's owner.

    Raises:
        FencedError: nobody's fault: the job was taken away.
    """
    with resources.ledger.begin() as session:
        job = hold(session, claimed.attempt)
        seconds = _next_pause(session, job, claimed.policy.pauses, why=why)
        if seconds is None:
            return False
        close_attempt(session, job, outcome="resting", reason=reason)
        job.fence += 1  # as at every end of an attempt: a late effect of it must be refused
        record(session, EventKind.PROGRESS, job=job, text=f"waits {seconds:g} s and tries again: {why[:_WHY_LIMIT]}")
        rest(session, job, QueueName.CONTROL, seconds=seconds)
    logger.warning("control_work_rests", extra={"seconds": seconds, "reason": reason.value, "why": why[:200]})
    return True


def _next_pause(session: Session, job: Job, pauses: Pauses, *, why: str) -> float | None:
    """Note one more try on a held job, and return how long it rests; None when its time is over."""
    at = float(session.scalar(select(func.extract("epoch", now()))) or 0)
    before: dict[str, Any] = job.result.get(RESTING) or {"since": at, "tries": 0}
    tries = int(before["tries"]) + 1
    seconds = pause_before(pauses.control, tries=tries)
    if at + seconds - float(before["since"]) > pauses.control_hours * _HOUR_SECONDS:
        return None
    job.result = {**job.result, RESTING: {"since": before["since"], "tries": tries, "why": why[:_WHY_LIMIT]}}
    session.flush()
    return seconds


def came_through(job: Job) -> None:
    """Note on a held job that nothing it waited for is away any more."""
    job.result = {name: value for name, value in job.result.items() if name != RESTING}
