"""Projects, their runs, and the gates at which a run waits for a person.

Only the holder of the run's job changes `run` and `run_step`; the end of an execution changes its own row alone. The
order of locks is in `ledger.runs.tables`. A waiting gate holds no worker; what a decision at a gate means is for the
run's next advance to say (ruling A24).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from sqlalchemy import func, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlmodel import Session, col

from ledger import audit
from ledger.attempts import effective_policy
from ledger.errors import (
    GateNotFoundError,
    GateRefusedError,
    JobNotFoundError,
    NotContinuableError,
    ProjectNotFoundError,
)
from ledger.events import EventKind, record
from ledger.job_control import has_requested
from ledger.job_ends import AT_GATE, STARTED, owe_ticket_note
from ledger.jobs import lock_job, move
from ledger.runs.specs import NewGate
from ledger.runs.steps import wake_run
from ledger.runs.tables import AgentExecution, Gate, Project, Run, RunStep
from ledger.spending import booked_on_bill
from ledger.store import OF_OPEN_TENANTS, moment, now, storable
from ledger.store import after as in_future
from ledger.tables import Call, Job, on_bill
from routing.jobs import State
from routing.policy.platform import Policy


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


def all_projects(session: Session) -> Sequence[Project]:
    """Return every tenant's projects."""
    return session.scalars(select(Project).order_by(col(Project.tenant), col(Project.name))).all()


def put_project(session: Session, tenant: str, name: str, config: Mapping[str, Any], *, actor: str) -> Project:
    """Add a project, or replace the configuration of the one with this name for its next steps."""
    stored = (
        insert(Project)
        .values(tenant=tenant, name=name, config=dict(config))
        .on_conflict_do_update(index_elements=["tenant", "name"], set_={"config": dict(config), "updated_at": now()})
        .returning(Project)
    )
    project = session.scalars(stored, execution_options={"populate_existing": True}).one()
    audit.append(session, "project_put", actor=actor, tenant=tenant, project=name, config=dict(config))
    return project


def set_project_image(
    session: Session, tenant: str, name: str, image: Mapping[str, Any] | None, *, actor: str
) -> dict[str, Any] | None:
    """Let the next steps of a project run in an image of its own, or of all boxes; return the one before.

    Raises:
        ProjectNotFoundError: the caller's fault.
    """
    project = find_project(session, tenant, name)
    session.refresh(project, with_for_update=True)
    before, project.image = project.image, None if image is None else dict(image)
    session.flush()
    audit.append(session, "project_image", actor=actor, tenant=tenant, project=name, image=image, before=before)
    return before


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """Everything about a run that its schedule is decided from."""

    job: Job
    run: Run
    project: Project
    steps: Sequence[RunStep]
    executions: Sequence[AgentExecution]
    gates: Sequence[Gate]
    cancelling: frozenset[str]
    """Keys of the steps whose execution was asked to stop, or has ended and waits to be merged."""
    costs: Mapping[UUID, int]
    """The nanodollars of each execution's settled calls, by its job."""
    spent_nanousd: int
    """On the root's bill, with routing, debates, planning and rework."""
    cap_nanousd: int

    def settled(self) -> Sequence[AgentExecution]:
        """Return the ended executions that are not merged yet, oldest first."""
        return [row for row in self.executions if row.settled_at is not None and row.absorbed_at is None]

    @property
    def branch(self) -> str:
        """The name of the run's branch: the same for each try and later round, another for each run."""
        pushed, ticket = self.run.pushed or {}, self.run.ticket
        about = str(ticket.get("key") or ticket.get("title", "")).lower()
        slug = _NO_SLUG.sub("-", about).strip("-")[-40:].strip("-") or "ticket"
        return str(pushed.get("branch") or f"pointsman/{slug}-{self.job.id.hex[-8:]}")


_NO_SLUG = re.compile(r"[^a-z0-9]+")


