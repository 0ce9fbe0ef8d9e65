"""Accept jobs: look up what a request is decided on, find it a place, and write its row exactly once.

Waiting jobs are counted by the dispatcher (`count_backlog`), because counting at every submit would cost as much as
there is backlog. A queue can therefore exceed its limit by what is accepted between two counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, or_, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger import audit
from ledger.dispatch_window import AT_WORK, IS_PUSHED, IS_READY, WRITING_QUEUES
from ledger.errors import IdempotencyConflictError
from ledger.events import INSERT_EVENTS, EventKind, NewEvent, event_rows
from ledger.store import Statement, dump_json, now, wake_dispatcher
from ledger.tables import Job, NewJob, digest_request
from routing.decision.debate import DebateKind, Verdict
from routing.jobs import JobRequest
from routing.queues import QueueName
from routing.scheduling import Admission, retry_after_seconds

_FULLNESS = """
    coalesce(own.waiting, 0) AS own_waiting, coalesce(own.drained_per_second, 0) AS own_rate,
    coalesce(everyone.waiting, 0) AS waiting, coalesce(everyone.drained_per_second, 0) AS rate,
    coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'tenant_day' AND key = tenant.name || '/' || day), 0)
        AS own_spent,
    coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day' AND key = day), 0) AS spent,
    greatest(1, ceil(extract(epoch FROM date_trunc('day', today) + interval '1 day' - today)))::int AS seconds_left
"""
_OF_QUEUES = """
      JOIN tenant ON tenant.name = %(tenant)s
     CROSS JOIN (SELECT today, to_char(today, 'YYYY-MM-DD') AS day
                   FROM timezone('UTC', clock_timestamp()) AS clock (today)) AS utc
      LEFT JOIN backlog AS own ON own.queue = wanted.queue AND own.tenant = tenant.name
      LEFT JOIN backlog AS everyone ON everyone.queue = wanted.queue AND everyone.tenant = ''
"""
_HEADROOM = Statement(f"SELECT {_FULLNESS} FROM (SELECT CAST(%(queue)s AS text) AS queue) AS wanted {_OF_QUEUES}")

_VALUES = {name: f"(new).{name}" for name in NewJob.COLUMNS} | {
    "site_id": "site_id",
    "fence": "0",
    "lost_attempts": "0",
    "held_for": "hold",
    "waiting_since": """CASE WHEN (facts ->> 'waits')::bool
        THEN greatest(clock_timestamp(), CASE WHEN hold = 'time' THEN (new).held_until END) END""",
    "pushed_at": "CASE WHEN is_pushed THEN clock_timestamp() END",
    "expires_at": "clock_timestamp() + make_interval(secs => (facts ->> 'open_seconds')::float)",
    "created_at": "now() + make_interval(secs => 0.000001 * place)",
}
"""What each column of a new job's row is set to; any other is left to its default."""

_WRITING = ", ".join(f"'{queue.value}'" for queue in sorted(WRITING_QUEUES))

