"""Steps and gates of a run before they are stored, and the words in which the ledger says what became of them.

Values only: the schedule decides in them without a database.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """The purpose of a step."""

    CLASSIFY = "classify"
    PLAN = "plan"
    """Of pass 0: the plan of the run. Of a later pass: the rework for the steps that it depends on."""
    WORK = "work"
    """A step of a plan, reviewers included."""
    CHECK = "check"
    """The project's own build; it has no agent. A failing build is a completed step: its errors are the blocking issues
    of its result. The step itself fails only where the build could not be tried.
    """
    REPAIR = "repair"
    """The one targeted fix after a failed build (P-031)."""
    REMEDY = "remedy"
    """A developer fixes what reviewers found."""
    REVIEW = "review"
    """The reviewers look again."""
    SUMMARY = "summary"


class StepState(StrEnum):
    """The state of a step. `failed` is that of its last attempt: the scheduler decides whether another one follows."""

    PENDING = "pending"
    """Recorded, without a job yet."""
    RUNNING = "running"
    """Its current attempt is a job that has not ended."""
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


class GateState(StrEnum):
    """The state of a gate."""

    PLANNED = "planned"
    OPEN = "open"
    PASSED = "passed"
    FAILED = "failed"
    REWORK = "rework"
    """A person sent the work back, with a reason; another gate takes its place."""
    EXPIRED = "expired"
    SKIPPED = "skipped"
    """An optional one on the auto-approve path (S-104)."""


class GateKind(StrEnum):
    """Who wants a gate."""

    RULE = "rule"
    """The platform's or the project's rules: never skipped."""
    PLAN = "plan"
    """Suggested by the orchestrator: the only optional kind (ruling A24)."""


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
    """Of remediation within the round; for phase plan, how often the plan was refused."""
    depends_on: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    """What it is to read: keys of steps, and paths."""
    writes: tuple[str, ...] = ()
    """Path rules (routing.policy.agents), within what the agent may write."""


AGAIN = "_again"
"""Ends the key of a gate that asks again about what was changed by hand; no rule can have such a name."""


@dataclass(frozen=True)
class NewGate:
    """A gate to be recorded."""

    key: str
    kind: GateKind
    reason: str
    after: tuple[str, ...] = ()
    """It opens once these steps are done, and blocks what depends on them; empty: before the run is published."""
