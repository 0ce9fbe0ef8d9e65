"""The scheduler's decisions as values; gates, and how a run ends: before its work is done, or well.

The coordinator applies all actions of one decision in one transaction, reloads the view and decides again, until a
decision has none. Applying a decision changes the view so that the same decision is never made twice.

Gates of the platform's and the project's rules are never skipped. Those that the orchestrator suggests are optional:
with autonomy `auto`, low-risk tested work passes them without a person. A waiting gate holds up only the steps that
depend on it (seed 001, ADR-010).

Whatever stops a run, no new step starts and what has not started is skipped. After a failure the running steps finish
and are recorded (ruling A13); a run that a person stopped does not let them spend more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ledger.runs.specs import GateKind, GateState, NewGate, NewStep, Phase, StepState
from routing.jobs import Reason, State, is_end
from routing.policy.agents import GateRule
from routing.policy.prices import BudgetExceeded
from workers.runs.scheduling.plan import (
    ANSWER,
    SUMMARISER,
    SUMMARY,
    Plan,
    find_ancestors,
    service_key,
    work_key,
    writes_of,
)
from workers.runs.scheduling.view import Facts, GateView, Status, StepView, find_final_reviews


def escalation_record(facts: Facts) -> dict[str, Any]:
    """Return what a person gets with a run that the agents could not finish (S-112), as JSON.

    `steps` are in the order of planning, rework included; `issues` are blocking findings that nobody fixed; `demands`
    says how many results asked for rework, whether or not a cycle followed (S-109).
    """
    steps = facts.view.steps
    results = [step.result for step in steps if step.result is not None]
    issues = dict.fromkeys(issue for step in facts.latest_verdicts() for issue in facts.blocking(step))
    return {
        "steps": [
            {
                "key": step.key,
                "agent": step.agent,
                "task": step.task,
                "state": step.state.value,
                "status": step.result.status.value if step.result else None,
                "summary": step.result.summary if step.result else step.detail,
                "tries": step.tries,
            }
            for step in steps
        ],
        "issues": [issue.model_dump() for issue in issues],
        "artifacts": list(dict.fromkeys(path for result in results for path in result.artifacts)),
        "changed": list(facts.changed),
        "demands": sum(result.status is Status.NEEDS_REWORK for result in results),
        "rounds": facts.last_round,
    }


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
    asked_after: tuple[NewGate, ...] = ()
    """Gates at which a person is asked again (planned); what changes before them is scanned again (scan)."""


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


@dataclass(frozen=True)
class EndRun:
    """End the run: nothing of it runs or is pending. Unanswered gates lapse."""

    state: State
    reason: Reason
    detail: str
    record: Mapping[str, Any] | None = None
    """Of an escalated run only: see `escalation_record`."""


Action = (
    AdoptPlan | AddSteps | StartStep | SkipSteps | CancelSteps | OpenGate | SkipGate | ScanChanges | Publish | EndRun
)


@dataclass(frozen=True)
class Decision:
    """The next move of a run. Without actions the run waits, or it is over."""

    actions: tuple[Action, ...]
    explanation: str
    """Why, in one sentence for people: it goes into the run's events."""


_PAST = frozenset({GateState.PASSED, GateState.SKIPPED, GateState.REWORK})


def plan_gates(plan: Plan, steps: Sequence[NewStep], facts: Facts) -> tuple[NewGate, ...]:
    """Return the gates of an adopted plan: its own, and for a run's first plan those of the rules."""
    round = steps[0].round
    own = tuple(
        NewGate(
            key=service_key(round, "gate", number),
            kind=GateKind.PLAN,
            reason=gate.reason,
            after=_place((work_key(round, gate.after),), steps, facts),
        )
        for number, gate in enumerate(plan.gates, start=1)
    )
    if round:
        return own
    return (*own, *(_rule_gate(rule, steps, facts) for rule in _rules(facts)))  # nothing is changed yet: no paths match


def due_within(facts: Facts, round: int) -> Decision | None:
    """Open the gates of a round whose steps are done, or skip the optional ones."""
    due = [gate for gate in _within(facts, round) if gate.state is GateState.PLANNED and _is_reached(gate, facts)]
    return _ask(due, facts)


def due_at_end(facts: Facts) -> Decision | None:
    """Open every gate that precedes publishing; wait while one is unanswered."""
    recorded = {gate.key for gate in facts.view.gates}
    due: list[NewGate] = [gate for gate in facts.view.gates if not gate.after and gate.state is GateState.PLANNED]
    due += [gate for gate in (_end_gate(rule) for rule in _rules(facts)) if gate.key not in recorded]
    decision = _ask(due, facts)
    if decision is not None:
        return decision
    return waiting(facts)


