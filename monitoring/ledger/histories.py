"""Collects a ledger's history for the rules of `monitoring.history`, a page of jobs at a time, from one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, text

from monitoring.history import PATH_KINDS, Violation, check_cap, check_job, check_run, check_site
from monitoring.history_facts import (
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
)
from monitoring.ledger import history_sql as sql
from routing.policy import Retention
from routing.queues import QueueName

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
    ((events, audit, jobs),) = _rows(connection, sql.HORIZONS, **{name: n * _DAY_SECONDS for name, n in days.items()})
    return Horizon(events, audit, jobs)


def read_jobs(connection: Connection, horizon: Horizon) -> Iterator[JobFacts]:
    """Yield every job with what happened to it."""
    after = UUID(int=0)
    while True:
        page = _rows(connection, sql.JOBS, after=after, limit=PAGE_JOBS, **horizon._asdict())
        if not page:
            return
        ids = [row[0] for row in page]
        events = _grouped(connection, sql.EVENTS, ids=ids, kinds=_KINDS)
        attempts = _grouped(connection, sql.ATTEMPTS, ids=ids)
        calls = _grouped(connection, sql.CALLS, ids=ids)
        works = _grouped(connection, sql.WORKS, ids=ids)
        for row in page:
            yield _job(row, events[row[0]], attempts[row[0]], calls[row[0]], works[row[0]])
        after = ids[-1]


def _job(
    row: Sequence[Any], events: Sequence[Any], attempts: Sequence[Any], calls: Sequence[Any], works: Sequence[Any]
) -> JobFacts:
    id_, state, queue, has_parent, has_project, is_refused, fence, has_ended, is_partial, marks, notes, audits = row
    return JobFacts(
        id=str(id_), kind=_kind(queue, has_parent=has_parent, has_project=has_project, is_refused=is_refused),
        state=state, fence=fence, has_ended=has_ended, is_partial=bool(is_partial), marks=marks, notifications=notes,
        audits=audits, works=[work[0] for work in works], events=[EventFact(*event) for event in events],
        attempts=[AttemptFact(*attempt) for attempt in attempts], calls=[CallFact(*call) for call in calls],
    )  # fmt: skip


def _kind(queue: str, *, has_parent: bool, has_project: bool, is_refused: bool) -> JobKind:
    if is_refused:
        return JobKind.REFUSED
    if queue == QueueName.STEPS and has_parent:
        return JobKind.STEP
    return JobKind.RUN if has_project else JobKind.JOB


def read_caps(connection: Connection, horizon: Horizon) -> Iterator[CapFacts]:
    """Yield every cap with what its calls add up to."""
    for row in _rows(connection, sql.CAPS, jobs=horizon.jobs):
        name, limit, spent, reserved, calls_spent, calls_reserved, overrun, is_partial = row
        yield CapFacts(
            name=name, limit_nanousd=limit, spent_nanousd=spent, reserved_nanousd=reserved,
            calls_spent_nanousd=calls_spent, calls_reserved_nanousd=calls_reserved, overrun_nanousd=overrun,
            is_partial=is_partial,
        )  # fmt: skip


def read_sites(connection: Connection, horizon: Horizon) -> Iterator[SiteFacts]:
    """Yield every site with its published releases."""
    rollbacks = {release: times for release, times in _rows(connection, sql.ROLLBACKS)}
    releases, bounds = _grouped(connection, sql.RELEASES), {"jobs": horizon.jobs, "audit": horizon.audit}
    for site_id, active_id, is_locked, lock_state, is_partial, is_audited in _rows(connection, sql.SITES, **bounds):
        published = [_release(row) for row in releases[site_id]]
        yield SiteFacts(
            id=str(site_id), active_id=_text(active_id), lock_state=(lock_state or "") if is_locked else None,
            releases=published, is_partial=is_partial, is_audited=is_audited,
            rollbacks={one.id: rollbacks[one.id] for one in published if one.id in rollbacks},
        )  # fmt: skip


def _release(row: Sequence[Any]) -> ReleaseFacts:
    id_, base, passed, digest, job_id, job_state, job_release, approved, approved_base, approved_digest, times = row
    approval = None if approved is None else ApprovalFact(str(approved), _text(approved_base), approved_digest)
    return ReleaseFacts(
        id=str(id_), base_id=_text(base), scan_passed=passed, scan_digest=digest, job_id=_text(job_id),
        job_state=job_state, job_release_id=_text(job_release), approval=approval, approvals=times,
    )  # fmt: skip


def read_runs(connection: Connection) -> Iterator[RunFacts]:
    """Yield every run with its steps."""
    steps, executions = _grouped(connection, sql.STEPS), _grouped(connection, sql.EXECUTIONS)
    gates = {run_id: count for run_id, count in _rows(connection, sql.OPEN_GATES)}
    for run_id, has_ended in _rows(connection, sql.RUNS):
        yield RunFacts(
            id=str(run_id), has_ended=has_ended, steps=[StepFact(*row) for row in steps[run_id]],
            executions=[ExecutionFact(*row) for row in executions[run_id]], open_gates=gates.get(run_id, 0),
        )  # fmt: skip


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
