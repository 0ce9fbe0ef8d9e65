"""What the scheduler asks the coordinator to do, as values.

The coordinator applies all actions of one decision in one transaction, reloads the view and decides again, until a
decision has none. Applying a decision changes the view so that the same decision is never made twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from routing.jobs import Reason, State
from workers.runs.scheduling.plan import Plan
from workers.runs.scheduling.view import Facts, Issue, NewGate, NewStep, Status


@dataclass(frozen=True)
class StepRecord:
    """One step and its outcome."""

    key: str
    agent: str | None
    task: str
    state: str
    status: str | None
    """As its agent reported."""
    summary: str
    tries: int


@dataclass(frozen=True)
class EscalationRecord:
    """What a person gets with a run that the agents could not finish (S-112). The ticket itself is the job's prompt."""

    steps: tuple[StepRecord, ...]
    """In the order of planning, rework included."""
    issues: tuple[Issue, ...]
    """Blocking findings that nobody fixed."""
    artifacts: tuple[str, ...]
    """Documents of the workspace."""
    changed: tuple[str, ...]
    """Files of the product as the run left them."""
    demands: int
    """How many results asked for rework (S-109)."""
    rounds: int
    """How many cycles of rework were planned."""


def escalation_record(facts: Facts) -> EscalationRecord:
    """Return everything that is known of a run."""
    steps = facts.view.steps
    return EscalationRecord(
        steps=tuple(
            StepRecord(
                key=step.key,
                agent=step.agent,
                task=step.task,
                state=step.state.value,
                status=step.result.status.value if step.result else None,
                summary=step.result.summary if step.result else step.detail,
                tries=step.tries,
            )
            for step in steps
        ),
        issues=tuple(dict.fromkeys(issue for step in facts.latest_verdicts() for issue in facts.blocking(step))),
        artifacts=tuple(dict.fromkeys(path for step in steps if step.result for path in step.result.artifacts)),
        changed=facts.changed,
        demands=count_demands(facts),
        rounds=facts.last_round,
    )


def count_demands(facts: Facts) -> int:
    """Return how many results asked for rework: a demand counts whether or not a cycle followed (S-109)."""
    found = (step.result.status for step in facts.view.steps if step.result is not None)
    return sum(1 for status in found if status is Status.NEEDS_REWORK)


PlanOrigin = Literal["agent", "corrected", "template"]


@dataclass(frozen=True)
class AdoptPlan:
    """Store a valid plan, and record its steps (pending) and gates (planned)."""

    round: int
    plan: Plan
    origin: PlanOrigin
    steps: tuple[NewStep, ...]
    gates: tuple[NewGate, ...] = ()
    notes: tuple[str, ...] = ()
    """What the service changed or why it used a template; for the run's events."""


@dataclass(frozen=True)
class AddSteps:
    """Record the service's own steps (pending)."""

    steps: tuple[NewStep, ...]


@dataclass(frozen=True)
class StartStep:
    """Create the job of one attempt at a recorded step (running, tries = attempt). Unique by run, key and attempt."""

    key: str
    attempt: int
    context: tuple[str, ...] = ()
    """What to stage: keys of completed steps and paths; replaces the recorded context."""


@dataclass(frozen=True)
class SkipSteps:
    """Mark pending steps as skipped: they never start."""

    keys: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class CancelSteps:
    """Request the cancellation of running steps (cancelling)."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class OpenGate:
    """Ask a person (open, with an expiry of `gate_hours`). The gate may be recorded already."""

    gate: NewGate


@dataclass(frozen=True)
class SkipGate:
    """Pass an optional gate without a person (skipped)."""

    key: str
    why: str


@dataclass(frozen=True)
class ScanChanges:
    """Scan the changed files without a model, and record the verdict (scan)."""


@dataclass(frozen=True)
class Publish:
    """Write the approval record and hand the run to publishing."""

    approved_by: Literal["policy:gates-passed"] = "policy:gates-passed"


@dataclass(frozen=True)
class EndRun:
    """End the run: nothing of it runs or is pending. Unanswered gates lapse."""

    state: State
    reason: Reason
    detail: str
    record: EscalationRecord | None = None
    """Of an escalated run only: what a person needs to continue."""


Action = (
    AdoptPlan | AddSteps | StartStep | SkipSteps | CancelSteps | OpenGate | SkipGate | ScanChanges | Publish | EndRun
)


@dataclass(frozen=True)
class Decision:
    """The next move of a run. Without actions the run waits, or it is over."""

    actions: tuple[Action, ...]
    explanation: str
    """Why, in one sentence for people: it goes into the run's events."""
