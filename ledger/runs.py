"""Projects and their runs: made, advanced by one writer, and read as what their schedule decides from.

Only the holder of the run's job changes `run` and `run_step`; the end of an execution changes its own row alone. The
order of locks stands in `run_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import JobNotFoundError, ProjectNotFoundError
from ledger.run_tables import AgentExecution, Gate, Project, Run, RunStep
from ledger.spending import booked_on_bill
from ledger.sql import now
from ledger.step_ends import STARTED, owe_note
from ledger.tables import Call, Job


def find_project(session: Session, tenant: str, name: str) -> Project:
    """Return a tenant's project.

    Raises:
        ProjectNotFoundError: the caller's fault.
    """
    own = (col(Project.tenant) == tenant) & (col(Project.name) == name)
    project = session.scalars(select(Project).where(own)).one_or_none()
    if project is None:
        raise ProjectNotFoundError(name)
    return project


def projects_of(session: Session, tenant: str) -> Sequence[Project]:
    """Return a tenant's projects by name."""
    return session.scalars(select(Project).where(col(Project.tenant) == tenant).order_by(col(Project.name))).all()


def put_project(session: Session, tenant: str, name: str, config: Mapping[str, Any], *, actor: str) -> Project:
    """Add a project, or give the one of this name another configuration: its next steps go by that."""
    stored = (
        insert(Project)
        .values(tenant=tenant, name=name, config=dict(config))
        .on_conflict_do_update(index_elements=["tenant", "name"], set_={"config": dict(config), "updated_at": now()})
        .returning(Project)
    )
    project = session.scalars(stored, execution_options={"populate_existing": True}).one()
    audit.append(session, "project_put", actor=actor, tenant=tenant, project=name, config=dict(config))
    return project


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """A run as it stands: what its schedule is decided from."""

    job: Job
    run: Run
    project: Project
    steps: Sequence[RunStep]
    executions: Sequence[AgentExecution]
    gates: Sequence[Gate]
    cancelling: frozenset[str]
    """Keys of the steps whose execution was asked to stop, or has ended and only waits to be taken note of."""
    costs: Mapping[UUID, int]
    """What each execution's settled calls have cost, nanodollars, by its job."""
    spent_nanousd: int
    """On the bill of its root, over everything: routing, debates, planning, rework."""
    cap_nanousd: int

    def settled(self) -> Sequence[AgentExecution]:
        """Return the executions that ended and that the run has not taken note of, oldest first."""
        return [row for row in self.executions if row.settled_at is not None and row.absorbed_at is None]


@dataclass(frozen=True)
class RunChange:
    """What an advance notes on the run's row; what is None stays as it was."""

    intent: str | None = None
    plan: Mapping[str, Any] | None = None
    """Added to those that were adopted: round, origin, plan, notes."""
    scan: str | None = None
    scan_detail: str | None = None
    base_commit: str | None = None
    head_commit: str | None = None
    estimate: Mapping[str, Any] | None = None
    explanation: str | None = None


def new_run(session: Session, job: Job, project: Project, *, estimate: Mapping[str, Any] | None = None) -> Run:
    """Make the run's row of a job that was accepted for a project; returns the one that is there, if there is one."""
    ticket = {
        "title": job.prompt.strip().splitlines()[0][:200],
        "body": job.prompt,
        **(job.request.get("ticket") or {}),
    }
    values = {
        "job_id": job.id,
        "project_id": project.id,
        "ticket": ticket,
        "plans": [],
        "scan_detail": "",
        "explanation": "",
        "estimate": dict(estimate or {}),
    }
    session.execute(insert(Run).values(values).on_conflict_do_nothing())
    run = session.get_one(Run, job.id)
    owe_note(session, run, STARTED)
    return run


