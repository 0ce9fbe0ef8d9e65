"""Attempts: which worker holds a job, by lease, fence and token, and how it gives the job up.

What an attempt does counts only while it holds the job. When its lease lapses the dispatcher takes the job away, and
whatever the attempt does later is refused.

A deferred attempt ends and counts for nothing against its job, which waits for its provider or for storage. When no
work is kept (`deferred`), what the attempt spent is waste, and the job gives up its site, so that jobs of other
providers can go on. When work is kept (`deferred_kept`), the job holds on to its site: another release would make that
work worthless. A model's reply that was paid for is such work: the next attempt asks the same and reads it.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import ValidationError
from sqlalchemy import func, select, true
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger.dispatch_window import hold_back
from ledger.errors import FencedError, JobNotFoundError
from ledger.events import EventKind, record
from ledger.job_ends import is_step
from ledger.jobs import close_attempt, end, lock_job, move, requeue, wait_on
from ledger.runs.tables import AgentExecution
from ledger.store import OF_OPEN_TENANTS, Statement, after, dump_json, moment, now, wake_dispatcher
from ledger.tables import Attempt, ClaimedAttempt, Job, Release, Site, Tenant
from routing.errors import PolicyError, UnknownMessageError
from routing.jobs import DEFERRED, DEFERRED_KEPT, PAID_REPLIES, JobMessage, Reason, State
from routing.policy.platform import Policy, ProjectOverrides, lower
from routing.provider_circuit import Circuits, job_pause
from routing.queues import QUEUE_OF_TIER, QueueName, Tier
from routing.rounds import work_begun
from routing.scheduling import WaitReason, retry_delay_seconds

_MOST_REPLY_CHARACTERS = 256 * 1024
"""Of the replies that a job keeps: more than all calls of tiers 1 and 2 write."""
HANDED_BACK = frozenset({Reason.WORKER_STOPPED, Reason.LEDGER_UNREACHABLE})
"""Losses that are not the job's: it waits again at once, and nothing is counted against it."""


def new_token() -> str:
    """Return a new token; it becomes valid once an attempt's row holds its hash."""
    return f"pma_{secrets.token_urlsafe(32)}"


def hash_token(token: str) -> str:
    """Return the hash that is stored in place of an attempt's token."""
    return hashlib.sha256(token.encode()).hexdigest()


def effective_policy(session: Session, tenant: str, policy: Policy) -> Policy:
    """Return the policy with a tenant's overrides applied.

    Raises:
        PolicyError: the operator's fault: the stored overrides no longer fit the platform's policy.
    """
    row = session.get(Tenant, tenant)
    return policy_under(row.overrides, tenant, policy) if row is not None else policy


def policy_under(overrides: Mapping[str, Any], tenant: str, policy: Policy) -> Policy:
    """Return the policy with these overrides of a tenant applied; raises like `effective_policy`."""
    if not overrides:
        return policy
    try:
        return lower(policy, ProjectOverrides.model_validate(overrides))
    except (PolicyError, ValidationError):
        raise PolicyError(f"the overrides of tenant {tenant} do not fit the platform's policy") from None


_RENEW = Statement("""
    WITH mine AS (SELECT id FROM attempt WHERE id = ANY(%(ids)s) FOR UPDATE SKIP LOCKED),
         renewed AS (UPDATE attempt SET lease_until = clock_timestamp() + make_interval(secs => %(seconds)s)
                       FROM mine
                      WHERE attempt.id = mine.id AND ended_at IS NULL AND lost_cause IS NULL
                        AND deadline > clock_timestamp()
                  RETURNING attempt.id)
    SELECT mine.id, renewed.id IS NOT NULL AS holds FROM mine LEFT JOIN renewed USING (id)
""")


def renew_all(session: Session, attempts: Collection[UUID], *, lease_seconds: float) -> Mapping[UUID, bool]:
    """Extend the leases of these attempts in one statement, and return which still hold their jobs.

    Past its deadline none can be extended: an attempt that survives its hard limit loses its job to the dispatcher. An
    attempt that another transaction is just changing is passed over: it waits for nobody, and is not in the answer.
    """
    return {row.id: row.holds for row in _RENEW.all(session, {"ids": list(attempts), "seconds": float(lease_seconds)})}


