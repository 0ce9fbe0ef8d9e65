"""Read a ledger's history from one snapshot, a page of jobs at a time, and check it against the rules of `history`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine

from ledger.operations.history import (
    LAPSE_SECONDS,
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
    ServedFact,
    SiteFacts,
    StepFact,
    Violation,
    check_cap,
    check_job,
    check_run,
    check_served,
    check_site,
)
from ledger.operations.served_calls import History, Served, history
from ledger.store import Statement
from routing.policy.platform import Retention
from routing.queues import QueueName

_HORIZONS = Statement("""
SELECT clock_timestamp() - make_interval(secs => %(event_seconds)s) AS events,
       clock_timestamp() - make_interval(secs => %(audit_seconds)s) AS audit,
       clock_timestamp() - make_interval(secs => %(job_seconds)s) AS jobs, clock_timestamp() AS now
""")
"""Times before which retention may have deleted rows. Read first in the transaction: the clock is then read after the
snapshot was taken, so whatever a sweep had deleted by then is older."""

# `marks` are the columns of a wait; a job that ended has none of them set.
_JOBS = Statement("""
SELECT job.id, job.state, job.queue, job.parent_id IS NOT NULL AS has_parent, job.request ? 'project' AS has_project,
       job.request_digest = '' AS is_refused, job.fence, job.ended_at IS NOT NULL AS has_ended,
       job.ended_at IS NOT NULL AND job.created_at < %(events)s AS is_partial,
       (SELECT coalesce(array_agg(name), '{}') FROM (VALUES
            ('waiting_since', job.waiting_since IS NOT NULL), ('pushed_at', job.pushed_at IS NOT NULL),
            ('expires_at', job.expires_at IS NOT NULL), ('held_for', job.held_for IS NOT NULL),
            ('held_until', job.held_until IS NOT NULL)
        ) AS mark (name, is_set) WHERE is_set) AS marks,
       (SELECT count(*) FROM notification WHERE job_id = job.id) AS notifications,
       CASE WHEN job.ended_at < %(audit)s THEN NULL
            ELSE (SELECT count(*) FROM audit WHERE job_id = job.id AND action = 'job_ended') END AS audits
FROM job WHERE job.id > %(after)s ORDER BY job.id LIMIT %(limit)s
""")

_EVENTS = Statement("""
SELECT job_id, kind, data ->> 'origin' AS origin, data ->> 'target' AS target, data ->> 'state' AS state,
       CAST(data ->> 'attempt' AS int) AS attempt, coalesce(CAST(data ->> 'cost_nanousd' AS bigint), 0) AS cost_nanousd,
       coalesce(CAST(data ->> 'wasted_nanousd' AS bigint), 0) AS wasted_nanousd
FROM event WHERE job_id = ANY(%(ids)s) AND kind = ANY(%(kinds)s) ORDER BY job_id, id
""")

_ATTEMPTS = Statement("""
SELECT job_id, number, fence, outcome, ended_at IS NULL AS is_live,
       CAST(extract(epoch FROM clock_timestamp() - lease_until) AS float8) AS lapsed_seconds
FROM attempt WHERE job_id = ANY(%(ids)s) ORDER BY job_id, number
""")

_CALLS = Statement("""
SELECT call.job_id, attempt.number, call.state = 'reserved' AS is_open, call.cost_nanousd,
       attempt.job_id = call.job_id
       AND call.caps @> jsonb_build_array(jsonb_build_array('job', job.root_id),
                                          jsonb_build_array('tier', call.job_id || '/' || attempt.queue)) AS is_on_bill,
       CAST(extract(epoch FROM clock_timestamp() - call.lease_until) AS float8) AS lapsed_seconds
FROM call JOIN attempt ON attempt.id = call.attempt_id JOIN job ON job.id = call.job_id
WHERE call.job_id = ANY(%(ids)s) ORDER BY call.job_id, call.started_at
""")

_WORKS = Statement("""
SELECT run_id, CASE WHEN settled_at IS NULL THEN 'a live step' ELSE 'a step to take note of' END AS work
FROM agent_executions WHERE run_id = ANY(%(ids)s) AND absorbed_at IS NULL
UNION ALL SELECT run_id, 'an open gate' FROM gate WHERE run_id = ANY(%(ids)s) AND state = 'open'
""")

_CAPS = Statement("""
SELECT coalesce(cap.scope, booked.scope) || ' ' || coalesce(cap.key, booked.key) AS name,
       coalesce(cap.limit_nanousd, 0) AS limit_nanousd, coalesce(spent_nanousd, 0) AS spent_nanousd,
       coalesce(reserved_nanousd, 0) AS reserved_nanousd, coalesce(spent, 0) AS calls_spent_nanousd,
       coalesce(reserved, 0) AS calls_reserved_nanousd, coalesce(overrun, 0) AS overrun_nanousd,
       coalesce(cap.scope, booked.scope) IN ('tenant_day', 'key_day', 'fleet_day')
       AND right(coalesce(cap.key, booked.key), 10)
           <= to_char(timezone('UTC', CAST(%(jobs)s AS timestamptz)), 'YYYY-MM-DD') AS is_partial