_ACCEPT = Statement(f"""
    WITH seen AS MATERIALIZED (
        SELECT site.id AS site_id, known.tenant IS NULL OR coalesce(
                   tenant.overrides = known.overrides
                   AND (known.site IS NULL OR site.id IS NOT NULL AND coalesce(release.signals, '{{}}') = known.signals)
                   AND (known.key IS NULL OR EXISTS (
                       SELECT FROM api_key WHERE api_key.id = known.key AND api_key.tenant = known.tenant
                          AND api_key.scopes = known.scopes AND revoked_at IS NULL)), false) AS is_so
          FROM jsonb_to_record(CAST(%(seen)s AS jsonb))
               AS known (tenant text, overrides jsonb, site text, signals jsonb, key uuid, scopes jsonb)
          LEFT JOIN tenant ON tenant.name = known.tenant
          LEFT JOIN site ON site.tenant = known.tenant AND site.name = known.site
          LEFT JOIN release ON release.id = site.active_release_id
    ), asked AS MATERIALIZED (
        SELECT asked.place, asked.facts, new, new.queue, coalesce(seen.site_id, new.site_id) AS site_id,
               (asked.facts ->> 'is_placed')::bool AS is_placed,
               CASE WHEN (asked.facts ->> 'is_placed')::bool AND new.held_for IS NULL AND new.queue IN ({_WRITING})
                    THEN coalesce(seen.site_id, new.site_id) END AS writes
          FROM seen
         CROSS JOIN jsonb_array_elements(CAST(%(jobs)s AS jsonb)) WITH ORDINALITY AS asked (facts, place)
         CROSS JOIN LATERAL jsonb_populate_record(CAST(NULL AS job), asked.facts) AS new
         WHERE seen.is_so
    ), room AS MATERIALIZED (
        SELECT wanted.queue, {_FULLNESS}, limits.waiting_per_tenant, limits.waiting_per_queue,
               limits.tenant_day, limits.fleet_day, (limits.cheapest ->> wanted.queue)::bigint AS cheapest,
               CASE WHEN tenant.paused_at IS NULL
                         AND NOT EXISTS (SELECT FROM queue_control
                                          WHERE queue_control.queue = wanted.queue AND paused_at IS NOT NULL)
                         AND (SELECT id FROM job
                               WHERE job.queue = wanted.queue AND job.tenant = %(tenant)s AND {IS_READY}
                               ORDER BY priority, created_at LIMIT 1) IS NULL
                    THEN least(limits.per_queue - pushed.jobs, limits.per_tenant * tenant.weight - pushed.own,
                               CASE WHEN wanted.queue <> 'control'
                                    THEN coalesce(tenant.max_running, limits.running_per_tenant) - pushed.own - (
                                        SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
                                         WHERE {AT_WORK} AND job.tenant = %(tenant)s) END)
                    ELSE 0 END AS openings
          FROM (SELECT DISTINCT queue FROM asked WHERE is_placed) AS wanted {_OF_QUEUES}
         CROSS JOIN jsonb_to_record(CAST(%(limits)s AS jsonb))
               AS limits (waiting_per_tenant int, waiting_per_queue int, per_queue int, per_tenant int,
                          running_per_tenant int, tenant_day bigint, fleet_day bigint, cheapest jsonb)
         CROSS JOIN LATERAL (
               SELECT count(*) AS jobs, count(*) FILTER (WHERE job.tenant = %(tenant)s) AS own FROM job
                WHERE job.queue = wanted.queue AND {IS_PUSHED}) AS pushed
    ), ranked AS (
        SELECT asked.*, room.openings,
               row_number() OVER (PARTITION BY asked.queue, is_placed ORDER BY place) AS number,
               CASE WHEN writes IS NOT NULL
                         AND (row_number() OVER (PARTITION BY asked.queue, writes ORDER BY place) > 1
                              OR (SELECT lock_job_id FROM site WHERE site.id = writes) IS NOT NULL
                              OR (SELECT id FROM job WHERE job.site_id = writes AND job.queue = asked.queue
                                     AND waiting_since IS NOT NULL AND job.held_for IS NULL
                                   ORDER BY job.site_id, job.queue LIMIT 1) IS NOT NULL
                              OR (SELECT id FROM job WHERE job.site_id = writes AND job.queue = asked.queue
                                     AND job.held_for = 'site' ORDER BY priority LIMIT 1) IS NOT NULL)
                    THEN 'site' ELSE (new).held_for END AS hold,
               room.own_waiting, room.own_rate, room.waiting, room.rate, room.own_spent, room.spent, room.seconds_left,
               waiting_per_tenant, waiting_per_queue, tenant_day, fleet_day, cheapest
          FROM asked LEFT JOIN room ON room.queue = asked.queue AND is_placed
    ), placed AS MATERIALIZED (
        SELECT *, CASE WHEN is_placed THEN hold IS NULL AND openings >= row_number() OVER (
                                 PARTITION BY queue, is_placed, hold IS NULL ORDER BY place)
                       ELSE (facts ->> 'is_pushed')::bool END AS is_pushed,
               is_placed AND (own_waiting + number > waiting_per_tenant OR waiting + number > waiting_per_queue
                   OR coalesce(own_spent + cheapest > tenant_day OR spent + cheapest > fleet_day, false)) AS is_full
          FROM ranked
    ), taken AS (
        INSERT INTO job ({", ".join(_VALUES)}) SELECT {", ".join(_VALUES.values())} FROM placed
         WHERE NOT is_full ORDER BY (new).idempotency_key, place
            ON CONFLICT DO NOTHING RETURNING id
    ), told AS ({INSERT_EVENTS} JOIN taken ON taken.id = job_id ORDER BY ordinality
    ), audited AS ({audit.INSERT_AUDIT} JOIN taken ON taken.id = job_id ORDER BY ordinality
    )
    SELECT (placed.new).id, taken.id IS NOT NULL AS is_new, is_pushed, is_full, number - 1 AS taken,
           own_waiting, own_rate, waiting, rate, own_spent, spent, seconds_left
      FROM placed LEFT JOIN taken ON taken.id = (placed.new).id ORDER BY place
""")
"""Checks what the jobs were decided on, finds each a place, and writes it with its events and its audit row.

A job goes to the broker at once only when no other job of its tenant waits before it and the dispatch window has
openings; it is held behind its site when another job writes that, or will. Those before it in the batch count. Rows are
inserted in the order of their keys, so that two batches which share some cannot deadlock. Jobs are worked off by
`created_at`, which keeps the order of the batch although a transaction has only one `now()`."""


