"""Collects a ledger's history for the rules of `monitoring.history`, a page of jobs at a time, from one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from monitoring.history import (
    PATH_KINDS,
    ApprovalFact,
    AttemptFact,
    CallFact,
    CapFacts,
    EventFact,
    ExecutionFact,
    JobFacts,
    JobKind,
    ReleaseFacts,
    RunFacts,
    SiteFacts,
    StepFact,
    Violation,
    check_cap,
    check_job,
    check_run,
    check_site,
)
from routing.policy import Retention
from routing.tiers import QueueName

_HORIZONS = """
SELECT clock_timestamp() - make_interval(secs => %(event_seconds)s),
       clock_timestamp() - make_interval(secs => %(audit_seconds)s),
       clock_timestamp() - make_interval(secs => %(job_seconds)s)
"""
"""Before which moments retention may have taken rows. Read first in a transaction: the clock is then read after its
snapshot was taken, so whatever a sweep had taken by then is older."""

# The marks of a wait are named here once; a job that ended has none of them.
_JOBS = """
SELECT job.id, job.state, job.queue, job.parent_id IS NOT NULL, job.request ? 'project', job.request_digest = '',
       job.fence, job.ended_at IS NOT NULL, job.ended_at IS NOT NULL AND job.created_at < %(events)s,
       (SELECT coalesce(array_agg(name), '{}') FROM (VALUES
            ('waiting_since', job.waiting_since IS NOT NULL), ('pushed_at', job.pushed_at IS NOT NULL),
            ('expires_at', job.expires_at IS NOT NULL), ('held_for', job.held_for IS NOT NULL),
            ('held_until', job.held_until IS NOT NULL)
        ) AS mark (name, is_set) WHERE is_set),
       (SELECT count(*) FROM notification WHERE job_id = job.id),
       CASE WHEN job.ended_at < %(audit)s THEN NULL
            ELSE (SELECT count(*) FROM audit WHERE job_id = job.id AND action = 'job_ended') END
FROM job WHERE job.id > %(after)s ORDER BY job.id LIMIT %(limit)s
"""

_EVENTS = """
SELECT job_id, kind, data ->> 'origin', data ->> 'target', data ->> 'state', CAST(data ->> 'attempt' AS int),
       coalesce(CAST(data ->> 'cost_nanousd' AS bigint), 0), coalesce(CAST(data ->> 'wasted_nanousd' AS bigint), 0)
FROM event WHERE job_id = ANY(%(ids)s) AND kind = ANY(%(kinds)s) ORDER BY job_id, id
"""

_ATTEMPTS = """
SELECT job_id, number, fence, outcome, ended_at IS NULL,
       CAST(extract(epoch FROM clock_timestamp() - lease_until) AS float8)
FROM attempt WHERE job_id = ANY(%(ids)s) ORDER BY job_id, number
"""

_CALLS = """
SELECT call.job_id, attempt.number, call.state = 'reserved', call.cost_nanousd,
       attempt.job_id = call.job_id
       AND call.caps @> jsonb_build_array(jsonb_build_array('job', job.root_id),
                                          jsonb_build_array('tier', call.job_id || '/' || attempt.queue)),
       CAST(extract(epoch FROM clock_timestamp() - call.lease_until) AS float8)
FROM call JOIN attempt ON attempt.id = call.attempt_id JOIN job ON job.id = call.job_id
WHERE call.job_id = ANY(%(ids)s) ORDER BY call.job_id, call.started_at
"""

_WORKS = """
SELECT run_id, CASE WHEN settled_at IS NULL THEN 'a live step' ELSE 'a step to take note of' END
FROM agent_executions WHERE run_id = ANY(%(ids)s) AND absorbed_at IS NULL
UNION ALL SELECT run_id, 'an open gate' FROM gate WHERE run_id = ANY(%(ids)s) AND state = 'open'
"""

_CAPS = """
SELECT coalesce(cap.scope, booked.scope) || ' ' || coalesce(cap.key, booked.key), coalesce(cap.limit_nanousd, 0),
       coalesce(spent_nanousd, 0), coalesce(reserved_nanousd, 0), coalesce(spent, 0), coalesce(reserved, 0),
       coalesce(overrun, 0),
       coalesce(cap.scope, booked.scope) IN ('tenant_day', 'key_day', 'fleet_day')
       AND right(coalesce(cap.key, booked.key), 10)
           <= to_char(timezone('UTC', CAST(%(jobs)s AS timestamptz)), 'YYYY-MM-DD')
