"""Claim a job: one statement decides whether an attempt may start, and writes everything that changes.

Of any number of copies of a message only one is claimed. Messages may be seconds old, so a pause takes effect here; and
a tenant never gets more attempts than its limit, however many of its messages are claimed at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from sqlmodel import Session

from ledger.attempts import hash_token, new_token, policy_under
from ledger.dispatch_window import AT_WORK, IS_PUSHED, IS_READY, WRITING_QUEUES, hold_back
from ledger.errors import JobNotFoundError
from ledger.events import INSERT_EVENTS, EventKind, NewEvent, event_rows, record
from ledger.job_ends import is_run, record_step_start
from ledger.jobs import end, lock_job
from ledger.store import Statement, dump_json, set_persisted, wake_dispatcher
from ledger.tables import Attempt, Job
from routing.errors import PolicyError
from routing.jobs import JobMessage, Reason, State, check_move
from routing.policy.platform import DispatchWindow, Policy
from routing.queues import QueueName
from routing.scheduling import Admission, WaitReason

_STAND = Statement(f"""
    SELECT overrides, (SELECT coalesce(max(number), 0) + 1 FROM attempt WHERE job_id = %(job)s) AS number,
           coalesce(extract(epoch FROM clock_timestamp() - CAST(%(waiting_since)s AS timestamptz)), 0)::float
               AS waited,
           coalesce((SELECT spent_nanousd + reserved_nanousd FROM cap WHERE scope = 'job' AND key = %(bill)s), 0)
               AS booked,
           (SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
             WHERE {AT_WORK} AND job.tenant = %(tenant)s) + (SELECT coalesce(sum(slots), 0) FROM worker)
               > coalesce(max_running, CAST(%(running)s AS integer), 1000000)
           OR NOT EXISTS (SELECT FROM worker WHERE id = %(worker)s) AS is_near_limit
      FROM tenant WHERE name = %(tenant)s
""")
_TAKE_TURN = Statement("SELECT FROM tenant WHERE name = %(tenant)s FOR NO KEY UPDATE")
"""Near a tenant's limit its claims are counted one after the other: two at once would both see the last free place.

Where all slots of the fleet fit below the limit, claims need not wait for each other's commit. A worker that is not in
the registry counts as slots that nobody knows.
"""

_BEGIN = Statement(f"""
    WITH rule AS MATERIALIZED (
        SELECT tenant.paused_at IS NULL
               AND NOT EXISTS (SELECT FROM queue_control WHERE queue = %(queue)s AND paused_at IS NOT NULL)
               AND (NOT CAST(%(limited)s AS boolean)
                    OR (SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
                         WHERE {AT_WORK} AND job.tenant = tenant.name)
                       < coalesce(tenant.max_running, CAST(%(running)s AS integer), 1000000)) AS may_start,
               tenant.weight
          FROM tenant WHERE tenant.name = %(tenant)s
    ), locked AS (
        UPDATE site SET lock_job_id = %(job)s FROM rule
         WHERE site.id = CAST(%(site)s AS uuid) AND rule.may_start
           AND (site.lock_job_id IS NULL OR site.lock_job_id = %(job)s)
        RETURNING site.id
    ), taken AS (
        UPDATE job SET fence = %(fence)s, state = %(state)s, waiting_since = NULL, pushed_at = NULL, held_for = NULL,
                       held_until = NULL, started_at = coalesce(started_at, clock_timestamp())
          FROM rule
         WHERE job.id = %(job)s AND rule.may_start AND (CAST(%(site)s AS uuid) IS NULL OR EXISTS (SELECT FROM locked))
        RETURNING job.id, job.tenant, job.tier, job.fence, job.started_at
    ), begun AS (
        INSERT INTO attempt (id, job_id, number, queue, tier, fence, worker, token_hash, lease_until, deadline)
        SELECT %(attempt)s, id, %(number)s, %(queue)s, tier, fence, %(worker)s, %(token_hash)s,
               clock_timestamp() + make_interval(secs => %(lease_seconds)s),
               clock_timestamp() + make_interval(secs => %(hard_seconds)s)
          FROM taken
        RETURNING lease_until, deadline, started_at
    ), told AS ({INSERT_EVENTS} JOIN taken ON taken.id = happened.job_id ORDER BY ordinality
    )
    SELECT rule.may_start, taken.started_at,
           begun.lease_until, begun.deadline, begun.started_at AS attempt_started_at,
           (SELECT id FROM job WHERE queue = %(queue)s AND {IS_READY} AND id <> %(job)s
             ORDER BY tenant, priority, created_at LIMIT 1) IS NOT NULL
           AND (SELECT count(*) FROM job WHERE queue = %(queue)s AND {IS_PUSHED})
               <= CAST(%(per_queue)s AS integer) / 2 + 1
           AND (SELECT count(*) FROM job WHERE queue = %(queue)s AND job.tenant = %(tenant)s AND {IS_PUSHED})
               <= CAST(%(per_tenant)s AS integer) * rule.weight / 2 + 1 AS is_low
      FROM rule LEFT JOIN taken ON true LEFT JOIN begun ON true