class Accepted(NamedTuple):
    """The outcome of accepting a job."""

    job: Job
    is_new: bool
    """False when the same request was accepted before: the caller gets that job."""


def accept(session: Session, new: NewJob, *, actor: str | None = None) -> Accepted:
    """Insert a job, or find the one that was accepted before for the same request.

    The actor is the tenant by default.

    Raises:
        IdempotencyConflictError: the caller's fault: the key or the id was used with another body.
    """
    session.flush()
    (receipt,) = accept_all(session, [new], actor=actor)
    if receipt.is_new:
        if new.parent_id is not None and new.queue is not QueueName.STEPS:
            _dismiss(session, new.parent_id)
        if new.waits and new.held_for is None:
            wake_dispatcher(session)  # nobody has looked for headroom
        return Accepted(session.get_one(Job, new.id), is_new=True)
    same = same_request(session, new.tenant, new.request, job_id=new.id, digest=new.digest)
    if same is None:
        raise IdempotencyConflictError(new.id)
    return Accepted(same, is_new=False)


class Limits(NamedTuple):
    """How many jobs may wait and stand in the broker, and what a day may cost, for the tenant of a batch."""

    waiting_per_tenant: int
    waiting_per_queue: int
    per_queue: int
    per_tenant: int
    running_per_tenant: int | None
    tenant_day: int
    """In nanodollars."""
    fleet_day: int
    cheapest: Mapping[QueueName, int]
    """The least that one model call of a queue costs, in nanodollars; without those that call no model."""


class Receipt(NamedTuple):
    """What became of a job that was to be accepted."""

    is_new: bool
    """False when it was accepted before, or there is no headroom; nothing is written about it."""
    is_pushed: bool
    """Whether its message has to go to the broker, after the commit."""
    shortage: Headroom | None
    """Why there is no headroom."""