def waiting(facts: Facts, *, round: int | None = None) -> Decision | None:
    """Wait while a gate, of one round or of the whole run, is unanswered."""
    gates = facts.view.gates if round is None else tuple(_within(facts, round))
    open_now = [gate for gate in gates if gate.state is GateState.OPEN]
    if not open_now:
        return None
    return Decision((), f"waiting for a person: {'; '.join(gate.reason for gate in open_now)}")


def is_held(step: StepView, facts: Facts) -> bool:
    """Whether a step has to wait for a gate."""
    work = facts.select(step.round, Phase.WORK)
    before = find_ancestors({one.key: one.depends_on for one in work}).get(step.key, frozenset())
    return any(before.intersection(gate.after) for gate in _within(facts, step.round) if gate.state not in _PAST)


def has_unanswered(facts: Facts, round: int) -> bool:
    """Whether a gate within a round has not passed yet."""
    return any(gate.state not in _PAST for gate in _within(facts, round))


def is_low_risk(facts: Facts) -> bool:
    """Whether optional gates may be skipped: ordinary work, tested, with nothing left to fix (S-104)."""
    view = facts.view
    if view.priority == "P0" or view.high_stakes or facts.last_round:
        return False
    reviews = facts.latest_reviews(0)
    return bool(reviews) and facts.are_satisfied(reviews) and not any(facts.blocking(step) for step in reviews)


def _ask(due: Sequence[NewGate], facts: Facts) -> Decision | None:
    if not due:
        return None
    may_skip = facts.book.rules.autonomy == "auto" and is_low_risk(facts)
    actions: list[Action] = []
    for gate in due:
        if may_skip and gate.kind is GateKind.PLAN:
            actions.append(SkipGate(gate.key, "low-risk work that was tested; the project's autonomy is auto"))
        else:
            actions.append(OpenGate(NewGate(gate.key, gate.kind, gate.reason, gate.after)))
    reasons = [action.gate.reason for action in actions if isinstance(action, OpenGate)]
    if not reasons:
        return Decision(tuple(actions), f"{len(actions)} optional gate(s) skipped: low-risk work that was tested")
    return Decision(tuple(actions), f"a person has to look: {'; '.join(reasons)}")


def _rules(facts: Facts) -> Iterator[GateRule]:
    view = facts.view
    for rule in facts.book.rules.rules.gates:
        if rule.matches(priority=view.priority, labels=view.labels, changed=facts.changed):
            yield rule


def _end_gate(rule: GateRule) -> NewGate:
    return NewGate(service_key(0, "rule", rule.name), GateKind.RULE, rule.reason)


def _rule_gate(rule: GateRule, steps: Sequence[NewStep], facts: Facts) -> NewGate:
    mine = [step for step in steps if step.agent == rule.after]
    ancestors = find_ancestors({step.key: step.depends_on for step in steps})
    last = tuple(step.key for step in mine if not any(step.key in ancestors[other.key] for other in mine))
    gate = _end_gate(rule)
    return NewGate(gate.key, gate.kind, gate.reason, _place(last, steps, facts))


def _place(after: tuple[str, ...], steps: Sequence[NewStep], facts: Facts) -> tuple[str, ...]:
    """Return where a gate stands: at the end if it follows the last reviews, to show a person what was fixed since."""
    needed = {key for step in steps for key in step.depends_on}
    is_last = all(key in find_final_reviews(steps, facts.book.agents) and key not in needed for key in after)
    return () if is_last else after


def _within(facts: Facts, round: int) -> Iterator[GateView]:
    mine = {step.key for step in facts.select(round, Phase.WORK)}
    return (gate for gate in facts.view.gates if mine.intersection(gate.after))


def _is_reached(gate: GateView, facts: Facts) -> bool:
    return all(key in facts.by_key and facts.is_satisfied(facts.by_key[key]) for key in gate.after)


_ENDS = {
    Reason.COST_CAP: State.BUDGET_EXCEEDED,
    Reason.TIME_LIMIT: State.TIMED_OUT,
    Reason.OUTPUT_CAP: State.OUTPUT_EXCEEDED,
}
"""Failures with an end of their own; every other is `failed`. Of several the first counts."""
_SUMMARY = (
    "Tell the person who wrote the ticket what was done, what the reviewers found, what was mended and what was left."
)