def new_run(session: Session, job: Job, project: Project, *, estimate: Mapping[str, Any] | None = None) -> Run:
    """Create the run's row of a job that was accepted for a project, or return the existing one."""
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
    owe_ticket_note(session, run, STARTED)
    return run


def continue_run(session: Session, job: Job, parent: Job) -> Run:
    """Create the run's row of a job that continues an ended run: in its repository, from what it left.

    What was pushed is where the new commit goes on top of; what was not is part of the new round's changes.

    Raises:
        NotContinuableError: nobody's fault: the run left no work.
    """
    before = session.get(Run, parent.id)
    if before is None or before.head_commit is None:
        raise NotContinuableError(parent.id, "nothing_kept")
    facts = {name: parent.result.get(name) for name in ("branch", "commit", "pull_request")}
    pushed = facts if facts["commit"] else before.pushed
    run = new_run(session, job, session.get_one(Project, before.project_id), estimate=before.estimate)
    body = str(before.ticket.get("body", ""))
    if not body.endswith(job.prompt):
        run.ticket = {**before.ticket, "body": f"{body}\n\n## Asked now\n\n{job.prompt}"}
    else:
        run.ticket = before.ticket
    run.workspace_id = before.workspace
    run.base_commit = facts["commit"] or before.base_commit
    run.head_commit = before.head_commit
    run.pushed = pushed
    session.flush()
    return run


def ensure_run(session: Session, job: Job) -> Run | None:
    """Return the run's row of a held job, created if needed; None when its project is gone.

    A job that continues another run, after its debate, starts from the same ticket.
    """
    run = session.get(Run, job.id)
    if run is not None:
        return run
    parent = session.get(Run, job.parent_id) if job.parent_id is not None else None
    if parent is not None and parent.workspace_id is not None:
        return continue_run(session, job, session.get_one(Job, parent.job_id))
    if parent is not None:
        return new_run(session, job, session.get_one(Project, parent.project_id), estimate=parent.estimate)
    try:
        return new_run(session, job, find_project(session, job.tenant, str(job.request.get("project"))))
    except ProjectNotFoundError:
        return None


def find_run(session: Session, run_id: UUID, *, tenant: str | None = None) -> tuple[Job, Run]:
    """Return a run and its job; with `tenant`, only if it belongs to that tenant.

    Raises:
        JobNotFoundError: the caller's fault: there is no such job, or it is not a run.
    """
    job, run = session.get(Job, run_id), session.get(Run, run_id)
    if job is None or run is None or (tenant is not None and job.tenant != tenant):
        raise JobNotFoundError(run_id)
    return job, run


class TicketRuns(NamedTuple):
    """The runs of a project about one ticket."""

    open: UUID | None
    """The one that has not ended."""
    by_key: Mapping[str, UUID]
    """All of them, by the idempotency key that each was accepted under."""
    root_id: UUID | None
    """The bill of the latest."""
    last: UUID | None = None
    """The one that ended last."""
    ended_at: datetime | None = None
    """When it did."""


def runs_of_ticket(session: Session, project: Project, key: str) -> TicketRuns:
    """Return the runs of a project about one ticket."""
    same = (col(Run.project_id) == project.id) & (col(Run.ticket)["key"].astext == key)
    columns = (col(Job.id), col(Job.ended_at), col(Job.idempotency_key), col(Job.root_id))
    query = select(*columns).join(Run, col(Run.job_id) == col(Job.id)).where(same)
    rows = session.execute(query.order_by(col(Job.created_at))).all()
    last = max((row for row in rows if row.ended_at is not None), key=lambda row: row.ended_at, default=None)
    return TicketRuns(
        next((row.id for row in rows if row.ended_at is None), None),
        {row.idempotency_key: row.id for row in rows if row.idempotency_key},
        rows[-1].root_id if rows else None,
        *((last.id, last.ended_at) if last is not None else ()),
    )


def load_run(session: Session, job: Job) -> RunRows:
    """Load everything about a run that its schedule is decided from."""
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


