"""Code projects and the views of their runs, the same for HTTP, CLI and console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlmodel import Session

from ledger.attempts import effective_policy
from ledger.runs.run import RunRows, find_run, load_run, projects_of, put_project
from ledger.runs.tables import AgentExecution, Gate, Project, RunStep
from ledger.spending import CallUsage, orchestrator_share, total_by, usage_of_run
from ledger.store import Ledger
from ledger.tables import Tenant
from producers.errors import UnknownTenantError
from producers.use_cases.jobs import View
from routing.addresses import refusal_of
from routing.errors import FieldError, InvalidJobError, ProjectConfigError
from routing.jobs import SITE_NAME_RULE, State, check_site_name
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD, decimal_usd
from routing.policy.project import read_project


class ProjectView(View):
    """A project. It names keys and holds none."""

    id: UUID
    name: str
    config: dict[str, Any]
    updated_at: datetime


class Projects:
    """The code projects of an installation's tenants."""

    def __init__(self, ledger: Ledger, policy: Policy, *, private_remotes: bool = False) -> None:
        self._ledger = ledger
        self._policy = policy
        self._private_remotes = private_remotes

    def put(self, tenant: str, name: str, text: str, *, source: str, actor: str) -> ProjectView:
        """Add or replace a project from its YAML file.

        Args:
            tenant: the owner.
            name: part of URLs, so the rule for site names applies.
            text: the file.
            source: the file's name in error messages.
            actor: as the audit trail names actors.

        Raises:
            InvalidJobError: the caller's fault; names each place of the file that breaks a rule, with its line.
            UnknownTenantError: the caller's fault.
            PolicyError: the operator's fault: the tenant's overrides do not fit.
        """
        try:
            check_site_name(name)
        except ValueError:
            raise InvalidJobError((FieldError("name", f"must be {SITE_NAME_RULE}"),)) from None
        with self._ledger.begin() as session:
            if session.get(Tenant, tenant) is None:
                raise UnknownTenantError(tenant)
            policy = effective_policy(session, tenant, self._policy)
            try:
                config = read_project(text, source=source, policy=policy)
            except ProjectConfigError as error:
                raise InvalidJobError(
                    tuple(FieldError(f"{source}", str(problem)) for problem in error.problems)
                ) from None
            if config.repo.scheme in ("http", "https"):
                refusal = refusal_of(config.repo.url, allow_private=self._private_remotes)
                if refusal is not None:
                    raise InvalidJobError((FieldError(source, f"repo.url: {refusal}"),))
            stored = config.model_dump(mode="json", exclude_defaults=True)
            return view_of(put_project(session, tenant, name, stored, actor=actor))

    def all(self, tenant: str) -> Sequence[ProjectView]:
        """Return a tenant's projects by name."""
        with self._ledger.begin() as session:
            return [view_of(project) for project in projects_of(session, tenant)]


def view_of(project: Project) -> ProjectView:
    """Return a project's view."""
    return ProjectView(id=project.id, name=project.name, config=project.config, updated_at=project.updated_at)


class ExecutionView(View):
    """One attempt at a step."""

    attempt: int
    status: str
    model: str | None
    reason: str | None
    detail: str | None
    tokens: int
    cost_usd: str
    seconds: float | None
    started_at: datetime | None
    ended_at: datetime | None
    dropped: tuple[str, ...]
    """Files that it wrote without permission: discarded."""


class StepTreeView(View):
    """A step of a run and its attempts."""

    key: str
    agent: str | None
    """None for the project's own build."""
    phase: str
    round: int
    """0 for the original plan, k for the k-th cycle of rework."""
    cycle: int
    state: str
    tries: int
    depends_on: tuple[str, ...]
    task: str
    status: str | None
    """Its agent's report: complete, needs_rework or blocked."""
    summary: str
    blocking: int
    """Number of blocking issues found."""
    changed: tuple[str, ...]
    failure: str | None
    detail: str | None
    tokens: int
    cost_usd: str
    seconds: float
    executions: tuple[ExecutionView, ...]


class GateView(View):
    """A decision that a person has to make."""

    id: UUID
    run_id: UUID
    key: str
    kind: str
    after: tuple[str, ...]
    reason: str
    state: str
    actor: str | None
    note: str
    facts: dict[str, Any]
    """What the decision is based on."""
    opened_at: datetime | None
    expires_at: datetime | None
    decided_at: datetime | None


class TotalView(View):
    """A sum over model calls."""

    calls: int
    tokens: int
    cost_usd: str


class CostView(View):
    """A run's estimated cost, actual cost and budget."""

    spent_usd: str
    cap_usd: str
    spent_nanousd: int
    cap_nanousd: int
    calls: int
    tokens: int
    estimate: dict[str, Any]
    """Made at submission; `planned` is the same for the agents of its plan."""
    against_estimate: str | None
    """`below`, `within` or `above` the estimated range; None while it has not ended, or without an estimate."""
    by_agent: dict[str, TotalView]
    by_model: dict[str, TotalView]
    orchestrator_share: float | None
    """Share of the tokens used by the orchestrator and its subtasks (about a fifth is expected)."""


class RunView(View):
    """A run."""

    id: UUID
    state: State
    is_final: bool
    reason: str | None
    detail: str | None
    project: str
    ticket: dict[str, Any]
    priority: str
    intent: str | None
    now: str
    """Its current activity in words."""
    plans: tuple[dict[str, Any], ...]
    scan: str | None
    scan_detail: str
    base_commit: str | None
    head_commit: str | None
    rework_cycles: int
    """Planned cycles of rework."""
    rework_demands: int
    """Results that asked for rework."""
    steps: tuple[StepTreeView, ...]
    gates: tuple[GateView, ...]
    gates_by_state: dict[str, int]
    cost: CostView
    result: dict[str, Any]
    is_cancel_requested: bool
    seconds: float
    created_at: datetime
    ended_at: datetime | None