def decide_stop(facts: Facts) -> Decision | None:
    """Return the move of a run that must not continue, or None."""
    view = facts.view
    if is_end(view.state) or view.state is State.PUBLISHING:
        return Decision((), f"nothing left to decide: the run is {view.state.value}")
    if view.cancel_requested:
        return _stop(facts, State.CANCELLED, Reason.CANCELLED, why="its owner cancelled the run", cancels=True)
    for gate in view.gates:
        if gate.state is GateState.FAILED:
            why = f"a person did not let it pass: {gate.reason}"
            return _stop(facts, State.REJECTED, Reason.REVIEWER_REJECTED, why=why, cancels=True)
        if gate.state is GateState.EXPIRED:
            why = f"nobody answered in time: {gate.reason}"
            return _stop(facts, State.EXPIRED, Reason.APPROVAL_EXPIRED, why=why, cancels=True)
    failed = [step for step in view.steps if facts.halts(step)]
    if failed:
        return _halt(facts, failed)
    if view.budget_spent and not _is_last_done(facts):
        why = f"{BudgetExceeded('run')}; what was done is kept"
        return _stop(facts, State.BUDGET_EXCEEDED, Reason.COST_CAP, why=why)
    return None


def escalate(facts: Facts, reason: Reason, why: str) -> Decision:
    """Hand the run to a person, with everything that is known of it (S-112)."""
    return _stop(facts, State.ESCALATED, reason, why=why)


def decide_answer(facts: Facts) -> Decision | None:
    """End a question, or an order that only looks, once its one step is done."""
    step = facts.by_key.get(ANSWER)
    if not is_answered_only(facts) or step is None or step.state is not StepState.COMPLETED:
        return None
    if step.result is not None and step.result.status is Status.BLOCKED:
        return escalate(facts, Reason.AGENT_BLOCKED, f"{step.agent} cannot go on: {step.result.summary[:500]}")
    return Decision((EndRun(State.ANSWERED, Reason.DONE, "answered"),), "the question is answered")


def is_answered_only(facts: Facts) -> bool:
    """Whether the run is a single answer: no other kind of run starts with that key."""
    work = facts.select(0, Phase.WORK)
    return len(work) == 1 and work[0].key == ANSWER and not facts.select(0, Phase.PLAN)


def decide_end(facts: Facts) -> Decision:
    """Return the move of a run whose work is done and reviewed: scan, gates, summary, publish."""
    view = facts.view
    if facts.changed and view.scan is None:
        return Decision((ScanChanges(),), f"the work is done: {len(facts.changed)} changed file(s) are scanned")
    if view.scan == "refused":
        return _stop(facts, State.FAILED, Reason.SCAN_REFUSED, why=f"the scan refused the changes: {view.scan_detail}")
    gate = due_at_end(facts)
    if gate is not None:
        return gate
    if SUMMARY not in facts.by_key:
        done = tuple(step.key for step in view.steps if step.state is StepState.COMPLETED and _is_work(step))
        step = NewStep(
            key=SUMMARY,
            agent=SUMMARISER,
            task=_SUMMARY,
            phase=Phase.SUMMARY,
            round=facts.last_round,
            context=done,
            writes=writes_of(SUMMARISER, facts.book.agents),
        )
        return Decision((AddSteps((step,)),), "everything is reviewed and allowed: it is summed up")
    if not facts.changed:
        return Decision((EndRun(State.ANSWERED, Reason.DONE, "no file was changed"),), "there is nothing to publish")
    return Decision((Publish(),), "every gate is passed: the changes are published")


def _is_work(step: StepView) -> bool:
    return step.phase not in (Phase.CLASSIFY, Phase.PLAN)


def _is_last_done(facts: Facts) -> bool:
    """Whether nothing is left that would cost money."""
    summary = facts.by_key.get(SUMMARY)
    if summary is not None:
        return summary.state is StepState.COMPLETED
    return decide_answer(facts) is not None


def _halt(facts: Facts, failed: list[StepView]) -> Decision:
    ranked = sorted(failed, key=lambda step: list(_ENDS).index(step.failure) if step.failure in _ENDS else len(_ENDS))
    step = ranked[0]
    reason = step.failure or Reason.AGENT_FAILED
    what = step.agent or "the build check"
    why = f"{what} failed for good in attempt {step.tries} of step {step.key} ({reason.value}): {step.detail[:500]}"
    return _stop(facts, _ENDS.get(reason, State.FAILED), reason, why=why)


def _stop(facts: Facts, state: State, reason: Reason, *, why: str, cancels: bool = False) -> Decision:
    actions: list[Action] = []
    if facts.pending:
        actions.append(SkipSteps(tuple(step.key for step in facts.pending), why))
    if facts.running:
        going = tuple(step.key for step in facts.running if not step.cancelling)
        if cancels and going:
            actions.append(CancelSteps(going))
        names = ", ".join(step.key for step in facts.running)
        return Decision(tuple(actions), f"{why}; no new step starts, waiting for {names} to end")
    record = escalation_record(facts) if state is State.ESCALATED else None
    actions.append(EndRun(state, reason, why, record))
    return Decision(tuple(actions), why)