""")
"""A lock on the tenant's row comes before this statement takes its snapshot, in which the job is still pushed."""


class _Standing(NamedTuple):
    """A locked job's standing before its attempt starts."""

    overrides: dict[str, Any]
    """The tenant's layer of the policy."""
    number: int
    """Of the attempt."""
    waited_seconds: float
    booked_nanousd: int
    """Spent and reserved on its bill."""
    is_near_limit: bool
    """Whether claims at the same moment could pass the tenant's limit of attempts."""


class _Begun(NamedTuple):
    """The outcome of a claim."""

    may_start: bool
    """False when queue or tenant is paused, or the tenant is at its limit of attempts; nothing was done."""
    started_at: datetime | None
    """When the job was first started; None when no attempt started: with `may_start`, because its site is busy."""
    lease_until: datetime | None
    deadline: datetime | None
    attempt_started_at: datetime | None
    is_low: bool
    """Whether the dispatch window has half drained while further jobs are ready."""


def _standing(session: Session, job: Job, queue: QueueName, *, worker: str, admission: Admission) -> _Standing:
    """Return a locked job's standing; near its limit, keep the tenant's other attempts from starting until the commit.

    `control` does not count: it only finishes what was started, and a publish must not wait for other work.
    """
    values = {"job": job.id, "tenant": job.tenant, "bill": str(job.root_id), "waiting_since": job.waiting_since}
    values |= {"worker": worker, "running": admission.running_per_tenant}
    standing = _Standing(*_STAND.one(session, values))
    if queue is QueueName.CONTROL:
        return standing._replace(is_near_limit=False)
    if standing.is_near_limit:
        _TAKE_TURN.all(session, {"tenant": job.tenant})
    return standing


_TIMED_WAITS = frozenset({WaitReason.TIME.value, WaitReason.PROVIDER.value})
"""Waits that a message does not end. A hold for a site does not count: the site may have become free meanwhile."""


@dataclass(frozen=True)
class Claim:
    """A job that a worker now holds."""

    job: Job
    attempt: Attempt
    token: str
    """Lets this attempt call models at the gateway. Only its hash is stored."""
    policy: Policy
    """With the tenant's overrides."""
    waited_seconds: float = 0.0
    """How long it waited for a worker."""
    booked_nanousd: int = 0
    """Spent and reserved on its bill before this attempt, over all rounds and tiers."""