def lock_owned_job(session: Session, attempt: Attempt | ClaimedAttempt) -> Job:
    """Lock the job that an attempt holds, and return it: the start of every effect of an attempt.

    Raises:
        FencedError: nobody's fault: the job was taken away or has ended; the effect must not happen.
    """
    try:  # every end of an attempt raises the fence in its own transaction
        return lock_job(session, attempt.job_id, attempt_id=attempt.id)
    except JobNotFoundError:
        raise FencedError(attempt.job_id, attempt.fence) from None


def bind_egress(
    session: Session, attempt: Attempt | ClaimedAttempt, *, address: str | None, token: str | None = None
) -> None:
    """Bind an attempt's token to the one address from which it may be used: that of its box's egress forwarder.

    Args:
        session: the caller's transaction.
        attempt: must hold its job.
        address: the forwarder's outer address; None when the box is about to go. That revokes the token for good: code
            in the box may have left it in the files that it wrote.
        token: replaces the attempt's token, for a session that was started in the box before its job was known; None
            keeps the current one.

    Raises:
        FencedError: nobody's fault: the job was taken away or has ended.
        ValueError: the caller's fault: `address` is not an IP address.
    """
    lock_owned_job(session, attempt)
    if address is None:
        token = new_token()  # that nobody has
    replaced = {} if token is None else {"token_hash": hash_token(token)}
    egress_address = None if address is None else str(ip_address(address))
    session.execute(
        sql_update(Attempt).where(col(Attempt.id) == attempt.id).values(egress_address=egress_address, **replaced)
    )


def escalate(session: Session, job: Job, *, to: Tier, reason: Reason, detail: str) -> None:
    """Hand a held job to the next tier, on the same bill (H-067 to H-069)."""
    origin = job.tier
    close_attempt(session, job, outcome="escalated", reason=reason)
    job.fence += 1
    job.tier = to.value
    move(session, job, State.QUEUED, reason=reason)
    record(session, EventKind.ESCALATED, job=job, origin=origin, target=to.value, reason=reason.value, detail=detail)
    wait_on(session, job, QUEUE_OF_TIER[to])


