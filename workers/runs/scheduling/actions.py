"""What the scheduler can ask the coordinator to do, as values.

The coordinator applies all actions of one decision in one transaction, loads the view again and asks again, until a
decision has none. Applying a decision changes the view such that the same decision is never made twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from routing.jobs import Reason, State
from workers.runs.scheduling.plan import Plan
from workers.runs.scheduling.view import Facts, Issue, NewGate, NewStep, Status


@dataclass(frozen=True)
class StepRecord:
    """One step and what came of it."""

    key: str
    agent: str | None
    task: str
    state: str
    status: str | None
    """What its agent reported."""
    summary: str
    tries: int


@dataclass(frozen=True)
class EscalationRecord:
    """The context of an escalated run. The ticket itself is the job's prompt."""

    steps: tuple[StepRecord, ...]
    """In the order in which they were planned, rework included: the plan as it went."""
    issues: tuple[Issue, ...]
    """Blocking findings that nobody has mended."""
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
    """Return how many results asked for rework so far: a demand counts whether or not a cycle followed (S-109)."""
    found = (step.result.status for step in facts.view.steps if step.result is not None)
    return sum(1 for status in found if status is Status.NEEDS_REWORK)


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
