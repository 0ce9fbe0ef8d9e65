"""Accept jobs: look up what a request is decided on, find it a place, and write its row exactly once.

Waiting jobs are counted by the dispatcher (`count_backlog`), because counting at every submit would cost as much as
there is backlog. A queue can therefore exceed its limit by what is accepted between two counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import or_, select
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
from routing.policy.platform import DispatchWindow
from routing.queues import QueueName
from routing.scheduling import Admission, WaitReason, retry_after_seconds

_VALUES = {name: f"new.{name}" for name in NewJob.COLUMNS} | {
    "fence": "0",
    "lost_attempts": "0",
    "waiting_since": """CASE WHEN (asked.facts ->> 'waits')::bool
        THEN greatest(clock_timestamp(), CASE WHEN new.held_for = 'time' THEN new.held_until END) END""",
    "pushed_at": "CASE WHEN (asked.facts ->> 'is_pushed')::bool THEN clock_timestamp() END",
    "expires_at": "clock_timestamp() + make_interval(secs => (asked.facts ->> 'open_seconds')::float)",
    "created_at": "now() + make_interval(secs => 0.000001 * asked.place)",
}
"""What each column of a new job's row is set to; any other is left to its default."""

_ACCEPT = Statement(f"""
    WITH taken AS (
        INSERT INTO job ({", ".join(_VALUES)}) SELECT {", ".join(_VALUES.values())}
          FROM jsonb_array_elements(CAST(%(jobs)s AS jsonb)) WITH ORDINALITY AS asked (facts, place)
         CROSS JOIN LATERAL jsonb_populate_record(CAST(NULL AS job), asked.facts) AS new
         ORDER BY new.idempotency_key, asked.place
            ON CONFLICT DO NOTHING RETURNING id
    ), told AS ({INSERT_EVENTS} JOIN taken ON taken.id = job_id ORDER BY ordinality
    ), audited AS ({audit.INSERT_AUDIT} JOIN taken ON taken.id = job_id ORDER BY ordinality
    )
    SELECT id FROM taken
""")
"""Rows are inserted in the order of their keys, so that two batches which share some cannot deadlock. Jobs are worked
off by `created_at`, which keeps the order of the batch although a transaction has only one `now()`."""


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
    if accept_all(session, [new], actor=actor):
        if new.waits and new.held_for is None:
            wake_dispatcher(session)  # nobody has looked for headroom
        return Accepted(session.get_one(Job, new.id), is_new=True)
    same = same_request(session, new.tenant, new.request, job_id=new.id, digest=new.digest)
    if same is None:
        raise IdempotencyConflictError(new.id)
    return Accepted(same, is_new=False)


def accept_all(session: Session, batch: Sequence[NewJob], *, actor: str | None = None) -> frozenset[UUID]:
    """Insert jobs in this order, and return the ids of the new ones.

    The others were accepted before under the same id or idempotency key; nothing is written about them. The actor is
    the tenant by default.
    """
    values = {
        "jobs": dump_json([new.row() for new in batch]),
        "events": dump_json([row for new in batch for row in event_rows(_events(new), new)]),
        "audit": dump_json([_audit_row(new, actor or f"tenant:{new.tenant}") for new in batch]),
    }
    accepted = frozenset(_ACCEPT.scalars(session, values))
    for new in batch:
        if new.id in accepted and new.parent_id is not None and new.queue is not QueueName.STEPS:
            _dismiss(session, new.parent_id)
    return accepted


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


_HEADROOM = Statement(f"""
    SELECT asked.queue, ARRAY(
               SELECT site.id
                 FROM unnest(CAST(%(sites)s AS uuid[]), CAST(%(site_queues)s AS text[])) AS wanted (id, queue)
                 JOIN site ON site.id = wanted.id
                WHERE wanted.queue = asked.queue
                  AND (site.lock_job_id IS NOT NULL
                       OR (SELECT id FROM job WHERE site_id = wanted.id AND queue = asked.queue
                              AND waiting_since IS NOT NULL AND held_for IS NULL ORDER BY site_id, queue LIMIT 1)
                          IS NOT NULL
                       OR (SELECT id FROM job WHERE site_id = wanted.id AND queue = asked.queue AND held_for = 'site'
                            ORDER BY priority LIMIT 1) IS NOT NULL)
           ) AS crowded,
           (SELECT count(*) FROM job WHERE queue = asked.queue AND {IS_PUSHED}) AS standing,
           (SELECT count(*) FROM job WHERE queue = asked.queue AND job.tenant = %(tenant)s
               AND {IS_PUSHED}) AS own_standing,
           (SELECT count(*) FROM attempt JOIN job ON job.id = attempt.job_id
             WHERE {AT_WORK} AND job.tenant = %(tenant)s) AS at_work,
           tenant.paused_at IS NOT NULL
           OR EXISTS (SELECT FROM queue_control WHERE queue = asked.queue AND paused_at IS NOT NULL)
           OR (SELECT id FROM job WHERE queue = asked.queue AND job.tenant = %(tenant)s AND {IS_READY}
                ORDER BY priority, created_at LIMIT 1) IS NOT NULL AS is_closed,
           tenant.weight, tenant.max_running,
           coalesce(own.waiting, 0) AS own_waiting, coalesce(own.drained_per_second, 0) AS own_rate,
           coalesce(everyone.waiting, 0) AS waiting, coalesce(everyone.drained_per_second, 0) AS rate,
           coalesce((SELECT spent_nanousd FROM cap
                      WHERE scope = 'tenant_day' AND key = tenant.name || '/' || day), 0) AS own_spent,
           coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day' AND key = day), 0) AS spent,
           greatest(1, ceil(extract(epoch FROM date_trunc('day', today) + interval '1 day' - today))) AS seconds_left
      FROM (SELECT today, to_char(today, 'YYYY-MM-DD') AS day
              FROM timezone('UTC', clock_timestamp()) AS clock (today)) AS utc
     CROSS JOIN unnest(CAST(%(queues)s AS text[])) AS asked (queue)
      JOIN tenant ON tenant.name = %(tenant)s
      LEFT JOIN backlog AS own ON own.queue = asked.queue AND own.tenant = tenant.name
      LEFT JOIN backlog AS everyone ON everyone.queue = asked.queue AND everyone.tenant = ''
""")