def report_loss(
    session: Session,
    message: JobMessage,
    *,
    worker: str,
    cause: Reason,
    replies: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Let the lease of an attempt lapse at once, because its worker reports that nobody works on the job.

    Args:
        session: the caller's transaction.
        message: the one that the attempt was started from.
        worker: the one that started it.
        cause: `time_limit` or `worker_lost` when the child that held the job is dead, one of `HANDED_BACK` when its
            worker gives it up, `internal_error` when it could not go on.
        replies: as in `defer`.
    """
    job = lock_job(session, message.job_id) if replies else None
    lapsed = session.execute(
        sql_update(Attempt)
        .where(
            col(Attempt.job_id) == message.job_id,
            col(Attempt.fence) == message.fence + 1,
            col(Attempt.worker) == worker,
            col(Attempt.ended_at).is_(None),
        )
        .values(lease_until=now(), lost_cause=cause.value)
    )
    if lapsed.rowcount:  # type: ignore[attr-defined]
        if job is not None:
            _keep_replies(job, replies)
        wake_dispatcher(session)


def expire_worker_leases(session: Session, worker: str) -> int:
    """Let every attempt of a stopping worker lapse at once, and return how many there were."""
    lapsed = session.execute(
        sql_update(Attempt)
        .where(col(Attempt.worker) == worker, col(Attempt.ended_at).is_(None), col(Attempt.lost_cause).is_(None))
        .values(lease_until=now(), lost_cause=Reason.WORKER_STOPPED.value)
    )
    count: int = lapsed.rowcount  # type: ignore[attr-defined]
    if count:
        wake_dispatcher(session)
    return count


def find_lapsed_attempts(session: Session, *, limit: int = 100, only_reported: bool = False) -> Sequence[Attempt]:
    """Return the attempts whose lease has run out, oldest first; or only those whose loss was reported."""
    wanted = col(Attempt.lost_cause).is_not(None) if only_reported else true()
    return session.scalars(
        select(Attempt)
        .where(col(Attempt.ended_at).is_(None), col(Attempt.lease_until) < moment(), wanted)
        .order_by(col(Attempt.lease_until))
        .limit(limit)
    ).all()


def recover(
    session: Session,
    attempt: Attempt,
    *,
    max_lost: int,
    silent_seconds: float = 0.0,
    pauses: Sequence[float] = (),
    back_seconds: float = math.inf,
    lease_seconds: float = 0.0,
) -> None:
    """Take a job away from an attempt whose lease has run out, and decide what becomes of it.

    A job whose time was up ends `timed_out`; one that lost its worker too often ends `failed`; any other waits again.
    A job that was handed back, or whose lease nobody could renew while the ledger was away, always waits again, and
    nothing is counted against it: neither a deploy nor an outage is a crash.

    Args:
        session: the caller's transaction.
        attempt: read again under the job's lock.
        max_lost: the number of lost workers at which a job ends.
        silent_seconds: how long before expiry a live attempt renews its lease. One that fell silent earlier than that
            before its deadline died of something other than its time limit.
        pauses: seconds that the job waits after its first loss, its second and so on.
        back_seconds: for how long the ledger has been back; for the time of a lease its worker may renew it yet.
        lease_seconds: how long a lease lasts.
    """
    job = lock_job(session, attempt.job_id)
    current = session.get_one(Attempt, attempt.id, populate_existing=True)
    lapse = session.execute(
        select(
            func.extract("epoch", now() - col(Attempt.lease_until)),
            col(Attempt.deadline) <= col(Attempt.lease_until) - func.make_interval(0, 0, 0, 0, 0, 0, silent_seconds),
        ).where(col(Attempt.id) == attempt.id)
    ).one()
    lapsed_seconds, reached_deadline = float(lapse[0]), bool(lapse[1])
    if current.ended_at is not None or lapsed_seconds <= 0:
        return
    if current.lost_cause is not None:
        reason = Reason(current.lost_cause)
    elif lapsed_seconds > back_seconds - lease_seconds:  # never renewed since the ledger is back
        if back_seconds < lease_seconds:
            return
        reason = Reason.LEDGER_UNREACHABLE
    else:
        reason = Reason.TIME_LIMIT if reached_deadline else Reason.WORKER_LOST
    close_attempt(session, job, outcome="lost", reason=reason)
    job.lost_attempts += reason not in HANDED_BACK
    job.fence += 1
    session.flush()
    _go_on(session, job, reason=reason, max_lost=max_lost, pauses=pauses)


def _go_on(session: Session, job: Job, *, reason: Reason, max_lost: int, pauses: Sequence[float]) -> None:
    """Decide what becomes of a locked job that lost its attempt."""
    is_control = job.queue == QueueName.CONTROL  # a publish or the advance of a run is safe to repeat
    if job.cancel_requested_at is not None and not is_control:
        end(session, job, State.CANCELLED, reason=Reason.CANCELLED)
    elif reason == Reason.TIME_LIMIT and not is_control:
        end(session, job, State.TIMED_OUT, reason=reason, detail="the hard time limit ended it; nothing was kept")
    elif reason in HANDED_BACK or (job.lost_attempts < max_lost and not is_step(job)):
        # A step that lost its worker ends here: whether it is tried again is for its run to decide.
        if job.state in (State.RUNNING, State.SCANNING):
            move(session, job, State.QUEUED, reason=reason)
        seconds = 0.0 if reason in HANDED_BACK else retry_delay_seconds(pauses, tries=job.lost_attempts)
        requeue(session, job, QueueName(job.queue), seconds=seconds)
    else:
        what = "internal error: it broke off" if reason is Reason.INTERNAL_ERROR else "its worker died"
        end(session, job, State.FAILED, reason=reason, detail=f"{what} {job.lost_attempts} times")


class Deferred(NamedTuple):
    """How often and how long a job's work has been deferred so far."""

    times: int
    seconds: float
    """The waits that it was given. Time in the queue after that does not count."""


_DEFERRED = Statement("""
    SELECT count(*) AS times, coalesce(sum(least(given, greatest(extract(epoch FROM started_at - at), 0))), 0)::float
               AS seconds
      FROM (SELECT kind, at, CAST(data ->> 'held_seconds' AS float8) AS given, lead(at) OVER (ORDER BY id) AS started_at
              FROM event
             WHERE job_id = %(job)s AND (kind = %(started)s OR kind = %(waiting)s AND (
                   data ->> 'held_for' = %(circuit)s OR data ->> 'reason' = %(storage)s))) AS told
     WHERE kind = %(waiting)s
""")
"""A wait that an operator cut short counts only for the time that passed."""


def time_deferred(session: Session, job_id: UUID) -> Deferred:
    """Return how often and how long a running job has been deferred, in total."""
    kinds = {"started": EventKind.STARTED.value, "waiting": EventKind.WAITING.value}
    holds = {"circuit": WaitReason.PROVIDER.value, "storage": Reason.STORAGE_UNAVAILABLE.value}
    return Deferred(*_DEFERRED.one(session, {"job": job_id, **kinds, **holds}))


def defer(
    session: Session,
    job: Job,
    *,
    asked: float | None,
    reason: Reason,
    detail: str,
    circuits: Circuits,
    kept: Release | None = None,
    replies: Mapping[str, Any] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
    begun: Mapping[str, Any] | None = None,
) -> float | None:
    """Close the attempt that holds a locked job, and let the job wait for its provider or for storage.

    Args:
        session: the caller's transaction.
        job: held by its attempt.
        asked: seconds until the next try, where the provider named them.
        reason: what is unavailable: the provider, the gateway or storage.
        detail: the same in words, for whoever continues from kept work.
        circuits: the policy's rules for all three.
        kept: the work that the job continues from; None when nothing is kept.
        replies: of models, that the next attempt need not buy again as long as its site stays as it is.
        facts: about the kept work.
        begun: what a step has kept in its run's workspace.

    Returns:
        The seconds that it waits; None when it has waited for as long as it may, and nothing was done.
    """
    deferred = time_deferred(session, job.id)
    seconds = job_pause(asked, circuits, times=deferred.times, waited_seconds=deferred.seconds, salt=job.id.int)
    if seconds is None:
        return None
    keeps = kept is not None or begun is not None or bool(replies)
    close_attempt(session, job, outcome=DEFERRED_KEPT if keeps else DEFERRED, reason=reason)
    job.fence += 1
    if kept is not None:
        job.start_release_id = kept.id
        result = {**job.result, **facts}
        job.result = {**result, "begun": work_begun(result, report=detail, keeps=True)}
    elif begun is not None:
        job.result = {**job.result, **facts, "begun": dict(begun)}
    elif job.start_release_id is None and not keeps:
        give_up_site(session, job)
    _keep_replies(job, replies)
    if job.state in (State.RUNNING, State.SCANNING):
        move(session, job, State.QUEUED, reason=reason)
    if is_step(job):
        session.execute(sql_update(AgentExecution).where(col(AgentExecution.job_id) == job.id).values(status="queued"))
        record(session, EventKind.RUN_STEP, job=job, status="queued", reason=reason.value)
    record(session, EventKind.PROGRESS, job=job, text=f"waits for {round(seconds)} s: {detail}")
    is_storage = reason is Reason.STORAGE_UNAVAILABLE
    hold = WaitReason.TIME if is_storage else WaitReason.PROVIDER  # a provider's recovery does not bring a disk back
    wait_on(session, job, QueueName(job.queue), hold=hold, seconds=seconds, reason=reason)
    return seconds


def _keep_replies(job: Job, replies: Mapping[str, Any]) -> None:
    """Keep the replies that a waiting job's row has room for; the rest is bought again."""
    kept, left = {}, _MOST_REPLY_CHARACTERS
    for digest, reply in replies.items():
        left -= len(dump_json(reply))
        if left >= 0:
            kept[digest] = reply
    if kept:
        job.result = {**job.result, PAID_REPLIES: kept}


def give_up_site(session: Session, job: Job) -> None:
    """Free the site of a job without kept work; its next claim starts from whatever the site shows then."""
    locked = (col(Site.id) == job.site_id) & (col(Site.lock_job_id) == job.id)
    session.execute(sql_update(Site).where(locked).values(lock_job_id=None))
    job.base_release_id = None
    wake_dispatcher(session)


UNKNOWN_VERSION_SECONDS = 30.0
"""How long a job is held whose message no worker here can read."""


def requeue_unknown_version(session: Session, unread: UnknownMessageError, *, queue: QueueName) -> bool:
    """Hold the job of a message in an unknown version for a while; False for a stale copy.

    The job keeps its age meanwhile, so that a stuck upgrade shows.
    """
    try:
        job = lock_job(session, unread.job_id)
    except JobNotFoundError:
        return False
    if job.fence != unread.fence or job.pushed_at is None or job.queue != queue.value:
        return False
    waiting_since = job.waiting_since
    hold_back(session, job, WaitReason.TIME, seconds=UNKNOWN_VERSION_SECONDS)
    job.waiting_since = waiting_since
    record(session, EventKind.UNREAD, job=job, queue=queue.value, version=unread.version)
    return True


_MAY_EXPIRE = frozenset({State.RECEIVED, State.DEBATING, State.QUEUED})


class StaleJob(NamedTuple):
    """A job that has waited longer than it may."""

    job_id: UUID
    queue: QueueName


_STALE = Statement(f"""
    SELECT late.id, bound.queue
      FROM unnest(CAST(%(queues)s AS text[]), CAST(%(seconds)s AS double precision[])) AS bound (queue, seconds)
     CROSS JOIN LATERAL (
         SELECT id FROM job WHERE job.queue = bound.queue AND waiting_since IS NOT NULL
            AND waiting_since < (SELECT clock_timestamp()) - make_interval(secs => bound.seconds)
            AND {OF_OPEN_TENANTS}
          ORDER BY waiting_since LIMIT %(limit)s
     ) AS late
""")


def stale_jobs(session: Session, wait_seconds: Mapping[QueueName, float], *, limit: int = 100) -> list[StaleJob]:
    """Return jobs that have waited longer than they may, whatever kept them: one query, oldest first in each queue.

    A job whose start lies in the future is not waiting for a worker yet.
    """
    bounds = {"queues": [queue.value for queue in wait_seconds], "seconds": list(wait_seconds.values())}
    return [StaleJob(id_, QueueName(queue)) for id_, queue in _STALE.all(session, bounds | {"limit": limit})]


def expire_waiting(session: Session, job_id: UUID, queue: QueueName, *, wait_seconds: float) -> bool:
    """End a job that has waited too long on a queue; False when a worker or somebody else was first."""
    job = lock_job(session, job_id)
    is_late = session.scalar(select(col(Job.waiting_since) < after(-wait_seconds)).where(col(Job.id) == job_id))
    if job.queue != queue.value or State(job.state) not in _MAY_EXPIRE or not is_late:
        return False
    detail = f"no worker of queue {queue.value} took it up within {wait_seconds:g} s"
    end(session, job, State.EXPIRED, reason=Reason.QUEUE_EXPIRED, detail=detail)
    return True


_STOPPED = """
SELECT asked.id, attempt.ended_at IS NOT NULL AS has_ended, attempt.deadline <= clock_timestamp() AS is_late,
       job.cancel_requested_at IS NOT NULL AS is_cancelled
FROM unnest(%(ids)s::uuid[]) AS asked (id)
LEFT JOIN attempt ON attempt.id = asked.id LEFT JOIN job ON job.id = attempt.job_id
WHERE attempt.id IS NULL OR attempt.ended_at IS NOT NULL OR attempt.deadline <= clock_timestamp()
   OR attempt.fence <> job.fence OR job.cancel_requested_at IS NOT NULL
"""


def stopped_attempts(attempt_ids: Sequence[UUID]) -> Statement:
    """Return the statement that selects the attempts that must stop: id, has_ended, is_late, is_cancelled."""
    return Statement(_STOPPED, {"ids": list(attempt_ids)})


_AT_ADDRESS = """
SELECT attempt.id FROM attempt JOIN job ON job.id = attempt.job_id
WHERE attempt.ended_at IS NULL AND attempt.egress_address = %(address)s AND attempt.deadline > clock_timestamp()
  AND attempt.fence = job.fence AND job.cancel_requested_at IS NULL
ORDER BY attempt.started_at DESC LIMIT 1
"""


def attempt_at(address: str) -> Statement:
    """Return the statement that selects the id of the live attempt that is bound to this address."""
    return Statement(_AT_ADDRESS, {"address": address})
