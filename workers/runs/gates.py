"""Where a person looks before a run goes on (seed 001, ADR-010).

Rules of the platform and of the project are never skipped. Gates that the orchestrator suggests are optional: where the
project's autonomy is `auto`, low-risk work that was tested passes them without a person. A waiting gate holds nothing
but the steps that depend on it: no worker, no box, no lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from routing.run_rules import GateRule
from workers.runs import keys
from workers.runs.actions import Action, Decision, OpenGate, SkipGate
from workers.runs.facts import Facts, find_final_reviews
from workers.runs.graph import find_ancestors
from workers.runs.plan import Plan
from workers.runs.view import GateKind, GateState, GateView, NewGate, NewStep, Phase, StepView

_PAST = frozenset({GateState.PASSED, GateState.SKIPPED})


def plan_gates(plan: Plan, steps: Sequence[NewStep], facts: Facts) -> tuple[NewGate, ...]:
    """Return the gates of a plan that is adopted: its own, and those that the rules add to a run's first plan.

    Args:
        plan: the plan.
        steps: its steps as they are recorded, in the same order.
        facts: of the run.
    """
    round = steps[0].round
    own = tuple(
        NewGate(
            key=keys.service_key(round, "gate", number),
            kind=GateKind.PLAN,
            reason=gate.reason,
            after=_place((keys.work_key(round, gate.after),), steps, facts),
        )
        for number, gate in enumerate(plan.gates, start=1)
    )
    if round:
        return own
    return (*own, *(_rule_gate(rule, steps, facts) for rule in _rules(facts)))  # nothing is changed yet: no paths match


def due_within(facts: Facts, round: int) -> Decision | None:
    """Open the gates of a round whose steps are done, or skip those that may be."""
    due = [gate for gate in _within(facts, round) if gate.state is GateState.PLANNED and _is_reached(gate, facts)]
    return _ask(due, facts)


def due_at_end(facts: Facts) -> Decision | None:
    """Open every gate that stands before publishing; wait while one is unanswered."""
    known = {gate.key for gate in facts.view.gates}
    due: list[NewGate] = [gate for gate in facts.view.gates if not gate.after and gate.state is GateState.PLANNED]
    due += [gate for gate in (_end_gate(rule) for rule in _rules(facts)) if gate.key not in known]
    decision = _ask(due, facts)
    if decision is not None:
        return decision
    return waiting(facts)


def waiting(facts: Facts, *, round: int | None = None) -> Decision | None:
    """Wait while a gate, of one round or of the whole run, is unanswered."""
    asked = facts.view.gates if round is None else tuple(_within(facts, round))
    open_now = [gate for gate in asked if gate.state is GateState.OPEN]
    if not open_now:
        return None
    return Decision((), f"waiting for a person: {'; '.join(gate.reason for gate in open_now)}")


def is_held(step: StepView, facts: Facts) -> bool:
    """Tell whether a step has to wait for a gate that is not passed yet."""
    work = facts.select(step.round, Phase.WORK)
    before = find_ancestors({one.key: one.depends_on for one in work}).get(step.key, frozenset())
    return any(before.intersection(gate.after) for gate in _within(facts, step.round) if gate.state not in _PAST)


def has_unanswered(facts: Facts, round: int) -> bool:
    """Tell whether a gate within a round is not passed yet."""
    return any(gate.state not in _PAST for gate in _within(facts, round))


def is_low_risk(facts: Facts) -> bool:
    """Tell whether optional gates may be skipped: ordinary work, tested, with nothing left to mend (S-104)."""
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
    asked = [action.gate.reason for action in actions if isinstance(action, OpenGate)]
    if not asked:
        return Decision(tuple(actions), f"{len(actions)} optional gate(s) skipped: low-risk work that was tested")
    return Decision(tuple(actions), f"a person has to look: {'; '.join(asked)}")


def _rules(facts: Facts) -> Iterator[GateRule]:
    view = facts.view
    for rule in facts.book.rules.rules.gates:
        if rule.matches(priority=view.priority, labels=view.labels, changed=facts.changed):
            yield rule


def _end_gate(rule: GateRule) -> NewGate:
    return NewGate(keys.service_key(0, "rule", rule.name), GateKind.RULE, rule.reason)


def _rule_gate(rule: GateRule, steps: Sequence[NewStep], facts: Facts) -> NewGate:
    mine = [step for step in steps if step.agent == rule.after]
    ancestors = find_ancestors({step.key: step.depends_on for step in steps})
    last = tuple(step.key for step in mine if not any(step.key in ancestors[other.key] for other in mine))
    gate = _end_gate(rule)
    return NewGate(gate.key, gate.kind, gate.reason, _place(last, steps, facts))


def _place(after: tuple[str, ...], steps: Sequence[NewStep], facts: Facts) -> tuple[str, ...]:
    """Where a gate stands. After the last reviews it stands at the end: a person is shown what was mended since."""
    needed = {key for step in steps for key in step.depends_on}
    is_last = all(key in find_final_reviews(steps, facts.book.agents) and key not in needed for key in after)
    return () if is_last else after


def _within(facts: Facts, round: int) -> Iterator[GateView]:
    mine = {step.key for step in facts.select(round, Phase.WORK)}
    return (gate for gate in facts.view.gates if mine.intersection(gate.after))


def _is_reached(gate: GateView, facts: Facts) -> bool:
    return all(key in facts.by_key and facts.is_satisfied(facts.by_key[key]) for key in gate.after)
