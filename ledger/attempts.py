"""Attempts: who works on a job right now, proven by a lease, a fence and a token.

What an attempt does counts only while it holds the job. When its lease lapses the dispatcher takes the job away, and
whatever the attempt does later is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger.errors import FencedError
from ledger.events import EventKind, record, wake_dispatcher
from ledger.jobs import close_attempt, end, lock_job, move, rest, wait_on
from ledger.sql import after, moment, now
from ledger.step_ends import is_step
from ledger.tables import Attempt, Job, Tenant
from routing.errors import PolicyError
from routing.jobs import JobMessage, Reason, State
from routing.policy.platform import Policy, ProjectOverrides, lower
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from routing.scheduling import pause_before


class Renewal(NamedTuple):
    """What an attempt learns when it renews its lease."""

    holds: bool
    """False when the job was taken away: stop, nothing will count."""
    cancel_requested: bool


def new_token() -> str:
    """Return a token that nobody has: worth something once an attempt's row holds its hash."""
    return f"pma_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """Return what is stored of an attempt's token."""
    return hashlib.sha256(token.encode()).hexdigest()


def effective_policy(session: Session, tenant: str, policy: Policy) -> Policy:
    """Return the policy as a tenant's overrides leave it.

    Raises:
        PolicyError: the operator's fault: the stored overrides do not fit the platform's policy any more.
    """
    row = session.get(Tenant, tenant)
    return policy_under(row.overrides, tenant, policy) if row is not None else policy


def policy_under(overrides: Mapping[str, Any], tenant: str, policy: Policy) -> Policy:
    """Return the policy as a tenant's overrides leave it; see `effective_policy`."""
    if not overrides:
        return policy
    try:
        return lower(policy, ProjectOverrides.model_validate(overrides))
    except (PolicyError, ValidationError):
        raise PolicyError(f"the overrides of tenant {tenant} do not fit the platform's policy") from None


def renew(session: Session, attempt: Attempt, *, lease_seconds: float) -> Renewal:
    """Prolong an attempt's lease, and learn whether it still holds the job.

    Past its deadline an attempt cannot: one that even the hard limit did not end loses its job to the dispatcher.
    """
    renewed = session.execute(
        sql_update(Attempt)
        .where(
            col(Attempt.id) == attempt.id,
            col(Attempt.ended_at).is_(None),
            col(Attempt.lost_cause).is_(None),
            col(Attempt.deadline) > now(),
        )
        .values(lease_until=after(lease_seconds))
    )
    cancelled_at = session.scalar(select(col(Job.cancel_requested_at)).where(col(Job.id) == attempt.job_id))
    return Renewal(bool(renewed.rowcount), cancelled_at is not None)  # type: ignore[attr-defined]


def hold(session: Session, attempt: Attempt) -> Job:
    """Lock the job that an attempt holds: the start of every effect of an attempt.

    Raises:
        FencedError: nobody's fault: the job was taken away or has ended; the effect must not happen.
    """
    job = lock_job(session, attempt.job_id)
    if job.fence != attempt.fence:  # which is raised at every end of an attempt, in the transaction of that end
        raise FencedError(attempt.job_id, attempt.fence)
    return job


def bind_door(session: Session, attempt: Attempt, *, address: str | None, token: str | None = None) -> None:
    """Bind an attempt's token to the one address from which it may be used: that of its box's forwarder.

    Args:
        session: the caller's transaction.
        attempt: must hold its job.
        address: the forwarder's outer address; None when its box is about to go. The token then opens nothing any more,
            whatever address is bound after that: code in that box may have left it in the files that it wrote.
        token: the only one from now on, which a session in the box was started with before anybody knew for whom; None
            leaves the attempt the one that it has. Until then it opened nothing, as no attempt had it.

    Raises:
        FencedError: nobody's fault: the job was taken away or has ended.
        ValueError: the caller's fault: this is no address.
    """
    hold(session, attempt)
    if address is None:
        token = new_token()  # nobody's
    taken = {} if token is None else {"token_hash": hash_token(token)}
    door = None if address is None else str(ip_address(address))
    session.execute(sql_update(Attempt).where(col(Attempt.id) == attempt.id).values(door=door, **taken))


def escalate(session: Session, job: Job, *, to: Tier, reason: Reason, detail: str) -> None:
    """Hand a held job to the next tier, on the same bill (H-067 to H-069)."""
    origin = job.tier
    close_attempt(session, job, outcome="escalated", reason=reason)
    job.fence += 1
    job.tier = to.value
    move(session, job, State.QUEUED, reason=reason)
    record(session, EventKind.ESCALATED, job=job, origin=origin, target=to.value, reason=reason.value, detail=detail)
    wait_on(session, job, QUEUE_OF_TIER[to])


