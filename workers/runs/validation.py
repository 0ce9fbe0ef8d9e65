"""The service's judgement of a plan: whoever wrote it, it runs only if no rule is broken (seed 001's hard shell).

All problems are named at once, so that the orchestrator can mend them in the one re-plan that it has. One kind the
service can put right itself: a mandatory step that is missing (S-018). It does so only when no re-plan is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from routing.agents import AgentDefinition
from routing.path_rules import check_path_rule
from sandbox.errors import PathRefusedError
from sandbox.paths import check_path
from workers.runs import keys
from workers.runs.graph import find_ancestors, find_concurrent, find_cycle
from workers.runs.plan import BuildChoice, FixChoice, Plan, PlanStep, SequentialChoice
from workers.runs.problems import Problem, ProblemCode, read_plan, shown
from workers.runs.roles import is_plannable, judges, writes_of
from workers.runs.templates import expand_template
from workers.runs.view import Rulebook
from workers.runs.writes import find_overlap, narrows

_TEST = "Test what the steps before have made against the ticket, and run every test there is."
_MAX_NODES = 20_000
"""Values in a plan that are looked at; a larger one is refused unread."""


@dataclass(frozen=True)
class Surroundings:
    """What a plan is judged against, beside the rules."""

    known: frozenset[str] = frozenset()
    """Keys of steps that were completed before this plan; its context may name them."""
    reviewed: bool = False
    """Whether a reviewer asked for this plan: then the last word must be a reviewer's too, whatever it changes."""


@dataclass(frozen=True)
class Judgement:
    """What is wrong with a plan, and the plan if it may run."""

    problems: tuple[Problem, ...]
    plan: Plan | None
    """None unless there is no problem."""
    corrected: Plan | None = None
    """With every problem put right, where the service can do that."""
    agents: frozenset[str] = frozenset()
    """The agents that it names, valid or not: what is known of the ticket's needs when a template stands in."""


def judge_plan(raw: Mapping[str, Any] | None, book: Rulebook, *, around: Surroundings) -> Judgement:
    """Judge what the orchestrator wrote.

    Args:
        raw: its `plan`, as it stands in the result; None where there is none.
        book: the rules of the service.
        around: what the run already has.
    """
    if raw is None:
        return _refused(Problem(ProblemCode.PLAN_MISSING, None, "the result holds no plan"))
    if _holds_secret(raw, book):
        return _refused(Problem(ProblemCode.SECRET, None, "it holds what looks like a key; a plan never does"))
    read = read_plan(dict(raw))
    if isinstance(read, tuple):
        return Judgement(read, None, agents=_named(raw))
    if isinstance(read, BuildChoice) and len(read.parts) > book.rules.frontend_steps:
        limit = f"the build template may have {book.rules.frontend_steps} parts"
        return Judgement((Problem(ProblemCode.TOO_MANY_PARTS, None, limit),), None, agents=_named(raw))
    if isinstance(read, BuildChoice | FixChoice | SequentialChoice):
        read = expand_template(read)
    if not isinstance(read, Plan):
        raise TypeError(type(read).__name__)
    return judge(read, book, around=around)


def judge(plan: Plan, book: Rulebook, *, around: Surroundings) -> Judgement:
    """Judge a plan that is well formed; the arguments are those of `judge_plan`."""
    named = frozenset(step.agent for step in plan.steps)
    problems = (*_whole(plan, book), *_references(plan, around.known))
    if any(problem.code in _BLINDING for problem in problems):
        return Judgement(problems, None, agents=named)
    problems += (*_contexts(plan), *_agents(plan, book.agents), *_writes(plan, book.agents))
    missing = missing_steps(plan, book, around=around)
    if problems or missing:
        corrected = None if problems else _with_steps(plan, missing, agents=book.agents)
        problems += tuple(_missing(agent, after) for agent, after in missing.items())
        return Judgement(problems, None, corrected=corrected, agents=named)
    return Judgement((), plan, agents=named)


_BLINDING = frozenset({ProblemCode.TOO_MANY_STEPS, ProblemCode.DUPLICATE_ID, ProblemCode.CYCLE})
"""With one of these it cannot be said which steps may run together."""


def missing_steps(plan: Plan, book: Rulebook, *, around: Surroundings) -> dict[str, tuple[str, ...]]:
    """Return the agents that mandatory rules still want a step of, each with the steps that it has to come after."""
    ancestors = find_ancestors({step.id: step.depends_on for step in plan.steps})
    answers = {step.id for step in plan.steps if around.reviewed and not judges(step.agent, book.agents)}
    missing: dict[str, tuple[str, ...]] = {}
    for rule in book.rules.rules.steps:
        before = answers | {step.id for step in plan.steps if _role(step, book.agents) == rule.after}
        mine = [step.id for step in plan.steps if step.agent == rule.agent]
        is_due = bool(before) or (around.reviewed and not mine)
        if is_due and not any(before <= ancestors[step] for step in mine):
            missing[rule.agent] = tuple(dict.fromkeys((*missing.get(rule.agent, ()), *sorted(before))))
    return missing


def _role(step: PlanStep, agents: Mapping[str, AgentDefinition]) -> object:
    return agents[step.agent].role if step.agent in agents else None


def _missing(agent: str, after: tuple[str, ...]) -> Problem:
    steps = f"after {', '.join(after)}" if after else "at its end"
    return Problem(ProblemCode.MANDATORY_STEP_MISSING, None, f"a step of {agent} has to come {steps}")


