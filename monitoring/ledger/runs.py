"""Runs in the ledger: made, advanced by one writer, and read as what their schedule decides from.

Only the holder of the run's job changes `run` and `run_step`; the end of an execution changes its own row alone. The
order of locks stands in `run_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import func, select
from sqlalchemy import update as sql_update
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from monitoring.errors import JobNotFoundError
from monitoring.ledger.accepting import accept
from monitoring.ledger.clock import now
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.holds import hold_back
from monitoring.ledger.jobs import wait_on
from monitoring.ledger.new_jobs import NewJob
from monitoring.ledger.projects import ProjectNotFoundError, find_project
from monitoring.ledger.run_tables import AgentExecution, Gate, Project, Run, RunStep
from monitoring.ledger.run_values import Absorbed, RunChange, RunRows, StepSpec, StepStart
from monitoring.ledger.spending import booked_on_bill
from monitoring.ledger.storable import storable
from monitoring.ledger.tables import Attempt, Call, Job
from monitoring.ledger.ticket_notes import STARTED, owe_note
from routing.jobs import MAX_PROMPT_BYTES, Door, JobRequest, State
from routing.queues import QueueName
from routing.waits import Hold

_ADVANCES = frozenset({State.RUNNING, State.QUEUED, State.AWAITING_APPROVAL})


def new_run(session: Session, job: Job, project: Project, *, estimate: Mapping[str, Any] | None = None) -> Run:
    """Make the run's row of a job that was accepted for a project; returns the one that is there, if there is one."""
    ticket = {
        "title": job.prompt.strip().splitlines()[0][:200],
        "body": job.prompt,
        **(job.request.get("ticket") or {}),
    }
    values = {
        "job_id": job.id, "project_id": project.id, "ticket": ticket, "plans": [], "scan_detail": "",
        "explanation": "", "estimate": dict(estimate or {}),
    }  # fmt: skip
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
        job=job, run=run, project=session.get_one(Project, run.project_id), steps=steps, executions=executions,
        gates=gates, cancelling=frozenset(cancelling), costs=_costs(session, job),
        spent_nanousd=booked_on_bill(session, job.root_id).spent,
        cap_nanousd=job.cap_nanousd,
    )  # fmt: skip


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


def add_steps(session: Session, job: Job, steps: Sequence[StepSpec]) -> None:
    """Add steps to a run, to be shown and started in this order. A key that the run has already stays as it is."""
    if not steps:
        return
    last = session.scalar(select(func.max(col(RunStep.position))).where(col(RunStep.run_id) == job.id))
    first = 0 if last is None else last + 1
    rows = [
        {
            "run_id": job.id, "key": step.key, "position": first + place, "agent": step.agent, "phase": step.phase,
            "round": step.round, "cycle": step.cycle, "task": storable(step.task), "context": list(step.context),
            "writes": list(step.writes), "depends_on": list(step.depends_on), "state": "pending", "tries": 0,
            "changed": [],
        }
        for place, step in enumerate(steps)
    ]  # fmt: skip
    session.execute(insert(RunStep).values(rows).on_conflict_do_nothing())
    record(session, EventKind.PLAN, job=job, steps=[{"step": step.key, "agent": step.agent} for step in steps])


def execution_id(run_id: UUID, key: str, attempt: int) -> UUID:
    """Return the id of the job that is one try of one step: the same whoever asks, so none can be begun twice."""
    return uuid5(run_id, f"{key}/{attempt}")


def start_steps(session: Session, job: Job, starts: Iterable[StepStart]) -> list[UUID]:
    """Let executions of steps wait for a worker, each as a job of its own on the run's bill.

    Args:
        session: the caller's transaction.
        job: the run's job, held by the caller.
        starts: what to begin. An attempt that was begun before is not begun again.

    Returns:
        The ids of the executions' jobs.
    """
    run = session.get_one(Run, job.id)
    begun = []
    for start in starts:
        step = session.get_one(RunStep, (job.id, start.key), populate_existing=True)
        if step.tries >= start.attempt or step.state in ("running", "completed", "skipped"):
            continue
        step.tries, step.state = start.attempt, "running"
        step.context = list(start.context) if start.context is not None else step.context
        session.flush()
        step_job = accept(session, _step_job(job, step), actor="pointsman").job
        session.add(
            AgentExecution(
                job_id=step_job.id, run_id=job.id, step_key=step.key, attempt=step.tries, agent=step.agent,
                model=start.model, provider=start.provider, cap_nanousd=start.cap_nanousd, base_commit=run.head_commit,
            )
        )  # fmt: skip
        session.flush()
        if start.pause_seconds > 0:
            hold_back(session, step_job, Hold.TIME, seconds=start.pause_seconds)
        begun.append(step_job.id)
    return begun