FROM cap FULL JOIN (
    SELECT pair ->> 0 AS scope, pair ->> 1 AS key,
           coalesce(sum(cost_nanousd) FILTER (WHERE state <> 'reserved'), 0)::bigint AS spent,
           coalesce(sum(reserved_nanousd) FILTER (WHERE state = 'reserved'), 0)::bigint AS reserved,
           sum(greatest(cost_nanousd - reserved_nanousd, 0))::bigint AS overrun
    FROM (SELECT caps, state, cost_nanousd, reserved_nanousd FROM call
          UNION ALL SELECT caps, 'settled', cost_nanousd, 0 FROM orphan_call) AS calls,
         jsonb_array_elements(caps) AS pairs (pair) GROUP BY 1, 2
) AS booked ON booked.scope = cap.scope AND booked.key = cap.key
""")

_SERVED = Statement("""
SELECT served.id::text, served.cost, coalesce(call.cost_nanousd, orphan_call.cost_nanousd)
FROM unnest(CAST(%(ids)s AS uuid[]), CAST(%(costs)s AS bigint[])) AS served (id, cost)
LEFT JOIN call ON call.id = served.id AND call.state <> 'reserved'
LEFT JOIN orphan_call ON orphan_call.id = served.id
""")

_SITES = Statement("""
SELECT site.id::text AS id, site.active_release_id::text AS active_id,
       CASE WHEN site.lock_job_id IS NOT NULL THEN coalesce(job.state, '') END AS lock_state,
       site.created_at < %(jobs)s AS is_partial, site.created_at >= %(audit)s AS is_audited
FROM site LEFT JOIN job ON job.id = site.lock_job_id ORDER BY site.id
""")

_RELEASES = Statement("""
SELECT release.site_id::text AS site_id, release.id::text AS id, release.base_release_id::text AS base_id,
       release.scan_passed, release.scan_digest, job.id::text AS job_id, job.state AS job_state,
       job.release_id::text AS job_release_id, approval.release_id::text AS approved_id,
       approval.base_release_id::text AS approved_base_id, approval.scan_digest AS approved_digest,
       coalesce(named.times, 0) AS approvals
FROM release
LEFT JOIN job ON job.id = release.job_id
LEFT JOIN approval ON approval.job_id = release.job_id AND approval.decision = 'approved'
LEFT JOIN (SELECT release_id, count(*) AS times FROM approval WHERE decision = 'approved' GROUP BY 1) AS named
     ON named.release_id = release.id
WHERE release.published_at IS NOT NULL ORDER BY release.site_id, release.published_at
""")

_ROLLBACKS = Statement("""
SELECT detail ->> 'release' AS release_id, count(*) AS times FROM audit WHERE action = 'rolled_back' GROUP BY 1
""")

_RUNS = Statement("""
SELECT run.job_id, job.ended_at IS NOT NULL AS has_ended FROM run JOIN job ON job.id = run.job_id
""")

_STEPS = Statement("""
SELECT run_id, key, state, tries FROM run_step ORDER BY run_id, position
""")

_EXECUTIONS = Statement("""
SELECT execution.run_id, execution.step_key, execution.attempt, execution.settled_at IS NOT NULL AS is_settled,
       job.ended_at IS NOT NULL AS job_has_ended,
       job.parent_id = execution.run_id AND job.root_id = run.root_id AS is_on_bill,
       job.cancel_requested_at IS NOT NULL AS is_stopping
FROM agent_executions AS execution JOIN job ON job.id = execution.job_id JOIN job AS run ON run.id = execution.run_id
ORDER BY execution.run_id, execution.step_key, execution.attempt
""")

_OPEN_GATES = Statement("""
SELECT run_id, count(*) AS gates FROM gate WHERE state = 'open' GROUP BY run_id
""")

PAGE_JOBS = 1_000
MOST_VIOLATIONS = 1_000
"""The most violations to collect."""
_KINDS = sorted(PATH_KINDS | {"call"})
_DAY_SECONDS = 86_400.0


class Verdict(NamedTuple):
    """The result of checking the whole history."""

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
    """The times before which rows may be missing because of retention."""

    events: datetime
    """The events of jobs that had ended."""
    audit: datetime
    """Rows of the audit trail."""
    jobs: datetime
    """Jobs as a whole, with their calls and their releases."""
    now: datetime


def examine(engine: Engine, rules: Retention, *, journal: Iterable[Served] = ()) -> Verdict:
    """Check the whole history against the rules, in one snapshot; work goes on meanwhile.

    `rules` say what retention may have deleted; `journal` holds calls that gateways served.
    """
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection, connection.begin():
        # A long history takes longer than the product's statement timeout.
        Statement("SET LOCAL statement_timeout = 0").all(connection)
        return examine_snapshot(connection, rules, journal=journal)


def examine_snapshot(connection: Connection, rules: Retention, *, journal: Iterable[Served] = ()) -> Verdict:
    """Check what a connection's transaction sees against the rules."""
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
    for call in read_served(connection, horizon, journal):
        violations += check_served(call)
    return Verdict(**counts, violations=tuple(violations[:MOST_VIOLATIONS]))