def accept_all(
    where: Session | Connection,
    batch: Sequence[NewJob],
    *,
    actor: str | None = None,
    limits: Limits | None = None,
    seen: Mapping[str, Any] | None = None,
) -> list[Receipt]:
    """Insert jobs of one tenant in this order.

    Args:
        where: the caller's transaction, or a connection on which this statement is one.
        batch: the jobs.
        actor: the tenant by default.
        limits: of their tenant; without them jobs wait where they say.
        seen: what they were decided on, from `SubmissionContext.seen`, if that was not read in this transaction.

    Returns:
        What became of each job; nothing at all, and nothing is written, when what was seen is so no longer.
    """
    tenant = batch[0].tenant
    values = {
        "tenant": tenant,
        "jobs": dump_json([new.row(is_placed=limits is not None and new.clarification is None) for new in batch]),
        "events": dump_json([row for new in batch for row in event_rows(_events(new), new)]),
        "audit": dump_json([_audit_row(new, actor or f"tenant:{new.tenant}") for new in batch]),
        "limits": dump_json(limits._asdict() if limits is not None else {}),
        "seen": dump_json(seen or {}),
    }
    return [
        Receipt(row.is_new, row.is_pushed, Headroom.read(new.queue, row) if row.is_full else None)
        for new, row in zip(batch, _ACCEPT.all(where, values), strict=False)
    ]


def _events(new: NewJob) -> Iterable[NewEvent]:
    """Yield the events of an accepted job: the acceptance with its decision, and the wait."""
    place = {"queue": new.queue.value, "tier": new.tier}
    decision = {"mode": None if new.keeps_route else new.mode, "confidence": new.route.get("confidence")}
    yield EventKind.ACCEPTED, {"door": new.door.value, "state": new.state.value, **decision, **place}
    if new.waits:
        yield EventKind.WAITING, place


def _audit_row(new: NewJob, actor: str) -> dict[str, object]:
    detail = {"door": new.door.value, "route": dict(new.route)}
    return audit.audit_row("job_accepted", actor=actor, job=new, facts=audit.Facts(), detail=detail)


def _dismiss(session: Session, job_id: UUID) -> None:
    """Remove a job from the dead letters because another one continues it."""
    is_dead = col(Job.failure_signature).is_not(None) & col(Job.dismissed_at).is_(None)
    session.execute(sql_update(Job).where(col(Job.id) == job_id, is_dead).values(dismissed_at=now()))


def same_request(
    session: Session, tenant: str, request: JobRequest, *, job_id: UUID, digest: str | None = None
) -> Job | None:
    """Return the job that was accepted before under this id or idempotency key, or None.

    `digest` is the hash of what is asked, where that is more than the request.

    Raises:
        IdempotencyConflictError: the caller's fault: it was accepted with another body.
    """
    same = col(Job.id) == job_id
    if request.idempotency_key is not None:
        own_key = (col(Job.tenant) == tenant) & (col(Job.idempotency_key) == request.idempotency_key)
        same = or_(same, own_key)
    job = session.scalars(select(Job).where(same).order_by(col(Job.id) != job_id)).first()
    if job is not None and (job.tenant != tenant or job.request_digest != (digest or digest_request(request))):
        raise IdempotencyConflictError(job.id if job.tenant == tenant else job_id)
    return job


class AcceptedJob(NamedTuple):
    """An accepted job as it is reported to its submitter."""

    id: UUID
    tenant: str
    state: str
    queue: str
    mode: str | None
    tier: int | None
    route: Mapping[str, Any]
    trace: str | None
    detail: str | None
    request_digest: str
    idempotency_key: str | None


_CONTEXT = Statement(f"""
    SELECT tenant.overrides, clock_timestamp() AS read_at,
           set_config('plan_cache_mode', 'force_generic_plan', true), (
               SELECT jsonb_agg(jsonb_build_array(
                          site.name, site.id, site.active_release_id IS NOT NULL, site.lock_job_id IS NOT NULL,
                          coalesce(release.signals, '{{}}')))
                 FROM site LEFT JOIN release ON release.id = site.active_release_id
                WHERE site.tenant = %(tenant)s AND site.name = ANY(CAST(%(sites)s AS text[]))
           ) AS sites, (
               SELECT jsonb_agg(jsonb_build_array(debate.session, debate.decision_key)) FROM debate
                WHERE debate.tenant = %(tenant)s AND debate.session = ANY(CAST(%(sessions)s AS text[]))
                  AND debate.kind = %(kind)s AND debate.verdict <> %(stop)s
           ) AS debated, (
               SELECT jsonb_agg(jsonb_build_array({", ".join(AcceptedJob._fields)})) FROM job
                WHERE id = ANY(CAST(%(ids)s AS uuid[]))
                   OR job.tenant = %(tenant)s AND idempotency_key = ANY(CAST(%(keys)s AS text[]))
           ) AS known
      FROM tenant WHERE tenant.name = %(tenant)s
""")
"""Statements later in the transaction keep a generic plan. By default the server assumes ten elements for an array
parameter, finds a custom plan cheaper and plans each execution anew: four times the work of running it."""