class Placement(NamedTuple):
    """Where a new job waits at first."""

    is_pushed: bool
    """Whether its message goes to the broker right after the commit."""
    hold: WaitReason | None = None
    """Why it must not; None when it only waits for its turn."""


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


@dataclass
class Headroom:
    """How much room a queue has for one tenant, counting the jobs placed since it was loaded."""

    queue: QueueName
    own: Counted
    everyone: Counted
    spend: DaySpend
    standing: int
    """Messages of all tenants on the broker."""
    own_standing: int
    at_work: int
    """Attempts of the tenant, over all queues."""
    weight: int
    max_running: int | None
    is_closed: bool
    """Whether nothing goes to the broker at once: queue or tenant is paused, or jobs of the tenant wait already."""
    crowded: set[UUID]
    """Sites that a job writes now, or will before any further job of this queue."""
    taken: int = field(default=0)

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

    def take(
        self, site_id: UUID | None, *, dispatch_window: DispatchWindow, admission: Admission, is_early: bool = False
    ) -> Placement:
        """Place the next job: on the broker at once, in the ledger, or behind its site.

        It goes to the broker at once only when no other job of its tenant waits before it.

        Args:
            site_id: the site it works on.
            dispatch_window: how many messages may stand in the broker.
            admission: how many attempts its tenant may have.
            is_early: its start lies in the future; until then it takes nobody's place.
        """
        self.taken += 1
        if is_early:
            return Placement(is_pushed=False, hold=WaitReason.TIME)
        if site_id is not None and self.queue in WRITING_QUEUES:
            if site_id in self.crowded:
                return Placement(is_pushed=False, hold=WaitReason.SITE)
            self.crowded.add(site_id)
        if not self._has_place(dispatch_window, admission):
            return Placement(is_pushed=False)
        self.standing += 1
        self.own_standing += 1
        return Placement(is_pushed=True)

    def _has_place(self, dispatch_window: DispatchWindow, admission: Admission) -> bool:
        if self.is_closed or self.standing >= dispatch_window.per_queue:
            return False
        limit = self.max_running if self.max_running is not None else admission.running_per_tenant
        if limit is not None and self.queue is not QueueName.CONTROL and self.own_standing + self.at_work >= limit:
            return False
        return self.own_standing < dispatch_window.per_tenant * self.weight


def load_headroom(
    session: Session, tenant: str, wanted: Mapping[QueueName, Collection[UUID]]
) -> dict[QueueName, Headroom]:
    """Return the headroom of queues for a tenant, in one statement for all jobs that are submitted together.

    `wanted` names the queues, and the sites that the jobs work on.
    """
    sites = [(site_id, queue.value) for queue, ids in wanted.items() for site_id in ids]
    rows = _HEADROOM.all(
        session,
        {
            "tenant": tenant,
            "queues": [queue.value for queue in wanted],
            "sites": [site_id for site_id, _ in sites],
            "site_queues": [queue for _, queue in sites],
        },
    )
    return {
        QueueName(row.queue): Headroom(
            queue=QueueName(row.queue),
            own=Counted(row.own_waiting, row.own_rate),
            everyone=Counted(row.waiting, row.rate),
            spend=DaySpend(row.own_spent, row.spent, int(row.seconds_left)),
            standing=row.standing,
            own_standing=row.own_standing,
            at_work=row.at_work,
            weight=row.weight,
            max_running=row.max_running,
            is_closed=row.is_closed,
            crowded=set(row.crowded),
        )
        for row in rows
    }


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
