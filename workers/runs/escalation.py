"""What a person gets with a run that the agents could not finish: everything that is known, in one value (S-112)."""

from __future__ import annotations

from dataclasses import dataclass

from workers.runs.facts import Facts
from workers.runs.results import Issue, Status


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