class SiteSnapshot(NamedTuple):
    """A site at the time of the lookup."""

    id: UUID
    is_shown: bool
    """Whether it has an active release."""
    is_locked: bool
    signals: Mapping[str, Any]
    """The router's signals of its active release; empty without one."""


@dataclass(frozen=True)
class SubmissionContext:
    """Everything that requests of a tenant are decided on."""

    overrides: Mapping[str, Any]
    """Layer 2 of the tenant's policy."""
    read_at: datetime
    """By the ledger's clock."""
    sites: Mapping[str, SiteSnapshot]
    """The tenant's existing sites among the requested ones, by name."""
    debated: Mapping[str, frozenset[str]]
    """By session, the decisions that were debated and may be carried out (`decisions.debated_keys`)."""
    tenant: str
    known: Mapping[UUID | str, AcceptedJob]
    """Existing jobs with an id or key of these requests, whatever their content."""

    def find_accepted(self, request: JobRequest, job_id: UUID) -> AcceptedJob | None:
        """Return the job that was accepted before under this id or the request's idempotency key, or None.

        Raises:
            IdempotencyConflictError: the caller's fault: it was accepted with another body.
        """
        job = self.known.get(job_id)
        if job is None and request.idempotency_key is not None:
            job = self.known.get(request.idempotency_key)
        if job is not None and (job.tenant != self.tenant or job.request_digest != digest_request(request)):
            raise IdempotencyConflictError(job.id if job.tenant == self.tenant else job_id)
        return job

    def seen(self, site: str | None) -> dict[str, Any]:
        """Return what a request about this site was decided on, for `accept_all` to check."""
        signals = self.sites[site].signals if site is not None else None
        return {"tenant": self.tenant, "overrides": self.overrides, "site": site, "signals": signals}


def load_submission_context(
    session: Session, tenant: str, requests: Sequence[JobRequest], *, ids: Sequence[UUID] = ()
) -> SubmissionContext | None:
    """Look up everything that a tenant's requests are decided on, in one statement.

    `ids` are job ids that the callers chose.

    Returns:
        None when there is no such tenant.
    """
    row = _CONTEXT.one(
        session,
        {
            "tenant": tenant,
            "ids": list(ids),
            "kind": DebateKind.PLANNING.value,
            "stop": Verdict.STOP.value,
            "sites": [name for request in requests if (name := request.site or request.new_site) is not None],
            "sessions": [request.session for request in requests if request.session is not None],
            "keys": [request.idempotency_key for request in requests if request.idempotency_key is not None],
        },
    )
    if row is None:
        return None
    jobs = [AcceptedJob(UUID(job_id), *facts) for job_id, *facts in row.known or ()]
    known: dict[UUID | str, AcceptedJob] = {job.idempotency_key or "": job for job in jobs if job.tenant == tenant}
    known |= {job.id: job for job in jobs}
    debated: dict[str, set[str]] = {}
    for name, key in row.debated or ():
        debated.setdefault(name, set()).add(key)
    return SubmissionContext(
        overrides=row.overrides,
        read_at=row.read_at,
        sites={name: SiteSnapshot(UUID(site_id), *facts) for name, site_id, *facts in row.sites or ()},
        debated={name: frozenset(keys) for name, keys in debated.items()},
        tenant=tenant,
        known=known,
    )