FROM cap FULL JOIN (
    SELECT pair ->> 0 AS scope, pair ->> 1 AS key,
           coalesce(sum(cost_nanousd) FILTER (WHERE state <> 'reserved'), 0)::bigint AS spent,
           coalesce(sum(reserved_nanousd) FILTER (WHERE state = 'reserved'), 0)::bigint AS reserved,
           sum(greatest(cost_nanousd - reserved_nanousd, 0))::bigint AS overrun
    FROM call, jsonb_array_elements(caps) AS pairs (pair) GROUP BY 1, 2
) AS booked ON booked.scope = cap.scope AND booked.key = cap.key
"""

_SITES = """
SELECT site.id, site.active_release_id, site.lock_job_id IS NOT NULL, job.state, site.created_at < %(jobs)s,
       site.created_at >= %(audit)s
FROM site LEFT JOIN job ON job.id = site.lock_job_id ORDER BY site.id
"""

_RELEASES = """
SELECT release.site_id, release.id, release.base_release_id, release.scan_passed, release.scan_digest, job.id,
       job.state, job.release_id, approval.release_id, approval.base_release_id, approval.scan_digest,
       coalesce(named.times, 0)
FROM release
LEFT JOIN job ON job.id = release.job_id
LEFT JOIN approval ON approval.job_id = release.job_id AND approval.decision = 'approved'
LEFT JOIN (SELECT release_id, count(*) AS times FROM approval WHERE decision = 'approved' GROUP BY 1) AS named
     ON named.release_id = release.id
WHERE release.published_at IS NOT NULL ORDER BY release.site_id, release.published_at
"""

_ROLLBACKS = """
SELECT detail ->> 'release', count(*) FROM audit WHERE action = 'rolled_back' GROUP BY 1
"""

_RUNS = "SELECT run.job_id, job.ended_at IS NOT NULL FROM run JOIN job ON job.id = run.job_id"

_STEPS = "SELECT run_id, key, state, tries FROM run_step ORDER BY run_id, position"

_EXECUTIONS = """
SELECT execution.run_id, execution.step_key, execution.attempt, execution.settled_at IS NOT NULL,
       job.ended_at IS NOT NULL, job.parent_id = execution.run_id AND job.root_id = run.root_id,
       job.cancel_requested_at IS NOT NULL
FROM agent_executions AS execution JOIN job ON job.id = execution.job_id JOIN job AS run ON run.id = execution.run_id
ORDER BY execution.run_id, execution.step_key, execution.attempt
"""

_OPEN_GATES = "SELECT run_id, count(*) FROM gate WHERE state = 'open' GROUP BY run_id"

PAGE_JOBS = 1_000
MOST_VIOLATIONS = 1_000
"""So many are collected; a ledger that breaks more is not understood better by more of them."""
_KINDS = sorted(PATH_KINDS | {"call"})
_DAY_SECONDS = 86_400.0


class Verdict(NamedTuple):
    """What a look at the whole history found."""

    jobs: int
    attempts: int
    calls: int
    releases: int
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations


class Horizon(NamedTuple):
    """Before which moments retention may have taken what is not missed then."""

    events: datetime
    """The events of jobs that had ended."""
    audit: datetime
    """Rows of the audit trail."""
    jobs: datetime
    """Jobs as a whole, with their calls and their releases."""


def examine(engine: Engine, rules: Retention) -> Verdict:
    """Hold the whole history against the rules, as it stands at one moment; others go on working meanwhile.

    Args:
        engine: of the ledger.
        rules: what its dispatcher keeps, and how long: only what is older than that may be missing.
    """
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        # A long history takes longer than any statement of the product's own may.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        return examine_snapshot(connection, rules)


def examine_snapshot(connection: Connection, rules: Retention) -> Verdict:
    """Hold what a connection's transaction sees against the rules."""
    horizon = read_horizon(connection, rules)
    counts = {"jobs": 0, "attempts": 0, "calls": 0, "releases": 0}
    violations: list[Violation] = []
    for job in read_jobs(connection, horizon):
        counts["jobs"] += 1
        counts["attempts"] += len(job.attempts)
        counts["calls"] += len(job.calls)
        violations += check_job(job)
    for cap in read_caps(connection, horizon):
        violations += check_cap(cap)
    for site in read_sites(connection, horizon):
        counts["releases"] += len(site.releases)
        violations += check_site(site)
    for run in read_runs(connection):
        violations += check_run(run)
    return Verdict(**counts, violations=tuple(violations[:MOST_VIOLATIONS]))


def read_horizon(connection: Connection, rules: Retention) -> Horizon:
    """Return how far back nothing may be missing, by the ledger's clock."""
    days = {"event_seconds": rules.event_days, "audit_seconds": rules.audit_days, "job_seconds": rules.job_days}
    # No job goes before `job_days`: `dead_letter_days` only ever keeps some for longer.
    ((events, audit, jobs),) = _rows(connection, _HORIZONS, **{name: n * _DAY_SECONDS for name, n in days.items()})
    return Horizon(events, audit, jobs)


