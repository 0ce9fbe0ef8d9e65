"""Whether a job may start right now: asked at its claim, when a message is on a worker's desk already.

What the dispatcher pushed may be seconds old. So a pause takes effect here, at once, and here no tenant ever gets more
attempts than it may have, however many of its messages are claimed at the same moment.
"""

from __future__ import annotations

from sqlalchemy import exists, func, select, text
from sqlmodel import Session, col

from monitoring.ledger.record_tables import QueueControl
from monitoring.ledger.runway_sql import AT_WORK
from monitoring.ledger.tables import Attempt, Job, Tenant
from routing.admission import Admission
from routing.tiers import QueueName


def may_start(session: Session, job: Job, queue: QueueName, *, admission: Admission) -> bool:
    """Tell whether a locked job may be taken up from a queue now; until the caller commits, that stays true.

    `control` is not counted: it only finishes what has begun, and a publish must not wait for other work.

    Args:
        session: the caller's transaction.
        job: waits on the queue.
        queue: where.
        admission: the platform's limits; a tenant may have one of its own.
    """
    standing = exists().where(col(QueueControl.queue) == queue.value, col(QueueControl.paused_at).is_not(None))
    own = select(standing, col(Tenant.paused_at), col(Tenant.max_running)).where(col(Tenant.name) == job.tenant)
    if queue is not QueueName.CONTROL:
        # Claims of one tenant count one after the other: two that counted at once would both see the last free place.
        own = own.with_for_update(key_share=True, of=Tenant)
    is_paused, paused_at, own_limit = session.execute(own).one()
    if is_paused or paused_at is not None:
        return False
    limit = own_limit if own_limit is not None else admission.running_per_tenant
    return limit is None or queue is QueueName.CONTROL or running(session, job.tenant) < limit


def running(session: Session, tenant: str) -> int:
    """Return how many attempts of a tenant are at work, those on `control` aside."""
    live = (
        select(func.count())
        .select_from(Attempt)
        .join(Job, col(Job.id) == col(Attempt.job_id))
        .where(text(AT_WORK), col(Job.tenant) == tenant)
    )
    return session.scalar(live) or 0