class Saturation(NamedTuple):
    """Why no further job fits on a queue now."""

    whose: str
    """`queue` or `tenant`."""
    limit: int
    retry_after_seconds: int


class Counted(NamedTuple):
    """How many jobs wait, and how fast they are worked off."""

    waiting: int
    drained_per_second: float


class DaySpend(NamedTuple):
    """What is booked on the budgets of a day."""

    tenant_nanousd: int
    fleet_nanousd: int
    seconds_left: int
    """Until the day is over, in UTC by the ledger's clock."""


class Headroom(NamedTuple):
    """How much room a queue has for one more job of a tenant."""

    queue: QueueName
    own: Counted
    everyone: Counted
    spend: DaySpend
    taken: int = 0
    """Jobs of the same batch that were accepted before it."""

    @classmethod
    def read(cls, queue: QueueName, row: Any) -> Headroom:
        """Return it from a row with the columns of `_FULLNESS`."""
        return cls(
            queue,
            own=Counted(row.own_waiting, row.own_rate),
            everyone=Counted(row.waiting, row.rate),
            spend=DaySpend(row.own_spent, row.spent, row.seconds_left),
            taken=getattr(row, "taken", 0),
        )

    def fullness(self, admission: Admission) -> Saturation | None:
        """Return why no further job of the tenant fits on the queue; None when one does."""
        limits = (
            ("tenant", self.own, admission.waiting_per_tenant),
            ("queue", self.everyone, admission.waiting_per_queue),
        )
        for whose, counted, limit in limits:
            waiting = counted.waiting + self.taken
            if waiting >= limit:
                retry = retry_after_seconds(waiting, limit=limit, drained_per_second=counted.drained_per_second)
                return Saturation(whose, limit, retry)
        return None


def load_headroom(session: Session, tenant: str, queue: QueueName) -> Headroom:
    """Return the headroom of a queue for a tenant."""
    return Headroom.read(queue, _HEADROOM.one(session, {"tenant": tenant, "queue": queue.value}))


_WINDOW_SECONDS = 60

_COUNT = Statement("""
    WITH waiting AS (
        SELECT queue, tenant, count(*) AS jobs FROM job WHERE waiting_since IS NOT NULL GROUP BY queue, tenant
    ), started AS (
        SELECT attempt.queue, job.tenant, count(*) AS attempts FROM attempt JOIN job ON job.id = attempt.job_id
         WHERE attempt.started_at > (SELECT clock_timestamp() - make_interval(secs => %(window)s))
         GROUP BY attempt.queue, job.tenant
    ), whole AS (
        SELECT queue, tenant, coalesce(jobs, 0) AS jobs, coalesce(attempts, 0) AS attempts
          FROM waiting FULL JOIN started USING (queue, tenant)
    ), counted AS (
        SELECT queue, coalesce(tenant, '') AS tenant, sum(jobs) AS jobs, sum(attempts) AS attempts
          FROM whole GROUP BY GROUPING SETS ((queue, tenant), (queue))
    ), emptied AS (
        UPDATE backlog SET waiting = 0, drained_per_second = 0, counted_at = clock_timestamp()
         WHERE (waiting > 0 OR drained_per_second > 0)
           AND NOT EXISTS (SELECT FROM counted WHERE counted.queue = backlog.queue AND counted.tenant = backlog.tenant)
    )
    INSERT INTO backlog (queue, tenant, waiting, drained_per_second, counted_at)
    SELECT queue, tenant, jobs, attempts / CAST(%(window)s AS double precision), clock_timestamp() FROM counted
     ORDER BY queue, tenant
    ON CONFLICT (queue, tenant) DO UPDATE SET waiting = excluded.waiting, counted_at = excluded.counted_at,
        drained_per_second = excluded.drained_per_second
""")


def count_backlog(session: Session) -> None:
    """Count the waiting jobs of each queue and tenant."""
    _COUNT.all(session, {"window": _WINDOW_SECONDS})