def read_horizon(connection: Connection, rules: Retention) -> Horizon:
    """Return the times from which nothing may be missing, by the ledger's clock."""
    # No job is deleted before `job_days`: `dead_letter_days` only keeps some for longer.
    days = {"event_seconds": rules.days_of_events, "audit_seconds": rules.audit_days, "job_seconds": rules.job_days}
    return Horizon(*_HORIZONS.one(connection, {name: value * _DAY_SECONDS for name, value in days.items()}))


def read_jobs(connection: Connection, horizon: Horizon) -> Iterator[JobFacts]:
    """Yield every job with its events, attempts and calls."""
    after = UUID(int=0)
    while page := _JOBS.all(connection, {"after": after, "limit": PAGE_JOBS, **horizon._asdict()}):
        ids = {"ids": [row.id for row in page]}
        events = _grouped(connection, _EVENTS, ids | {"kinds": _KINDS})
        attempts, calls, works = (_grouped(connection, each, ids) for each in (_ATTEMPTS, _CALLS, _WORKS))
        for row in page:
            facts = row._asdict()
            kind = _kind(*(facts.pop(name) for name in ("queue", "has_parent", "has_project", "is_refused")))
            yield JobFacts(
                **facts | {"id": str(row.id)},
                kind=kind,
                works=[work for (work,) in works[row.id]],
                events=[EventFact(*event) for event in events[row.id]],
                attempts=[AttemptFact(*attempt) for attempt in attempts[row.id]],
                calls=[CallFact(*call) for call in calls[row.id]],
            )
        after = page[-1].id


def _kind(queue: str, has_parent: bool, has_project: bool, is_refused: bool) -> JobKind:
    if is_refused:
        return JobKind.REFUSED
    if queue == QueueName.STEPS and has_parent:
        return JobKind.STEP
    return JobKind.RUN if has_project else JobKind.JOB


def read_caps(connection: Connection, horizon: Horizon) -> Iterator[CapFacts]:
    """Yield every cap with the sums of its calls."""
    for row in _CAPS.all(connection, {"jobs": horizon.jobs}):
        yield CapFacts(**row._asdict())


def read_sites(connection: Connection, horizon: Horizon) -> Iterator[SiteFacts]:
    """Yield every site with its published releases."""
    rollbacks = {row.release_id: row.times for row in _ROLLBACKS.all(connection)}
    releases: dict[str, list[ReleaseFacts]] = defaultdict(list)
    for row in _RELEASES.all(connection):
        releases[row.site_id].append(_release(row._asdict()))
    for row in _SITES.all(connection, {"jobs": horizon.jobs, "audit": horizon.audit}):
        own = {one.id: rollbacks[one.id] for one in releases[row.id] if one.id in rollbacks}
        yield SiteFacts(**row._asdict(), releases=releases[row.id], rollbacks=own)


def _release(facts: dict[str, Any]) -> ReleaseFacts:
    del facts["site_id"]
    approved = (facts.pop("approved_id"), facts.pop("approved_base_id"), facts.pop("approved_digest"))
    return ReleaseFacts(**facts, approval=None if approved[0] is None else ApprovalFact(*approved))


def read_runs(connection: Connection) -> Iterator[RunFacts]:
    """Yield every run with its steps."""
    steps, executions = _grouped(connection, _STEPS), _grouped(connection, _EXECUTIONS)
    gates = {row.run_id: row.gates for row in _OPEN_GATES.all(connection)}
    for row in _RUNS.all(connection):
        yield RunFacts(
            id=str(row.job_id),
            has_ended=row.has_ended,
            steps=[StepFact(*step) for step in steps[row.job_id]],
            executions=[ExecutionFact(*execution) for execution in executions[row.job_id]],
            open_gates=gates.get(row.job_id, 0),
        )


def read_served(connection: Connection, horizon: Horizon, journal: Iterable[Served]) -> Iterator[ServedFact]:
    """Yield what this ledger should know of a journal, with what is booked for it."""
    own = History(*history().one(connection)).ledger
    settled = horizon.now - timedelta(seconds=LAPSE_SECONDS)
    calls = (call for call in journal if call.ledger == own and horizon.jobs < call.served_at < settled)
    while page := list(islice(calls, PAGE_JOBS)):
        asked = {"ids": [call.id for call in page], "costs": [call.cost_nanousd for call in page]}
        yield from (ServedFact(*row) for row in _SERVED.all(connection, asked))


def _grouped(
    connection: Connection, statement: Statement, values: Mapping[str, Any] | None = None
) -> Mapping[UUID, Sequence[Any]]:
    """Group rows by their first column, and drop it."""
    groups: dict[UUID, list[Any]] = defaultdict(list)
    for row in statement.all(connection, values):
        groups[row[0]].append(row[1:])
    return groups
