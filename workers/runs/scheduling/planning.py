"""From a ticket or a demand for rework to a plan that may run: classify, plan, judge, replan, fall back.

Whoever wrote a plan, it runs only if it breaks no rule. All problems are named at once, so that the orchestrator can
fix them in its one replan. The service can correct one kind itself, a missing mandatory step (S-018), and does so only
when no replan is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from ledger.runs.specs import NewStep, Phase, StepState
from routing.decision.router import Intent
from routing.jobs import Reason, State
from routing.policy.agents import AgentDefinition, check_path_rule
from sites.errors import PathRefusedError
from sites.files import check_path
from workers.runs.scheduling import plan as keys
from workers.runs.scheduling.ending import AddSteps, AdoptPlan, Decision, EndRun, PlanOrigin, escalate, plan_gates
from workers.runs.scheduling.plan import (
    CLASSIFIER,
    PLANNER,
    BuildChoice,
    FixChoice,
    Plan,
    PlanStep,
    SequentialChoice,
    TemplateChoice,
    answer_plan,
    choose_template,
    expand_template,
    find_ancestors,
    find_concurrent,
    find_cycle,
    find_overlap,
    is_plannable,
    judges,
    narrows,
    writes_of,
)
from workers.runs.scheduling.remedies import is_reviewed, plain_rework
from workers.runs.scheduling.view import Facts, Rulebook, Status, StepView

MAX_PROBLEMS = 30


class ProblemCode(StrEnum):
    """The rules of a plan, each by what breaks it."""

    PLAN_MISSING = "plan_missing"
    MALFORMED = "malformed"
    FORBIDDEN_FIELD = "forbidden_field"
    SECRET = "secret"
    QUESTION_REFUSED = "question_refused"
    TOO_MANY_STEPS = "too_many_steps"
    TOO_MANY_PARTS = "too_many_parts"
    DUPLICATE_ID = "duplicate_id"
    EMPTY_TASK = "empty_task"
    UNKNOWN_AGENT = "unknown_agent"
    NOT_PLANNABLE = "not_plannable"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    CYCLE = "cycle"
    UNKNOWN_CONTEXT = "unknown_context"
    LATE_CONTEXT = "late_context"
    WRITE_RULE = "write_rule"
    WRITE_OUTSIDE = "write_outside"
    WRITE_OVERLAP = "write_overlap"
    MANDATORY_STEP_MISSING = "mandatory_step_missing"
    UNKNOWN_GATE_STEP = "unknown_gate_step"


class Problem(NamedTuple):
    """One rule that a plan breaks, with words for its author."""

    code: ProblemCode
    step: str | None
    """Id of the step, or None for the whole plan."""
    message: str

    def __str__(self) -> str:
        place = f" (step {self.step})" if self.step else ""
        return f"{self.code.value}{place}: {self.message}"


_CHOICE: TypeAdapter[Any] = TypeAdapter(TemplateChoice)


def quote_name(name: object) -> str:
    """Return a model's word as it may be repeated: short and printable."""
    return _printable(str(name)[:80]) or "(empty)"


def read_plan(raw: dict[str, Any]) -> BaseModel | tuple[Problem, ...]:
    """Parse the orchestrator's output: a `Plan`, the choice of a template, or the problems of its form."""
    try:
        return _CHOICE.validate_python(raw) if "template" in raw else Plan.model_validate(raw)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)[:MAX_PROBLEMS]
        return tuple(_form_problem(item["type"], item["loc"], item["msg"], raw=raw) for item in found)


def _form_problem(kind: str, place: Sequence[int | str], rule: str, *, raw: dict[str, Any]) -> Problem:
    step, field = _step_at(place, raw), quote_name(".".join(str(part) for part in place)) if place else "plan"
    if kind == "extra_forbidden":
        message = (
            f"{field} is no part of a plan: agents, order, context and gates are; the service decides everything else"
        )
        return Problem(ProblemCode.FORBIDDEN_FIELD, step, message)
    if place and place[-1] == "task" and kind in ("string_too_short", "missing"):
        return Problem(ProblemCode.EMPTY_TASK, step, "a step needs a task in words")
    return Problem(ProblemCode.MALFORMED, step, f"{field}: {_printable(rule[:200])}")


def _step_at(place: Sequence[int | str], raw: dict[str, Any]) -> str | None:
    """Return the id that the step at a place claims, if any: the whole step may be malformed."""
    match place:
        case ["steps", int(index), *_]:
            step = raw["steps"][index]
            return (
                quote_name(step["id"])
                if isinstance(step, dict) and isinstance(step.get("id"), str)
                else f"#{index + 1}"
            )
    return None


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


_TEST = "Test what the steps before have made against the ticket, and run every test there is."
_MAX_NODES = 20_000
"""Limit of scanned values in a plan; a larger one is refused unread."""


@dataclass(frozen=True)
class PlanContext:
    """What a plan is judged against, besides the rules."""

    known: frozenset[str] = frozenset()
    """Keys of steps that were completed before this plan; its context may name them."""
    reviewed: bool = False
    """Whether a reviewer asked for this plan: then a reviewer must also have the last word."""


