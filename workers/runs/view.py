"""A run as the scheduler sees it: facts of the ledger, and nothing that could be derived from them.

There is no column for where a run stands. Which phase it is in follows from its steps, their results and its gates
(schedule.py), so a coordinator that was killed between any two of them finds the same next move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from routing.agents import AgentDefinition
from routing.jobs import Reason, State
from routing.router import Intent
from routing.run_rules import RunRules
from workers.runs.results import AgentResult


class Phase(StrEnum):
    """What a step is there for."""

    CLASSIFY = "classify"
    PLAN = "plan"
    """Of pass 0: the plan of the run. Of a later pass: the rework for the steps that it depends on."""
    WORK = "work"
    """A step of a plan, reviewers included."""
    CHECK = "check"
    """The project's own build; it has no agent. A build that fails is a step that completed: its errors are the
    blocking issues of its result. The step itself fails only where the build could not be tried."""
    REPAIR = "repair"
    """The one targeted fix after a build that failed (P-031)."""
    REMEDY = "remedy"
    """A developer mends what reviewers found."""
    REVIEW = "review"
    """The reviewers look again."""
    SUMMARY = "summary"


class StepState(StrEnum):
    """Where a step is. `failed` means its last attempt: whether another one follows is for the scheduler to say."""

    PENDING = "pending"
    """Known, and no job was made for it yet."""
    RUNNING = "running"
    """Its current attempt is a job that has not ended."""
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class GateState(StrEnum):
    """Where a gate is."""

    PLANNED = "planned"
    OPEN = "open"
    PASSED = "passed"
    FAILED = "failed"
    EXPIRED = "expired"
    SKIPPED = "skipped"
    """An optional one on the auto-approve path (S-104)."""


class GateKind(StrEnum):
    """Who wants a gate."""

    RULE = "rule"
    """The platform's or the project's rules: never skipped."""
    PLAN = "plan"
    """The orchestrator suggested it: the only optional kind (ruling A24)."""


@dataclass(frozen=True)
class NewStep:
    """A step to be recorded; it starts later."""

    key: str
    """Unique in its run, of `a-z0-9_-` only: it names files and git references."""
    agent: str | None
    """None for the build check."""
    task: str
    phase: Phase
    round: int = 0
    """0 for the run's own plan, k for the k-th cycle of rework."""
    cycle: int = 0
    """Of remediation within the round; for phase plan, how often the plan was sent back."""
    depends_on: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    """Keys of steps and paths that it is to read."""
    writes: tuple[str, ...] = ()
    """Path rules (routing.path_rules); already within what the agent may write."""


@dataclass(frozen=True)
class StepView(NewStep):
    """A step and how it went so far. A run's steps are in the order in which they were recorded."""

    state: StepState = StepState.PENDING
    tries: int = 0
    """Attempts started."""
    result: AgentResult | None = None
    """Of the attempt that completed."""
    failure: Reason | None = None
    """Why the last attempt failed."""
    detail: str = ""
    """The same in words."""
    changed: tuple[str, ...] = ()
    """Paths that its commit changed, `artifacts/` included."""
    cancelling: bool = False
    """Its running attempt was asked to stop, or has ended by itself: there is nothing to cancel."""


@dataclass(frozen=True)
class NewGate:
    """A gate to be recorded."""

    key: str
    kind: GateKind
    reason: str
    after: tuple[str, ...] = ()
    """It opens once these steps are done, and what depends on them waits; empty = before the run is published."""


@dataclass(frozen=True)
class GateView(NewGate):
    """A gate and what a person said."""

    state: GateState = GateState.PLANNED


@dataclass(frozen=True)
class RunView:
    """Everything that the next move of a run depends on."""

    state: State
    """Of the run's job."""
    intent: Intent | None
    """None where the rules could not tell build from fix (ruling A5): the classifier is asked."""
    read_only: bool = False
    priority: Literal["P0", "P1", "P2", "P3"] = "P2"
    labels: tuple[str, ...] = ()
    high_stakes: bool = False
    has_build: bool = False
    """Whether the project names a build command."""
    budget_spent: bool = False
    """Nothing more fits what is left of the run's cap."""
    cancel_requested: bool = False
    scan: Literal["passed", "refused"] | None = None
    scan_detail: str = ""
    steps: tuple[StepView, ...] = ()
    gates: tuple[GateView, ...] = ()


@dataclass(frozen=True)
class Rulebook:
    """What bounds a run: layers 1 and 2 of the configuration, which no plan can touch."""

    rules: RunRules
    agents: Mapping[str, AgentDefinition]
    redact: Callable[[str], str]
    """Replaces key-like text (routing.redaction with the project's known keys); a text that it changes holds a key."""
