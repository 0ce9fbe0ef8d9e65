"""Code projects, and the views of their runs for HTTP, CLI and console."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlmodel import Session

from ledger.attempts import effective_policy
from ledger.releases import successor_of
from ledger.runs.run import RunRows, find_run, load_run, projects_of, put_project
from ledger.runs.tables import AgentExecution, RunStep
from ledger.spending import CallUsage, orchestrator_share, total_by, usage_of_run
from ledger.store import Ledger
from ledger.tables import Tenant
from producers.errors import UnknownTenantError
from producers.use_cases.jobs import View, seconds_between
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
    image: dict[str, Any] | None = None
    """The image of its boxes that an operator built for it: `id`, `reference`, `source`; null for that of all boxes."""
    updated_at: datetime


@dataclass(frozen=True)
class Projects:
    """The code projects of an installation's tenants."""

    ledger: Ledger
    policy: Policy
    private_remotes: bool = False
    """Whether a project's remote may have an address that is not public."""

    def put(self, tenant: str, name: str, text: str, *, source: str, actor: str) -> ProjectView:
        """Add or replace a project from its YAML file.

        Its name is part of URLs, so the rule for site names applies; errors name the file `source`.

        Raises:
            InvalidJobError: the caller's fault; names each place of the file that breaks a rule, with its line.
            UnknownTenantError: the caller's fault.
            PolicyError: the operator's fault: the tenant's overrides do not fit.
        """
        try:
            check_site_name(name)
        except ValueError:
            raise InvalidJobError((FieldError("name", f"must be {SITE_NAME_RULE}"),)) from None
        with self.ledger.begin() as session:
            if session.get(Tenant, tenant) is None:
                raise UnknownTenantError(tenant)
            policy = effective_policy(session, tenant, self.policy)
            try:
                config = read_project(text, source=source, policy=policy)
            except ProjectConfigError as error:
                raise InvalidJobError(
                    tuple(FieldError(f"{source}", str(problem)) for problem in error.problems)
                ) from None
            if config.repo.scheme in ("http", "https"):
                refusal = refusal_of(config.repo.url, allow_private=self.private_remotes)
                if refusal is not None:
                    raise InvalidJobError((FieldError(source, f"repo.url: {refusal}"),))
            stored = config.model_dump(mode="json", exclude_defaults=True)
            return ProjectView.of(put_project(session, tenant, name, stored, actor=actor))

    def all(self, tenant: str) -> Sequence[ProjectView]:
        """Return a tenant's projects by name."""
        with self.ledger.begin() as session:
            return [*map(ProjectView.of, projects_of(session, tenant))]


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
    parent_id: UUID | None
    """The run that this one revises."""
    continued_as: UUID | None
    """The run that revises this one."""


def describe_run(session: Session, run_id: UUID, *, tenant: str | None = None) -> RunView:
    """Return the whole view of a run.

    Raises:
        JobNotFoundError: the caller's fault: there is no such run of this tenant.
    """
    job, run = find_run(session, run_id, tenant=tenant)
    rows = load_run(session, job)
    calls = usage_of_run(session, run_id)
    steps = tuple(_step_view(step, rows, calls) for step in rows.steps)
    of_run = ("ticket", "intent", "plans", "scan", "scan_detail", "base_commit", "head_commit")
    return RunView.of(
        job,
        **{name: getattr(run, name) for name in of_run},
        is_final=job.ended_at is not None,
        project=rows.project.name,
        now=run.explanation,
        rework_cycles=max((step.round for step in rows.steps), default=0),
        rework_demands=sum(step.status == "needs_rework" for step in steps),
        steps=steps,
        gates=tuple(map(GateView.of, rows.gates)),
        gates_by_state=dict(sorted(Counter(gate.state for gate in rows.gates).items())),
        cost=_cost_view(rows, calls),
        is_cancel_requested=job.cancel_requested_at is not None,
        seconds=seconds_between(job.created_at, job.ended_at),
        continued_as=successor_of(session, run_id),
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
    return StepTreeView.of(
        step,
        status=result.get("status"),
        summary=str(result.get("summary", "")),
        blocking=sum(issue.get("severity") == "blocking" for issue in result.get("issues", [])),
        tokens=_tokens(own),
        cost_usd=_usd(own),
        seconds=round(sum(one.seconds or 0.0 for one in executions), 3),
        executions=executions,
    )


def _execution_view(row: AgentExecution, calls: Sequence[CallUsage]) -> ExecutionView:
    seconds = seconds_between(row.started_at, row.settled_at) if row.started_at is not None else None
    return ExecutionView.of(row, ended_at=row.settled_at, seconds=seconds, tokens=_tokens(calls), cost_usd=_usd(calls))


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