def _step_job(job: Job, step: RunStep) -> NewJob:
    task = storable(step.task).encode()[:MAX_PROMPT_BYTES].decode(errors="ignore").strip() or step.key
    return NewJob(
        id=execution_id(job.id, step.key, step.tries),
        tenant=job.tenant,
        door=Door(job.door),
        requested_by=job.requested_by,
        request=JobRequest(prompt=task, project=job.request.get("project"), priority=job.priority),
        state=State.QUEUED,
        queue=QueueName.STEPS,
        mode=job.mode,
        trace=job.trace,
        cap_nanousd=job.cap_nanousd,
        parent_id=job.id,
        root_id=job.root_id,
    )


def skip_steps(session: Session, job: Job, keys: Iterable[str], *, reason: str) -> None:
    """Note that steps of a held run will not be worked on, and why."""
    skipped = session.scalars(
        sql_update(RunStep)
        .where(col(RunStep.run_id) == job.id, col(RunStep.key).in_(list(keys)), col(RunStep.state) == "pending")
        .values(state="skipped", detail=storable(reason), ended_at=now())
        .returning(col(RunStep.key))
    ).all()
    for key in skipped:
        record(session, EventKind.RUN_STEP, job=job, step=key, status="skipped", detail=reason)


def absorb(session: Session, job: Job, absorbed: Sequence[Absorbed]) -> None:
    """Take note of executions that have ended: what they mean for their steps, in a held run."""
    for one in absorbed:
        execution = session.get_one(AgentExecution, one.job_id, populate_existing=True)
        if execution.absorbed_at is not None or execution.settled_at is None:
            continue
        step = session.get_one(RunStep, (job.id, execution.step_key))
        step.state = one.state
        is_done = one.state == "completed"
        step.result = execution.result if is_done else None
        step.changed = execution.changed if is_done else []
        step.failure = None if is_done else one.reason or execution.reason
        step.detail = None if is_done else one.detail or execution.detail
        step.ended_at = now()  # type: ignore[assignment]
        execution.status = execution.status if is_done or execution.status == "cancelled" else "failed"
        execution.reason = execution.reason if is_done else step.failure
        execution.absorbed_at = now()  # type: ignore[assignment]
        session.flush()


def unabsorbed_runs(session: Session, *, limit: int = 100) -> Sequence[UUID]:
    """Return runs with executions that ended and that they have not taken note of: one look at a short index."""
    waiting = (col(AgentExecution.settled_at).is_not(None)) & (col(AgentExecution.absorbed_at).is_(None))
    return session.scalars(select(col(AgentExecution.run_id)).where(waiting).distinct().limit(limit)).all()


def wake_run(session: Session, job: Job) -> bool:
    """Let a locked run be advanced, unless somebody does that right now or will; False when nothing was to be done."""
    if job.ended_at is not None:
        close = sql_update(AgentExecution).where(col(AgentExecution.run_id) == job.id)
        settled = (col(AgentExecution.settled_at).is_not(None)) & (col(AgentExecution.absorbed_at).is_(None))
        session.execute(close.where(settled).values(absorbed_at=now()))
        return False
    if job.waiting_since is not None or has_live_attempt(session, job) or job.state not in _ADVANCES:
        return False
    wait_on(session, job, QueueName.CONTROL)
    return True


def has_live_attempt(session: Session, job: Job) -> bool:
    """Tell whether a worker holds a job."""
    live = select(col(Attempt.id)).where(col(Attempt.job_id) == job.id, col(Attempt.ended_at).is_(None))
    return session.scalar(live.limit(1)) is not None