def ensure_run(session: Session, job: Job) -> Run | None:
    """Return the run's row of a held job; one that goes on from another run, after its debate, begins from its ticket.

    Returns:
        None when there is no project for it any more.
    """
    run = session.get(Run, job.id)
    if run is not None:
        return run
    before = session.get(Run, job.parent_id) if job.parent_id is not None else None
    if before is not None:
        return new_run(session, job, session.get_one(Project, before.project_id), estimate=before.estimate)
    try:
        return new_run(session, job, find_project(session, job.tenant, str(job.request.get("project"))))
    except ProjectNotFoundError:
        return None


def find_run(session: Session, run_id: UUID, *, tenant: str | None = None) -> tuple[Job, Run]:
    """Return a run and its job; with `tenant`, only if it belongs to that tenant.

    Raises:
        JobNotFoundError: the caller's fault: there is no such job, or it is no run.
    """
    job, run = session.get(Job, run_id), session.get(Run, run_id)
    if job is None or run is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(run_id)
    return job, run


class TicketRuns(NamedTuple):
    """The runs of a project about one ticket."""

    open: UUID | None
    """The one that works on it now."""
    ended: int


def runs_of_ticket(session: Session, project: Project, key: str) -> TicketRuns:
    """Return which runs of a project a ticket has had."""
    same = (col(Run.project_id) == project.id) & (col(Run.ticket)["key"].astext == key)
    query = select(col(Job.id), col(Job.ended_at)).join(Run, col(Run.job_id) == col(Job.id)).where(same)
    found = session.execute(query.order_by(col(Job.created_at))).all()
    return TicketRuns(
        next((job_id for job_id, ended_at in found if ended_at is None), None),
        sum(ended_at is not None for _, ended_at in found),
    )


def load_run(session: Session, job: Job) -> RunRows:
    """Return all of a run that its schedule is decided from."""
    run = session.get_one(Run, job.id, populate_existing=True)
    options: dict[str, Any] = {"execution_options": {"populate_existing": True}}
    steps = session.scalars(
        select(RunStep).where(col(RunStep.run_id) == job.id).order_by(col(RunStep.position)), **options
    ).all()
    executions = session.scalars(
        select(AgentExecution)
        .where(col(AgentExecution.run_id) == job.id)
        .order_by(col(AgentExecution.settled_at), col(AgentExecution.created_at), col(AgentExecution.step_key)),
        **options,
    ).all()
    gates = session.scalars(
        select(Gate).where(col(Gate.run_id) == job.id).order_by(col(Gate.position), col(Gate.key)), **options
    ).all()
    cancelling = session.scalars(
        select(col(AgentExecution.step_key))
        .join(Job, col(Job.id) == col(AgentExecution.job_id))
        .where(col(AgentExecution.run_id) == job.id, col(AgentExecution.absorbed_at).is_(None))
        .where(col(AgentExecution.settled_at).is_not(None) | col(Job.cancel_requested_at).is_not(None))
    ).all()
    return RunRows(
        job=job,
        run=run,
        project=session.get_one(Project, run.project_id),
        steps=steps,
        executions=executions,
        gates=gates,
        cancelling=frozenset(cancelling),
        costs=_costs(session, job),
        spent_nanousd=booked_on_bill(session, job.root_id).spent,
        cap_nanousd=job.cap_nanousd,
    )


def _costs(session: Session, job: Job) -> dict[UUID, int]:
    rows = session.execute(
        select(col(Call.job_id), func.sum(col(Call.cost_nanousd)))
        .join(AgentExecution, col(AgentExecution.job_id) == col(Call.job_id))
        .where(col(AgentExecution.run_id) == job.id)
        .group_by(col(Call.job_id))
    )
    return {job_id: int(cost) for job_id, cost in rows}


def change_run(session: Session, run: Run, change: RunChange) -> None:
    """Note on a run's row what an advance decided. The caller holds the run's job."""
    for item in fields(change):
        value = getattr(change, item.name)
        if item.name != "plan" and value is not None:
            setattr(run, item.name, dict(value) if isinstance(value, Mapping) else value)
    if change.plan is not None:
        run.plans = [*run.plans, dict(change.plan)]
    session.flush()