def report_loss(session: Session, message: JobMessage, *, cause: Reason) -> None:
    """Let a worker say that this job's attempt is over without an end: the lease lapses at once.

    Args:
        session: the caller's transaction.
        message: what the attempt was begun with.
        cause: `time_limit` or `worker_lost` when the child that held the job is dead, `worker_stopped` when a worker
            that is stopping hands the job back.
    """
    lapsed = session.execute(
        sql_update(Attempt)
        .where(
            col(Attempt.job_id) == message.job_id,
            col(Attempt.fence) == message.fence + 1,
            col(Attempt.ended_at).is_(None),
        )
        .values(lease_until=now(), lost_cause=cause.value)
    )
    if lapsed.rowcount:  # type: ignore[attr-defined]
        wake_dispatcher(session)


def hand_back_all(session: Session, worker: str) -> int:
    """Let every attempt of a worker that is stopping lapse at once; returns how many there were.

    Args:
        session: the caller's transaction.
        worker: the stopping worker's name.
    """
    lapsed = session.execute(
        sql_update(Attempt)
        .where(col(Attempt.worker) == worker, col(Attempt.ended_at).is_(None), col(Attempt.lost_cause).is_(None))
        .values(lease_until=now(), lost_cause=Reason.WORKER_STOPPED.value)
    )
    count: int = lapsed.rowcount  # type: ignore[attr-defined]
    if count:
        wake_dispatcher(session)
    return count


def lapsed_attempts(session: Session, *, limit: int = 100) -> Sequence[Attempt]:
    """Return the attempts whose lease has run out, oldest first."""
    return session.scalars(
        select(Attempt)
        .where(col(Attempt.ended_at).is_(None), col(Attempt.lease_until) < moment())
        .order_by(col(Attempt.lease_until))
        .limit(limit)
    ).all()


def recover(
    session: Session, attempt: Attempt, *, max_lost: int, silent_seconds: float = 0.0, pauses: Sequence[float] = ()
) -> None:
    """Take a job away from an attempt whose lease has run out, and decide how it goes on.

    A job whose time was up ends `timed_out`; one that lost its worker too often ends `failed`; any other waits again.
    One that a stopping worker handed back always waits again, and nothing is counted against it: a deploy is no crash.

    Args:
        session: the caller's transaction.
        attempt: as it was when it was found; it is read anew under the job's lock.
        max_lost: a job that lost so many workers ends.
        silent_seconds: how long before its lease ran out a live attempt renews it: one that was silent longer than
            that before its deadline died of something else than its time.
        pauses: seconds that the job rests after its first loss, its second and so on.
    """
    job = lock_job(session, attempt.job_id)
    current = session.get_one(Attempt, attempt.id, populate_existing=True)
    lapse = session.execute(
        select(
            col(Attempt.lease_until) < now(),
            col(Attempt.deadline) <= col(Attempt.lease_until) - func.make_interval(0, 0, 0, 0, 0, 0, silent_seconds),
        ).where(col(Attempt.id) == attempt.id)
    ).one()
    has_lapsed, reached_deadline = lapse
    if current.ended_at is not None or not has_lapsed:
        return
    timed_out = current.lost_cause == Reason.TIME_LIMIT or (current.lost_cause is None and bool(reached_deadline))
    handed_back = current.lost_cause == Reason.WORKER_STOPPED
    reason = Reason.WORKER_STOPPED if handed_back else Reason.TIME_LIMIT if timed_out else Reason.WORKER_LOST
    close_attempt(session, job, outcome="lost", reason=reason)
    job.lost_attempts += not handed_back
    job.fence += 1
    session.flush()
    _go_on(session, job, reason=reason, max_lost=max_lost, pauses=pauses)


def _go_on(session: Session, job: Job, *, reason: Reason, max_lost: int, pauses: Sequence[float]) -> None:
    """Decide what becomes of a locked job that lost its attempt."""
    is_control = job.queue == QueueName.CONTROL  # a publish or the advance of a run: done again, it loses nothing
    if job.cancel_requested_at is not None and not is_control:
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED)
    elif reason == Reason.TIME_LIMIT and not is_control:
        end(session, job, State.TIMED_OUT, reason=reason, detail="the hard time limit ended it; nothing was kept")
    elif reason == Reason.WORKER_STOPPED or (job.lost_attempts < max_lost and not is_step(job)):
        # After a loss a step's next try is another execution, which is its run's say.
        if job.state in (State.RUNNING, State.SCANNING):
            move(session, job, State.QUEUED, reason=reason)
        seconds = 0.0 if reason == Reason.WORKER_STOPPED else pause_before(pauses, tries=job.lost_attempts)
        rest(session, job, QueueName(job.queue), seconds=seconds)
    else:
        end(session, job, State.FAILED, reason=reason, detail=f"its worker died {job.lost_attempts} times")