def claim(session: Session, message: JobMessage, *, queue: QueueName, worker: str, policy: Policy) -> Claim | None:
    """Claim a job for one attempt.

    Returns:
        None when there is nothing to do: the message is stale, the job cancelled, its site busy, its queue or tenant
        paused, or the tenant at its limit of attempts; or when the tenant's overrides do not fit or an action names no
        site, which ends the job.
    """
    try:
        job = lock_job(session, message.job_id)
    except JobNotFoundError:
        return None
    is_stale = job.fence != message.fence or job.waiting_since is None or job.queue != queue.value
    if is_stale or job.held_for in _TIMED_WAITS:
        record(session, EventKind.FENCED, job=job, queue=queue.value, fence=message.fence)
        return None
    standing = _standing(session, job, queue, worker=worker, admission=policy.admission)
    try:
        effective = policy_under(standing.overrides, job.tenant, policy)
    except PolicyError as error:
        end(session, job, State.FAILED, reason=Reason.INTERNAL_ERROR, detail=str(error))
        return None
    if queue in WRITING_QUEUES and job.site_id is None:
        end(session, job, State.FAILED, reason=Reason.INVALID_REQUEST, detail="an action needs a site; it names none")
        return None
    rules = _Rules(queue, worker, effective, policy.admission, policy.dispatch_window)
    return _begin(session, job, standing, rules)


class _Rules(NamedTuple):
    """Where an attempt starts, and under which limits."""

    queue: QueueName
    worker: str
    effective: Policy
    admission: Admission
    window: DispatchWindow


def _begin(session: Session, job: Job, standing: _Standing, rules: _Rules) -> Claim | None:
    """Start an attempt at a locked job, or note on its row why it has to wait."""
    queue, worker, effective, admission, window = rules
    token = new_token()
    attempt = Attempt(
        id=uuid4(),
        job_id=job.id,
        number=standing.number,
        queue=queue.value,
        tier=job.tier,
        fence=job.fence + 1,
        worker=worker,
        token_hash=hash_token(token),
    )
    state = State.RUNNING if job.state == State.QUEUED else State(job.state)
    values = attempt.model_dump(include={"number", "queue", "fence", "worker", "token_hash"}) | {
        "attempt": attempt.id,
        "job": job.id,
        "tenant": job.tenant,
        "state": state.value,
        "site": job.site_id if queue in WRITING_QUEUES else None,
        "limited": standing.is_near_limit,
        "running": admission.running_per_tenant,
        "lease_seconds": effective.attempts.lease_seconds,
        "hard_seconds": effective.queues[queue].hard_seconds,
        "per_queue": window.per_queue,
        "per_tenant": window.per_tenant,
    }
    happened = _events_of_start(job, attempt, state, waited_seconds=standing.waited_seconds)
    begun: _Begun = _BEGIN.one(session, values | {"events": dump_json(event_rows(happened, job))})
    if begun.started_at is None:
        if begun.may_start:
            hold_back(session, job, WaitReason.SITE)
        else:
            job.pushed_at = None  # the dispatcher pushes it again when it may
            session.flush()
        return None
    set_persisted(job, waiting_since=None, pushed_at=None, held_for=None, held_until=None)
    set_persisted(job, fence=attempt.fence, state=state.value, started_at=begun.started_at)
    set_persisted(attempt, lease_until=begun.lease_until, deadline=begun.deadline, started_at=begun.attempt_started_at)
    record_step_start(session, job)
    if begun.is_low:
        wake_dispatcher(session)
    return Claim(job, attempt, token, effective, standing.waited_seconds, standing.booked_nanousd)


def _events_of_start(job: Job, attempt: Attempt, state: State, *, waited_seconds: float) -> list[NewEvent]:
    place, origin = {"queue": attempt.queue}, State(job.state)
    waited = {"tier": job.tier, "attempt": attempt.number, "wait_seconds": round(waited_seconds, 3)}
    started = (EventKind.STARTED, place | waited)
    if state is origin:
        return [started]
    check_move(origin, state, is_run=is_run(job))
    return [(EventKind.STATE, {"origin": origin.value, "target": state.value, "reason": None, **place}), started]