@dataclass(frozen=True)
class Judgement:
    """What is wrong with a plan, and the plan if it may run."""

    problems: tuple[Problem, ...]
    plan: Plan | None
    """None unless there is no problem."""
    corrected: Plan | None = None
    """With every problem fixed, where the service can do that."""
    agents: frozenset[str] = frozenset()
    """The agents that it names, valid or not: a template in its place takes the ticket's needs from them."""


def judge_plan(raw: Mapping[str, Any] | None, book: Rulebook, *, around: PlanContext) -> Judgement:
    """Judge what the orchestrator wrote."""
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


def judge(plan: Plan, book: Rulebook, *, around: PlanContext) -> Judgement:
    """Judge a well-formed plan; the arguments are those of `judge_plan`."""
    named = frozenset(step.agent for step in plan.steps)
    problems = (*_whole(plan, book), *_references(plan, around.known))
    if any(problem.code in _FATAL for problem in problems):
        return Judgement(problems, None, agents=named)
    problems += (*_contexts(plan), *_agents(plan, book.agents), *_writes(plan, book.agents))
    missing = missing_steps(plan, book, around=around)
    if problems or missing:
        corrected = None if problems else _with_steps(plan, missing, agents=book.agents)
        problems += tuple(_missing(agent, after) for agent, after in missing.items())
        return Judgement(problems, None, corrected=corrected, agents=named)
    return Judgement((), plan, agents=named)


_FATAL = frozenset({ProblemCode.TOO_MANY_STEPS, ProblemCode.DUPLICATE_ID, ProblemCode.CYCLE})
"""With one of these it is unclear which steps may run together."""


def missing_steps(plan: Plan, book: Rulebook, *, around: PlanContext) -> dict[str, tuple[str, ...]]:
    """Return the agents that mandatory rules still want a step of, each with the steps that must precede it."""
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
                yield Problem(ProblemCode.UNKNOWN_DEPENDENCY, step.id, f"there is no step {quote_name(name)}")
        for name in step.context:
            if name not in ids and name not in known and not _is_path(name):
                yield Problem(ProblemCode.UNKNOWN_CONTEXT, step.id, f"{quote_name(name)} is neither a step nor a path")
    for gate in plan.gates:
        if gate.after not in ids:
            yield Problem(
                ProblemCode.UNKNOWN_GATE_STEP, None, f"a gate stands after {quote_name(gate.after)}: no such step"
            )
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
            yield Problem(ProblemCode.UNKNOWN_AGENT, step.id, f"there is no agent {quote_name(step.agent)}")
        elif not is_plannable(step.agent):
            yield Problem(ProblemCode.NOT_PLANNABLE, step.id, f"only the service calls {step.agent}")


def effective_writes(step: PlanStep, agents: Mapping[str, AgentDefinition]) -> tuple[str, ...]:
    """Return where a plan's step may write: what the plan says, else all that its agent may.

    Steps that share an agent each have a directory of their own for documents, where the agent has one.
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
            first, second = quote_name(overlap.first), quote_name(overlap.second)
            message = f"{first} overlaps {second} of step {other}, which may run meanwhile"
            yield Problem(ProblemCode.WRITE_OVERLAP, one, message)


def _write_rules(step: PlanStep, agents: Mapping[str, AgentDefinition]) -> Iterator[Problem]:
    for rule in step.writes:
        try:
            check_path_rule(rule)
        except ValueError as error:
            yield Problem(ProblemCode.WRITE_RULE, step.id, f"{quote_name(rule)}: {error}")
            continue
        if step.agent in agents and not any(narrows(rule, wider) for wider in agents[step.agent].writes):
            yield Problem(ProblemCode.WRITE_OUTSIDE, step.id, f"{step.agent} may not write {quote_name(rule)}")


def decide_plan(facts: Facts, round: int) -> Decision:
    """Return the next move of a round without a plan. Nothing of the run is running or pending."""
    plans = facts.select(round, Phase.PLAN)
    if round == 0 and not plans:
        return _begin(facts)
    last = plans[-1]
    if last.result is not None and last.result.status is Status.BLOCKED:
        return escalate(facts, Reason.AGENT_BLOCKED, f"{PLANNER} cannot plan: {last.result.summary[:500]}")
    judgements = [_judge(step, facts) for step in plans]
    return _decide_on_plan(facts, last, judgements)


def intent_of(facts: Facts) -> Intent | None:
    """Return the ticket's intent, or None while it is unknown (ruling A5)."""
    view = facts.view
    if view.read_only or view.intent is Intent.QUESTION:  # no model turns an order into a question, or back
        return Intent.QUESTION
    if view.intent is not None and facts.book.rules.intent_classifier == "when_unsure":
        return view.intent
    step = facts.by_key.get(keys.CLASSIFY)
    if step is None or step.state in (StepState.PENDING, StepState.RUNNING):
        return None
    if step.result is not None and step.result.intent is not None:
        return Intent(step.result.intent)
    return view.intent or Intent.BUILD