def read_jobs(connection: Connection, horizon: Horizon) -> Iterator[JobFacts]:
    """Yield every job with what happened to it."""
    after = UUID(int=0)
    while True:
        page = _rows(connection, _JOBS, after=after, limit=PAGE_JOBS, **horizon._asdict())
        if not page:
            return
        ids = [row[0] for row in page]
        events = _grouped(connection, _EVENTS, ids=ids, kinds=_KINDS)
        attempts = _grouped(connection, _ATTEMPTS, ids=ids)
        calls = _grouped(connection, _CALLS, ids=ids)
        works = _grouped(connection, _WORKS, ids=ids)
        for row in page:
            yield _job(row, events[row[0]], attempts[row[0]], calls[row[0]], works[row[0]])
        after = ids[-1]


def _job(
    row: Sequence[Any], events: Sequence[Any], attempts: Sequence[Any], calls: Sequence[Any], works: Sequence[Any]
) -> JobFacts:
    id_, state, queue, has_parent, has_project, is_refused, fence, has_ended, is_partial, marks, notes, audits = row
    return JobFacts(
        id=str(id_),
        kind=_kind(queue, has_parent=has_parent, has_project=has_project, is_refused=is_refused),
        state=state,
        fence=fence,
        has_ended=has_ended,
        is_partial=bool(is_partial),
        marks=marks,
        notifications=notes,
        audits=audits,
        works=[work[0] for work in works],
        events=[EventFact(*event) for event in events],
        attempts=[AttemptFact(*attempt) for attempt in attempts],
        calls=[CallFact(*call) for call in calls],
    )


def _kind(queue: str, *, has_parent: bool, has_project: bool, is_refused: bool) -> JobKind:
    if is_refused:
        return JobKind.REFUSED
    if queue == QueueName.STEPS and has_parent:
        return JobKind.STEP
    return JobKind.RUN if has_project else JobKind.JOB


def read_caps(connection: Connection, horizon: Horizon) -> Iterator[CapFacts]:
    """Yield every cap with what its calls add up to."""
    for row in _rows(connection, _CAPS, jobs=horizon.jobs):
        name, limit, spent, reserved, calls_spent, calls_reserved, overrun, is_partial = row
        yield CapFacts(
            name=name,
            limit_nanousd=limit,
            spent_nanousd=spent,
            reserved_nanousd=reserved,
            calls_spent_nanousd=calls_spent,
            calls_reserved_nanousd=calls_reserved,
            overrun_nanousd=overrun,
            is_partial=is_partial,
        )


def read_sites(connection: Connection, horizon: Horizon) -> Iterator[SiteFacts]:
    """Yield every site with its published releases."""
    rollbacks = {release: times for release, times in _rows(connection, _ROLLBACKS)}
    releases, bounds = _grouped(connection, _RELEASES), {"jobs": horizon.jobs, "audit": horizon.audit}
    for site_id, active_id, is_locked, lock_state, is_partial, is_audited in _rows(connection, _SITES, **bounds):
        published = [_release(row) for row in releases[site_id]]
        yield SiteFacts(
            id=str(site_id),
            active_id=_text(active_id),
            lock_state=(lock_state or "") if is_locked else None,
            releases=published,
            is_partial=is_partial,
            is_audited=is_audited,
            rollbacks={one.id: rollbacks[one.id] for one in published if one.id in rollbacks},
        )


def _release(row: Sequence[Any]) -> ReleaseFacts:
    id_, base, passed, digest, job_id, job_state, job_release, approved, approved_base, approved_digest, times = row
    approval = None if approved is None else ApprovalFact(str(approved), _text(approved_base), approved_digest)
    return ReleaseFacts(
        id=str(id_),
        base_id=_text(base),
        scan_passed=passed,
        scan_digest=digest,
        job_id=_text(job_id),
        job_state=job_state,
        job_release_id=_text(job_release),
        approval=approval,
        approvals=times,
    )


def read_runs(connection: Connection) -> Iterator[RunFacts]:
    """Yield every run with its steps."""
    steps, executions = _grouped(connection, _STEPS), _grouped(connection, _EXECUTIONS)
    gates = {run_id: count for run_id, count in _rows(connection, _OPEN_GATES)}
    for run_id, has_ended in _rows(connection, _RUNS):
        yield RunFacts(
            id=str(run_id),
            has_ended=has_ended,
            steps=[StepFact(*row) for row in steps[run_id]],
            executions=[ExecutionFact(*row) for row in executions[run_id]],
            open_gates=gates.get(run_id, 0),
        )


def _rows(connection: Connection, statement: str, **values: Any) -> Sequence[Any]:
    return (
        connection.exec_driver_sql(statement, values).all() if values else connection.exec_driver_sql(statement).all()
    )


def _grouped(connection: Connection, statement: str, **values: Any) -> Mapping[UUID, Sequence[Any]]:
    """Return rows without their first column, by it."""
    found: dict[UUID, list[Any]] = defaultdict(list)
    for row in _rows(connection, statement, **values):
        found[row[0]].append(row[1:])
    return found


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)
