"""What goes into and comes out of a run's rows: values, so that no caller of the ledger builds a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from monitoring.ledger.run_tables import AgentExecution, Gate, Project, Run, RunStep
from monitoring.ledger.tables import Job


@dataclass(frozen=True, kw_only=True)
class StepSpec:
    """A step that is added to a run."""

    key: str
    agent: str | None
    phase: str
    task: str
    round: int = 0
    cycle: int = 0
    context: Sequence[str] = ()
    writes: Sequence[str] = ()
    depends_on: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class GateSpec:
    """A gate that a run has, or will have."""

    key: str
    kind: str
    reason: str
    after: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class StepStart:
    """An execution that is to begin."""

    key: str
    attempt: int
    context: Sequence[str] | None = None
    """Replaces what the step was recorded with."""
    model: str | None = None
    provider: str | None = None
    cap_nanousd: int | None = None
    pause_seconds: float = 0.0
    """How long it rests before a worker may take it up."""


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """What a step's worker is told of its step: everything but the workspace."""

    run_id: UUID
    key: str
    attempt: int
    agent: str | None
    """None for the project's own build."""
    phase: str
    round: int
    cycle: int
    task: str
    context: tuple[str, ...]
    writes: tuple[str, ...]
    depends_on: tuple[str, ...]
    base_commit: str | None
    """The commit whose files it is given; None for a run's first step, which fetches the project: `StepReport.base`
    says what it found."""
    model: str | None
    provider: str | None
    cap_nanousd: int | None
    intent: str | None
    ticket: Mapping[str, Any]
    project: str
    project_config: Mapping[str, Any]
    results: Mapping[str, Mapping[str, Any]]
    """Results of the completed steps that it depends on or has in its context, by key."""


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """What a completed execution leaves: settled at once, part of the run only when it is absorbed."""

    result: Mapping[str, Any]
    """The agent's result, validated (workers/runs/results.py)."""
    base: str | None
    """The commit that it began with: the order's `base_commit`, or the project's head that it fetched."""
    commit: str | None
    """Its commit on top of that; None when it changed nothing."""
    changed: Sequence[str] = ()
    dropped: Sequence[str] = ()


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


class Absorbed(NamedTuple):
    """What became of an execution when the run took note of it."""

    job_id: UUID
    state: str
    """`completed` or `failed`: what its step is now."""
    reason: str | None = None
    detail: str | None = None


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