def _with_steps(plan: Plan, missing: Mapping[str, tuple[str, ...]], *, agents: Mapping[str, AgentDefinition]) -> Plan:
    steps = list(plan.steps)
    for agent, after in missing.items():
        taken = {step.id for step in steps}
        name = agent.replace(":", "-")[:36]
        free = name if name not in taken else next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in taken)
        mine = agents[agent].writes
        apart = [step.id for step in steps if find_overlap(effective_writes(step, agents), mine)]
        needs = tuple(dict.fromkeys((*after, *apart)))
        steps.append(PlanStep(id=free, agent=agent, task=_TEST, depends_on=needs, context=after))
    return plan.model_copy(update={"steps": tuple(steps)})


def _refused(problem: Problem) -> Judgement:
    return Judgement((problem,), None)


def _named(raw: Mapping[str, Any]) -> frozenset[str]:
    steps = raw.get("steps")
    found = [step.get("agent") for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return frozenset(agent for agent in found if isinstance(agent, str))


def _holds_secret(raw: Mapping[str, Any], book: Rulebook) -> bool:
    left: list[Any] = [raw]
    for _ in range(_MAX_NODES):
        if not left:
            return False
        value = left.pop()
        if isinstance(value, str) and book.redact(value) != value:
            return True
        if isinstance(value, Mapping):
            left.extend((*value.keys(), *value.values()))
        elif isinstance(value, list | tuple):
            left.extend(value)
    return True  # too large to be sure


def _whole(plan: Plan, book: Rulebook) -> Iterator[Problem]:
    if plan.classification == "question":  # a model cannot turn an order into a question (ruling A5)
        yield Problem(ProblemCode.QUESTION_REFUSED, None, "the ticket is an order: classify it as build or fix")
    if len(plan.steps) > book.rules.max_steps:
        yield Problem(ProblemCode.TOO_MANY_STEPS, None, f"a plan may have {book.rules.max_steps} steps")
    seen: set[str] = set()
    for step in plan.steps:
        if step.id in seen:
            yield Problem(ProblemCode.DUPLICATE_ID, step.id, "two steps have this id")
        seen.add(step.id)


def _references(plan: Plan, known: Collection[str]) -> Iterator[Problem]:
    ids = {step.id for step in plan.steps}
    for step in plan.steps:
        for name in step.depends_on:
            if name not in ids:
                yield Problem(ProblemCode.UNKNOWN_DEPENDENCY, step.id, f"there is no step {shown(name)}")
        for name in step.context:
            if name not in ids and name not in known and not _is_path(name):
                yield Problem(ProblemCode.UNKNOWN_CONTEXT, step.id, f"{shown(name)} is neither a step nor a path")
    for gate in plan.gates:
        if gate.after not in ids:
            yield Problem(ProblemCode.UNKNOWN_GATE_STEP, None, f"a gate stands after {shown(gate.after)}: no such step")
    cycle = find_cycle({step.id: step.depends_on for step in plan.steps})
    if cycle is not None:
        yield Problem(ProblemCode.CYCLE, cycle[0], f"these wait for each other: {' -> '.join((*cycle, cycle[0]))}")


def _contexts(plan: Plan) -> Iterator[Problem]:
    ancestors = find_ancestors({step.id: step.depends_on for step in plan.steps})
    for step in plan.steps:
        for name in step.context:
            if name in ancestors and name not in ancestors[step.id]:
                late = f"{name} may not be done before it: nobody reads what is not finished, so depend on it"
                yield Problem(ProblemCode.LATE_CONTEXT, step.id, late)


def _is_path(name: str) -> bool:
    try:
        check_path(name.removesuffix("/"))
    except PathRefusedError:
        return False
    return not keys.is_key(name)


def _agents(plan: Plan, agents: Mapping[str, AgentDefinition]) -> Iterator[Problem]:
    for step in plan.steps:
        if step.agent not in agents:
            yield Problem(ProblemCode.UNKNOWN_AGENT, step.id, f"there is no agent {shown(step.agent)}")
        elif not is_plannable(step.agent):
            yield Problem(ProblemCode.NOT_PLANNABLE, step.id, f"only the service calls {step.agent}")


def effective_writes(step: PlanStep, agents: Mapping[str, AgentDefinition]) -> tuple[str, ...]:
    """Return where a step of a plan may write: what the plan says, else all that its agent may.

    Steps that share an agent each keep a directory of their own for documents, where the agent has one.
    """
    allowed = writes_of(step.agent, agents)
    if not step.writes:
        return allowed
    own = f"artifacts/{step.agent.replace(':', '-')}/{step.id}/"
    return (*step.writes, *((own,) if any(narrows(own, rule) for rule in allowed) else ()))


def _writes(plan: Plan, agents: Mapping[str, AgentDefinition]) -> Iterator[Problem]:
    for step in plan.steps:
        yield from _write_rules(step, agents)
    writes = {step.id: effective_writes(step, agents) for step in plan.steps}
    for one, other in find_concurrent({step.id: step.depends_on for step in plan.steps}):
        overlap = find_overlap(writes[one], writes[other])
        if overlap is not None:
            both = f"{shown(overlap.first)} overlaps {shown(overlap.second)} of step {other}, which may run meanwhile"
            yield Problem(ProblemCode.WRITE_OVERLAP, one, both)


def _write_rules(step: PlanStep, agents: Mapping[str, AgentDefinition]) -> Iterator[Problem]:
    for rule in step.writes:
        try:
            check_path_rule(rule)
        except ValueError as error:
            yield Problem(ProblemCode.WRITE_RULE, step.id, f"{shown(rule)}: {error}")
            continue
        if step.agent in agents and not any(narrows(rule, wider) for wider in agents[step.agent].writes):
            yield Problem(ProblemCode.WRITE_OUTSIDE, step.id, f"{step.agent} may not write {shown(rule)}")