POLICY_ACTOR = "policy:autonomy"

Verdict = Literal["passed", "rework", "failed"]


def plan_gates(session: Session, job: Job, gates: Sequence[NewGate]) -> None:
    """Record the gates that a held run will come to. Existing gates stay as they are."""
    existing = set(session.scalars(select(col(Gate.key)).where(col(Gate.run_id) == job.id)))
    for spec in gates:
        if spec.key not in existing:
            session.add(
                Gate(
                    run_id=job.id,
                    key=spec.key,
                    kind=spec.kind,
                    reason=storable(spec.reason),
                    after=list(spec.after),
                    position=len(existing),
                )
            )
            existing.add(spec.key)
    session.flush()


def open_gate(
    session: Session, job: Job, spec: NewGate, *, hours: float, facts: Mapping[str, Any] | None = None
) -> Gate:
    """Open a gate of a held run, planned or not; a gate that was opened before stays as it is.

    `facts` are what a person needs to decide.
    """
    plan_gates(session, job, [spec])
    gate = _find_gate(session, job, spec.key)
    if gate.state == "planned":
        gate.state = "open"
        gate.facts = dict(facts or {})
        gate.opened_at = now()  # type: ignore[assignment]
        gate.expires_at = in_future(hours * 3600)  # type: ignore[assignment]
        session.flush()
        _record_gate(session, job, gate)
        owe_ticket_note(session, session.get_one(Run, job.id), f"{AT_GATE}{gate.key}")
    return gate


def skip_gate(session: Session, job: Job, *, key: str, why: str) -> None:
    """Record that an optional gate was skipped, as the project's autonomy allows (S-104)."""
    gate = _find_gate(session, job, key)
    if gate.state == "planned":
        _mark_gate(session, job, gate, "skipped", actor=POLICY_ACTOR, note=why)


def decide_gate(
    session: Session,
    gate_id: UUID,
    verdict: Verdict,
    *,
    actor: str,
    policy: Policy,
    note: str = "",
    tenant: str | None = None,
    seen: str | None = None,
) -> Job:
    """Pass a gate, send its work back, or fail it, as a person, and queue the run's advance.

    `note` is what the agents that rework are told; `seen` is the `head` of the gate's facts that the person looked at:
    nothing else is passed. With four eyes, nobody passes a gate of a run whose session they
    requested a round of, or sent work back in. With `tenant`, it must be that tenant's gate.

    Raises:
        GateNotFoundError: the caller's fault.
        GateRefusedError: the caller's fault, or nobody's: it is over.
        PolicyError: the operator's fault: the tenant's overrides do not fit.
    """
    job, gate = _lock_gate(session, gate_id, tenant=tenant)
    if gate.state != "open" or job.ended_at is not None or job.cancel_requested_at is not None:
        raise GateRefusedError(gate.id, "decided")
    if session.scalar(select(col(Gate.expires_at) < now()).where(col(Gate.id) == gate.id)):
        raise GateRefusedError(gate.id, "expired")
    if verdict == "rework" and not note.strip():
        raise GateRefusedError(gate.id, "no_reason")
    if verdict == "passed" and seen not in (None, gate.facts.get("head")):
        raise GateRefusedError(gate.id, "changed")
    rules = effective_policy(session, job.tenant, policy).approval
    if verdict == "passed" and not rules.requester_may_approve and _has_shaped(session, job, actor):
        raise GateRefusedError(gate.id, "own_request")
    _mark_gate(session, job, gate, verdict, actor=actor, note=note)
    _go_on(session, job, actor=actor)
    return job