def describe_run(session: Session, run_id: UUID, *, tenant: str | None = None) -> RunView:
    """Return the whole view of a run.

    Raises:
        JobNotFoundError: the caller's fault: there is no such run of this tenant.
    """
    job, run = find_run(session, run_id, tenant=tenant)
    rows = load_run(session, job)
    calls = usage_of_run(session, run_id)
    steps = tuple(_step_view(step, rows, calls) for step in rows.steps)
    ended = job.ended_at or datetime.now(UTC)
    return RunView(
        id=job.id,
        state=State(job.state),
        is_final=job.ended_at is not None,
        reason=job.reason,
        detail=job.detail,
        project=rows.project.name,
        ticket=run.ticket,
        priority=job.priority,
        intent=run.intent,
        now=run.explanation,
        plans=tuple(run.plans),
        scan=run.scan,
        scan_detail=run.scan_detail,
        base_commit=run.base_commit,
        head_commit=run.head_commit,
        rework_cycles=max((step.round for step in rows.steps), default=0),
        rework_demands=sum(step.status == "needs_rework" for step in steps),
        steps=steps,
        gates=tuple(gate_view(gate) for gate in rows.gates),
        gates_by_state=dict(sorted(Counter(gate.state for gate in rows.gates).items())),
        cost=_cost_view(rows, calls),
        result=job.result,
        is_cancel_requested=job.cancel_requested_at is not None,
        seconds=_seconds(job.created_at, ended),
        created_at=job.created_at,
        ended_at=job.ended_at,
    )


def gate_view(gate: Gate) -> GateView:
    """Return the view of a gate."""
    return GateView(
        id=gate.id,
        run_id=gate.run_id,
        key=gate.key,
        kind=gate.kind,
        after=tuple(gate.after),
        reason=gate.reason,
        state=gate.state,
        actor=gate.actor,
        note=gate.note,
        facts=gate.facts,
        opened_at=gate.opened_at,
        expires_at=gate.expires_at,
        decided_at=gate.decided_at,
    )


def against_estimate(estimate: dict[str, Any], spent_nanousd: int) -> str | None:
    """Compare a run's cost with its estimated range (seed 001 ADR-012)."""
    low, high = estimate.get("low_usd"), estimate.get("high_usd")
    if low is None or high is None:
        return None
    spent = spent_nanousd / NANOUSD_PER_USD
    return "below" if spent < low else "above" if spent > high else "within"


def _step_view(step: RunStep, rows: RunRows, calls: Sequence[CallUsage]) -> StepTreeView:
    own = [call for call in calls if call.step == step.key]
    executions = tuple(
        _execution_view(row, [call for call in own if call.attempt == row.attempt])
        for row in sorted(rows.executions, key=lambda row: row.attempt)
        if row.step_key == step.key
    )
    result = step.result or {}
    return StepTreeView(
        key=step.key,
        agent=step.agent,
        phase=step.phase,
        round=step.round,
        cycle=step.cycle,
        state=step.state,
        tries=step.tries,
        depends_on=tuple(step.depends_on),
        task=step.task,
        status=result.get("status"),
        summary=str(result.get("summary", "")),
        blocking=sum(issue.get("severity") == "blocking" for issue in result.get("issues", [])),
        changed=tuple(step.changed),
        failure=step.failure,
        detail=step.detail,
        tokens=_tokens(own),
        cost_usd=_usd(own),
        seconds=round(sum(one.seconds or 0.0 for one in executions), 3),
        executions=executions,
    )


def _execution_view(row: AgentExecution, calls: Sequence[CallUsage]) -> ExecutionView:
    ended = row.settled_at or datetime.now(UTC)
    return ExecutionView(
        attempt=row.attempt,
        status=row.status,
        model=row.model,
        reason=row.reason,
        detail=row.detail,
        tokens=_tokens(calls),
        cost_usd=_usd(calls),
        started_at=row.started_at,
        ended_at=row.settled_at,
        seconds=_seconds(row.started_at, ended) if row.started_at is not None else None,
        dropped=tuple(row.dropped),
    )


def _cost_view(rows: RunRows, calls: Sequence[CallUsage]) -> CostView:
    spent = sum(call.cost_nanousd for call in calls)
    estimate = rows.run.estimate
    return CostView(
        spent_usd=decimal_usd(spent),
        cap_usd=decimal_usd(rows.cap_nanousd),
        spent_nanousd=spent,
        cap_nanousd=rows.cap_nanousd,
        calls=len(calls),
        tokens=_tokens(calls),
        estimate=estimate,
        against_estimate=against_estimate(estimate, spent) if rows.job.ended_at is not None else None,
        by_agent=_totals(calls, lambda call: call.agent),
        by_model=_totals(calls, lambda call: call.model),
        orchestrator_share=orchestrator_share(calls),
    )


def _totals(calls: Sequence[CallUsage], key: Callable[[CallUsage], str]) -> dict[str, TotalView]:
    return {
        name: TotalView(calls=total.calls, tokens=total.tokens, cost_usd=decimal_usd(total.cost_nanousd))
        for name, total in total_by(calls, key).items()
    }


def _tokens(calls: Iterable[CallUsage]) -> int:
    return sum(call.tokens for call in calls)


def _usd(calls: Iterable[CallUsage]) -> str:
    return decimal_usd(sum(call.cost_nanousd for call in calls))


def _seconds(start: datetime, end: datetime) -> float:
    return round(max(0.0, (end - start).total_seconds()), 3)