def _begin(facts: Facts) -> Decision:
    intent = intent_of(facts)
    if intent is None:
        task = "Tell whether the ticket asks to build something or to fix something, and put it into `intent`."
        step = NewStep(keys.CLASSIFY, CLASSIFIER, task, Phase.CLASSIFY)
        return Decision((AddSteps((step,)),), "the ticket is classified")
    if intent is Intent.QUESTION:
        plan = answer_plan(read_only=facts.view.read_only)
        what = "an order that only looks" if facts.view.read_only else "a question"
        return _adopt(facts, plan, round=0, origin="template", why=f"{what}: one step answers it")
    task = f"Plan the work for the ticket. It was classified as {intent.value}."
    return _ask_planner(
        facts, round=0, cycle=0, task=task, why=f"a ticket to {intent.value}: the orchestrator plans it"
    )


def _ask_planner(facts: Facts, *, round: int, cycle: int, task: str, why: str) -> Decision:
    about = facts.about(round)
    step = NewStep(
        key=keys.service_key(round, "plan", cycle + 1),
        agent=PLANNER,
        task=task,
        phase=Phase.PLAN,
        round=round,
        cycle=cycle,
        depends_on=about,
        context=about,
        writes=writes_of(PLANNER, facts.book.agents),
    )
    return Decision((AddSteps((step,)),), why)


def _judge(step: StepView, facts: Facts) -> Judgement:
    done = frozenset(one.key for one in facts.view.steps if one.state is StepState.COMPLETED)
    around = PlanContext(known=done, reviewed=is_reviewed(facts, step.round))
    return judge_plan(step.result.plan if step.result else None, facts.book, around=around)


def _decide_on_plan(facts: Facts, last: StepView, judgements: list[Judgement]) -> Decision:
    latest = judgements[-1]
    if latest.plan is not None:
        return _adopt(facts, latest.plan, round=last.round, origin="agent", why="the orchestrator's plan is valid")
    problems = [str(problem) for problem in latest.problems]
    if len(judgements) <= facts.book.rules.replans:
        first = facts.select(last.round, Phase.PLAN)[0].task
        task = "\n".join((first[:4000], "Your plan was refused. Mend all of this:", *problems))[:7900]
        why = f"the plan is refused and requested again: {'; '.join(problems)}"
        return _ask_planner(facts, round=last.round, cycle=last.cycle + 1, task=task, why=why)
    if latest.corrected is not None:
        why = f"the service corrects the plan: {'; '.join(problems)}"
        return _adopt(facts, latest.corrected, round=last.round, origin="corrected", why=why, notes=latest.problems)
    return _fall_back(facts, last.round, judgements)


def _fall_back(facts: Facts, round: int, judgements: list[Judgement]) -> Decision:
    problems = judgements[-1].problems
    if round:
        plan, name = plain_rework(facts, round), "plain rework"
    else:
        named = frozenset[str]().union(*(judgement.agents for judgement in judgements))
        choice = choose_template(intent_of(facts) or Intent.BUILD, agents=named)
        plan, name = expand_template(choice), f"the {choice.template} template"
    around = PlanContext(known=frozenset(facts.by_key), reviewed=is_reviewed(facts, round))
    judged = judge(plan, facts.book, around=around)
    good = judged.plan or judged.corrected
    if good is None:
        detail = f"{name} is refused by the configuration: {'; '.join(str(problem) for problem in judged.problems)}"
        return Decision((EndRun(State.FAILED, Reason.INTERNAL_ERROR, detail),), detail)
    why = f"{name} stands in for a plan that was refused: {'; '.join(str(problem) for problem in problems)}"
    return _adopt(facts, good, round=round, origin="template", why=why, notes=problems)


def _adopt(
    facts: Facts, plan: Plan, *, round: int, origin: PlanOrigin, why: str, notes: tuple[Problem, ...] = ()
) -> Decision:
    about = facts.about(round)
    own = {step.id: keys.work_key(round, step.id) for step in plan.steps}
    steps = tuple(_recorded(step, facts, round=round, own=own, about=about) for step in plan.steps)
    gates = () if plan.classification == "question" else plan_gates(plan, steps, facts)
    said = tuple(str(problem) for problem in notes)
    return Decision((AdoptPlan(round, plan, origin, steps, gates, said),), f"{why} ({len(steps)} step(s))")


def _recorded(step: PlanStep, facts: Facts, *, round: int, own: dict[str, str], about: tuple[str, ...]) -> NewStep:
    return NewStep(
        key=own[step.id],
        agent=step.agent,
        task=step.task,
        phase=Phase.WORK,
        round=round,
        depends_on=tuple(dict.fromkeys(own[name] for name in step.depends_on)),
        context=tuple(dict.fromkeys((*(own.get(name, name) for name in step.context), *about))),
        writes=effective_writes(step, facts.book.agents),
    )