def _has_shaped(session: Session, job: Job, actor: str) -> bool:
    """Whether an actor requested any round of a session, or changed its work at a gate: by hand, or through agents."""
    told = (col(Gate.state) == "rework") & (col(Gate.actor) == actor)
    shells = col(Gate.facts)["shells"]
    wrote = (shells.contains([{name: actor, "is_changed": True}]) for name in ("by", "terminal"))
    own = select(col(Gate.id)).join(Job, col(Job.id) == col(Gate.run_id)).where(on_bill(job.root_id), or_(told, *wrote))
    return has_requested(session, job, actor) or session.scalar(own.limit(1)) is not None


def expire_gate(session: Session, gate_id: UUID) -> None:
    """Close a gate that nobody decided in time, which counts as a refusal (A16)."""
    job, gate = _lock_gate(session, gate_id)
    is_late = session.scalar(select(col(Gate.expires_at) < now()).where(col(Gate.id) == gate.id))
    if gate.state != "open" or not is_late:
        return
    _mark_gate(session, job, gate, "expired", actor="pointsman")
    _go_on(session, job, actor="pointsman")


def overdue_gates(session: Session, *, limit: int = 100) -> Sequence[UUID]:
    """Return the open gates that nobody decided in time."""
    overdue = select(col(Gate.id)).where(col(Gate.state) == "open", col(Gate.expires_at) < moment())
    own = overdue.join(Job, col(Job.id) == col(Gate.run_id)).where(text(OF_OPEN_TENANTS))
    return session.scalars(own.order_by(col(Gate.expires_at)).limit(limit)).all()


def open_gates(session: Session, tenant: str, *, limit: int = 200) -> Sequence[Gate]:
    """Return the gates of a tenant's runs that wait for a person, the oldest first."""
    waiting = select(Gate).join(Job, col(Job.id) == col(Gate.run_id)).where(col(Gate.state) == "open")
    return session.scalars(waiting.where(col(Job.tenant) == tenant).order_by(col(Gate.opened_at)).limit(limit)).all()


def find_gate(session: Session, gate_id: UUID, *, tenant: str) -> Gate:
    """Return a gate of a tenant.

    Raises:
        GateNotFoundError: the caller's fault.
    """
    gate = session.get(Gate, gate_id, populate_existing=True)
    if gate is None or session.get_one(Job, gate.run_id).tenant != tenant:
        raise GateNotFoundError(gate_id)
    return gate


def _find_gate(session: Session, job: Job, key: str) -> Gate:
    return session.scalars(
        select(Gate).where(col(Gate.run_id) == job.id, col(Gate.key) == key),
        execution_options={"populate_existing": True},
    ).one()


def _lock_gate(session: Session, gate_id: UUID, *, tenant: str | None = None) -> tuple[Job, Gate]:
    run_id = session.scalar(select(col(Gate.run_id)).where(col(Gate.id) == gate_id))
    if run_id is None:
        raise GateNotFoundError(gate_id)
    job = lock_job(session, run_id)
    if tenant is not None and job.tenant != tenant:
        raise GateNotFoundError(gate_id)
    return job, session.get_one(Gate, gate_id, populate_existing=True)


def _mark_gate(session: Session, job: Job, gate: Gate, state: str, *, actor: str, note: str = "") -> None:
    gate.state = state
    gate.actor = actor
    gate.note = storable(note)
    gate.decided_at = now()  # type: ignore[assignment]
    session.flush()
    _record_gate(session, job, gate, actor=actor)
    audit.append(session, f"gate_{state}", actor=actor, job=job, gate=gate.key, kind=gate.kind, note=storable(note))


def _go_on(session: Session, job: Job, *, actor: str) -> None:
    """Queue the run's advance, which acts on the decision."""
    if job.state == State.AWAITING_APPROVAL:
        move(session, job, State.RUNNING, actor=actor)
    wake_run(session, job)


def _record_gate(session: Session, job: Job, gate: Gate, **data: Any) -> None:
    record(
        session,
        EventKind.GATE,
        job=job,
        gate=gate.key,
        gate_id=str(gate.id),
        gate_kind=gate.kind,
        state=gate.state,
        after=gate.after,
        reason=gate.reason,
        **data,
    )
