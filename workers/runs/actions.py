"""What the scheduler can ask the coordinator to do, as values.

The coordinator applies all actions of one decision in one transaction, loads the view again and asks again, until a
decision has none. Applying a decision changes the view such that the same decision is never made twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from routing.jobs import Reason, State
from workers.runs.escalation import EscalationRecord
from workers.runs.plan import Plan
from workers.runs.view import NewGate, NewStep

PlanOrigin = Literal["agent", "corrected", "template"]


@dataclass(frozen=True)
class AdoptPlan:
    """Store a plan that passed, and record its steps (pending) and gates (planned)."""

    round: int
    plan: Plan
    origin: PlanOrigin
    steps: tuple[NewStep, ...]
    gates: tuple[NewGate, ...] = ()
    notes: tuple[str, ...] = ()
    """What the service changed or why it took a template; for the run's events."""


@dataclass(frozen=True)
class AddSteps:
    """Record steps of the service's own (pending)."""

    steps: tuple[NewStep, ...]


@dataclass(frozen=True)
class StartStep:
    """Make the job of one attempt of a recorded step (running, tries = attempt). Unique by run, key and attempt."""

    key: str
    attempt: int
    context: tuple[str, ...] = ()
    """What to stage: keys of completed steps and paths; replaces the context that was recorded."""


@dataclass(frozen=True)
class SkipSteps:
    """Mark pending steps as never to be started (skipped)."""

    keys: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class CancelSteps:
    """Ask for the cancellation of running steps (cancelling)."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class OpenGate:
    """Ask a person (open, with an expiry of `gate_hours`). The gate may be recorded already, or not."""

    gate: NewGate


@dataclass(frozen=True)
class SkipGate:
    """Pass an optional gate without a person (skipped)."""

    key: str
    why: str


@dataclass(frozen=True)
class ScanChanges:
    """Scan the changed files without a model, and record what came of it (scan)."""


@dataclass(frozen=True)
class Publish:
    """Write the approval record and hand the run over to publishing."""

    approved_by: Literal["policy:gates-passed"] = "policy:gates-passed"


@dataclass(frozen=True)
class EndRun:
    """End the run: nothing of it runs or is pending. Gates that nobody answered lapse."""

    state: State
    reason: Reason
    detail: str
    record: EscalationRecord | None = None
    """Of an escalated run only: what a person needs to go on."""


Action = (
    AdoptPlan | AddSteps | StartStep | SkipSteps | CancelSteps | OpenGate | SkipGate | ScanChanges | Publish | EndRun
)


@dataclass(frozen=True)
class Decision:
    """The one next move of a run. Without actions the run waits, or it is over."""

    actions: tuple[Action, ...]
    explanation: str
    """Why, in a sentence that a person understands: it goes into the run's events."""
