"""From a ticket or a demand for rework to a plan that may run: classify, plan, judge, plan once more, fall back."""

from __future__ import annotations

from routing.jobs import Reason, State
from routing.router import Intent
from workers.runs import keys
from workers.runs.actions import AddSteps, AdoptPlan, Decision, EndRun, PlanOrigin
from workers.runs.ending import escalate
from workers.runs.facts import Facts
from workers.runs.gates import plan_gates
from workers.runs.plan import Plan, PlanStep
from workers.runs.problems import Problem
from workers.runs.results import Status
from workers.runs.rework import is_reviewed, plain_rework
from workers.runs.roles import CLASSIFIER, PLANNER, writes_of
from workers.runs.templates import answer_plan, choose_template, expand_template
from workers.runs.validation import Judgement, Surroundings, effective_writes, judge, judge_plan
from workers.runs.view import NewStep, Phase, StepState, StepView


def decide_plan(facts: Facts, round: int) -> Decision:
    """Return the next move of a round that has no plan yet. Nothing of the run is under way or waiting."""
    plans = facts.select(round, Phase.PLAN)
    if round == 0 and not plans:
        return _begin(facts)
    last = plans[-1]
    if last.result is not None and last.result.status is Status.BLOCKED:
        return escalate(facts, Reason.AGENT_BLOCKED, f"{PLANNER} cannot plan: {last.result.summary[:500]}")
    judgements = [_judge(step, facts) for step in plans]
    return _weigh(facts, last, judgements)


def intent_of(facts: Facts) -> Intent | None:
    """Return what kind of ticket it is, or None while that is not known (ruling A5)."""
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
    around = Surroundings(known=done, reviewed=is_reviewed(facts, step.round))
    return judge_plan(step.result.plan if step.result else None, facts.book, around=around)


def _weigh(facts: Facts, last: StepView, judgements: list[Judgement]) -> Decision:
    latest = judgements[-1]
    if latest.plan is not None:
        return _adopt(facts, latest.plan, round=last.round, origin="agent", why="the orchestrator's plan is valid")
    told = [str(problem) for problem in latest.problems]
    if len(judgements) <= facts.book.rules.replans:
        first = facts.select(last.round, Phase.PLAN)[0].task
        task = "\n".join((first[:4000], "Your plan was refused. Mend all of this:", *told))[:7900]
        why = f"the plan is refused and asked for again: {'; '.join(told)}"
        return _ask_planner(facts, round=last.round, cycle=last.cycle + 1, task=task, why=why)
    if latest.corrected is not None:
        why = f"the service corrects the plan: {'; '.join(told)}"
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
    around = Surroundings(known=frozenset(facts.by_key), reviewed=is_reviewed(facts, round))
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
