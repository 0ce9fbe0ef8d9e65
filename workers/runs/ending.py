"""How a run ends before its work is done, and how it ends well.

Whatever stops a run, no new step starts and what has not started is skipped. After a failure the steps under way finish
and are recorded (ruling A13); a run that a person stopped does not let them go on spending.
"""

from __future__ import annotations

from routing.jobs import Reason, State, is_end
from routing.prices import BudgetExceeded
from workers.runs import keys
from workers.runs.actions import Action, AddSteps, CancelSteps, Decision, EndRun, Publish, ScanChanges, SkipSteps
from workers.runs.escalation import escalation_record
from workers.runs.facts import Facts
from workers.runs.gates import due_at_end
from workers.runs.results import Status
from workers.runs.roles import SUMMARISER, writes_of
from workers.runs.view import GateState, NewStep, Phase, StepState, StepView

_ENDS = {
    Reason.COST_CAP: State.BUDGET_EXCEEDED,
    Reason.TIME_LIMIT: State.TIMED_OUT,
    Reason.OUTPUT_CAP: State.OUTPUT_EXCEEDED,
}
"""Ends of their own; every other failure is `failed`. Of several the first counts."""
_SUMMARY = (
    "Tell the person who wrote the ticket what was done, what the reviewers found, what was mended and what was left."
)


def decide_stop(facts: Facts) -> Decision | None:
    """Return the move of a run that may not go on, or None."""
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
    """End a question or an order that only looks, once its one step is done."""
    step = facts.by_key.get(keys.ANSWER)
    if not is_answered_only(facts) or step is None or step.state is not StepState.COMPLETED:
        return None
    if step.result is not None and step.result.status is Status.BLOCKED:
        return escalate(facts, Reason.AGENT_BLOCKED, f"{step.agent} cannot go on: {step.result.summary[:500]}")
    return Decision((EndRun(State.ANSWERED, Reason.DONE, "answered"),), "the question is answered")


def is_answered_only(facts: Facts) -> bool:
    """Tell whether the run is one answer, by the key that no other kind of run starts with."""
    work = facts.select(0, Phase.WORK)
    return len(work) == 1 and work[0].key == keys.ANSWER and not facts.select(0, Phase.PLAN)


def decide_end(facts: Facts) -> Decision:
    """Return the move of a run whose work is done and reviewed: scan, gates, summary, publish."""
    view = facts.view
    if facts.changed and view.scan is None:
        return Decision((ScanChanges(),), f"the work is done: {len(facts.changed)} changed file(s) are scanned")
    if view.scan == "refused":
        return _stop(facts, State.FAILED, Reason.SCAN_REFUSED, why=f"the scan refused the changes: {view.scan_detail}")
    asked = due_at_end(facts)
    if asked is not None:
        return asked
    if keys.SUMMARY not in facts.by_key:
        told = tuple(step.key for step in view.steps if step.state is StepState.COMPLETED and _is_told(step))
        step = NewStep(
            key=keys.SUMMARY,
            agent=SUMMARISER,
            task=_SUMMARY,
            phase=Phase.SUMMARY,
            round=facts.last_round,
            context=told,
            writes=writes_of(SUMMARISER, facts.book.agents),
        )
        return Decision((AddSteps((step,)),), "everything is reviewed and allowed: it is summed up")
    if not facts.changed:
        return Decision((EndRun(State.ANSWERED, Reason.DONE, "no file was changed"),), "there is nothing to publish")
    return Decision((Publish(),), "every gate is passed: the changes are published")


def _is_told(step: StepView) -> bool:
    return step.phase not in (Phase.CLASSIFY, Phase.PLAN)


def _is_last_done(facts: Facts) -> bool:
    """Whether nothing is left that would cost anything."""
    summary = facts.by_key.get(keys.SUMMARY)
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
