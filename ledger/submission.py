"""Accept jobs: look up what a request is decided on, find it a place, and write its row exactly once.

Waiting jobs are counted by the dispatcher (`count_backlog`), because counting at every submit would cost as much as
there is backlog. A queue can therefore exceed its limit by what is accepted between two counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, or_, select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from ledger.dispatch_window import WRITING_QUEUES
from ledger.errors import IdempotencyConflictError
from ledger.store import Statement, dump_json, now, wake_dispatcher
from ledger.tables import Job, NewJob, digest_request
from routing.decision.debate import DebateKind, Verdict
from routing.jobs import JobRequest
from routing.queues import QueueName
from routing.redaction import may_hide, redact, redact_all
from routing.scheduling import Admission, retry_after_seconds

_ACCEPT = Statement("""
    SELECT pointsman_accept_1(
        %(tenant)s, %(actor)s, CAST(%(jobs)s AS jsonb), CAST(%(routes)s AS jsonb), CAST(%(shown)s AS jsonb),
        CAST(%(limits)s AS jsonb), CAST(%(seen)s AS jsonb))
""")
"""Checks what the jobs were decided on, finds each a place, and writes it with its events and its audit row. A route is
sent once for all jobs that share it; `shown` has what events and audit say otherwise than the row, by job.

A job goes to the broker at once only when no other job of its tenant waits before it and the dispatch window has
openings; it is held behind its site when another job writes that, or will. Those before it in the batch count. Rows are
inserted in the order of their keys, so that two batches which share some cannot deadlock. Jobs are worked off by
`created_at`, which keeps the order of the batch although it is written at one moment."""


class Accepted(NamedTuple):
    """The outcome of accepting a job."""

    job: Job
    is_new: bool
    """False when the same request was accepted before: the caller gets that job."""


def accept(session: Session, new: NewJob, *, actor: str | None = None) -> Accepted:
    """Insert a job, or find the one that was accepted before for the same request.

    The actor is by default who asks for it.

    Raises:
        IdempotencyConflictError: the caller's fault: the key or the id was used with another body.
    """
    session.flush()
    (receipt,) = accept_all(session, [new], actor=actor)
    if receipt.is_new:
        if new.parent_id is not None and new.queue is not QueueName.STEPS:
            _dismiss(session, new.parent_id)
        if new.waits and new.held_for is None:
            wake_dispatcher(session)  # the dispatcher looks for headroom
        return Accepted(session.get_one(Job, new.id), is_new=True)
    same = same_request(session, new.tenant, new.request, job_id=new.id, digest=new.digest)
    if same is None:
        raise IdempotencyConflictError(new.id)
    return Accepted(same, is_new=False)


@dataclass(frozen=True)
class Limits:
    """Limits of a batch's tenant: jobs that wait, jobs in the broker, and cost a day."""

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

    @cached_property
    def json(self) -> str:
        """They as the ledger reads them."""
        return dump_json(asdict(self))


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
        actor: by default who asks for the first of them.
        limits: of their tenant; without them jobs wait where they say.
        seen: what they were decided on, from `SubmissionContext.seen`, if that was not read in this transaction.

    Returns:
        What became of each job; nothing at all, and nothing is written, when what was seen is so no longer.
    """
    routes = {id(new.route): new.route for new in batch}
    numbers = {key: number for number, key in enumerate(routes)}
    redacted = cache(lambda prompt, route: _redacted(prompt, routes[route]))
    shown = {
        str(new.id): facts
        for new in batch
        if (facts := redacted(new.prompt, id(new.route)) | ({"mode": None} if new.keeps_route else {}))
    }
    jobs = []
    written: set[tuple[str, UUID | None]] = set()
    for place, new in enumerate(batch, 1):
        jobs.append(facts := new.row())
        facts["place"], facts["route"] = place, numbers[id(new.route)]
        facts["is_placed"] = is_placed = limits is not None and new.clarification is None
        if is_placed and new.held_for is None and new.queue in WRITING_QUEUES:
            facts["writes"], facts["follows"] = True, (new.queue, new.site_id) in written
            written.add((new.queue, new.site_id))
    values = {
        "tenant": batch[0].tenant,
        "actor": actor or batch[0].requested_by or f"tenant:{batch[0].tenant}",
        "jobs": dump_json(sorted(jobs, key=lambda facts: facts.get("idempotency_key", ""))),
        "routes": dump_json([*routes.values()]),
        "shown": dump_json(shown),
        "limits": limits.json if limits is not None else None,
        "seen": dump_json(seen) if seen is not None else None,
    }
    told = _ACCEPT.scalar(where, values)
    if told is None:
        return []
    made = frozenset(told["new"] or ())
    return [
        Receipt(str(new.id) in made, is_pushed, Headroom.read(new.queue, shortage) if shortage else None)
        for place, (new, is_pushed) in enumerate(zip(batch, told["pushed"], strict=True), 1)
        for shortage in [told["shortages"].get(str(place))]
    ]


def _redacted(prompt: str, route: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the two that may hold secrets, as the audit trail has them."""
    facts: dict[str, Any] = {"prompt": redact(prompt)} if may_hide(prompt) else {}
    shown = redact_all(route)
    return facts if shown is route else facts | {"route": shown}


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


class KnownKey(NamedTuple):
    """An API key as it was when it was last looked up."""

    id: UUID
    scopes: Sequence[str]
    """As stored."""


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

    def seen(self, site: str | None, key: KnownKey | None) -> dict[str, Any]:
        """Return what a request about this site was decided on, for `accept_all` to check."""
        signals = self.sites[site].signals if site is not None else None
        found = {"overrides": self.overrides, "site": site, "signals": signals}
        return found if key is None else found | {"key": key.id, "scopes": key.scopes}


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
    def read(cls, queue: QueueName, row: Mapping[str, Any]) -> Headroom:
        """Return it from the columns of `_HEADROOM`."""
        return cls(
            queue,
            own=Counted(row["own_waiting"], row["own_rate"]),
            everyone=Counted(row["waiting"], row["rate"]),
            spend=DaySpend(row["own_spent"], row["spent"], row["seconds_left"]),
            taken=row.get("taken", 0),
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


_HEADROOM = Statement("""
    SELECT coalesce(own.waiting, 0) AS own_waiting, coalesce(own.drained_per_second, 0) AS own_rate,
           coalesce(everyone.waiting, 0) AS waiting, coalesce(everyone.drained_per_second, 0) AS rate,
           coalesce((SELECT spent_nanousd FROM cap
                      WHERE scope = 'tenant_day' AND key = %(tenant)s || '/' || utc.day), 0) AS own_spent,
           coalesce((SELECT spent_nanousd FROM cap WHERE scope = 'fleet_day' AND key = utc.day), 0) AS spent,
           greatest(1, ceil(extract(epoch FROM date_trunc('day', utc.today) + interval '1 day' - utc.today)))::int
               AS seconds_left
      FROM (SELECT today, to_char(today, 'YYYY-MM-DD') AS day
              FROM timezone('UTC', clock_timestamp()) AS clock (today)) AS utc
      LEFT JOIN backlog AS own ON own.queue = %(queue)s AND own.tenant = %(tenant)s
      LEFT JOIN backlog AS everyone ON everyone.queue = %(queue)s AND everyone.tenant = ''
""")


def load_headroom(session: Session, tenant: str, queue: QueueName) -> Headroom:
    """Return the headroom of a queue for a tenant."""
    row = _HEADROOM.one(session, {"tenant": tenant, "queue": queue.value})
    return Headroom.read(queue, row._asdict())


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
