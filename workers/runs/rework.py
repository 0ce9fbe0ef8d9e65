"""The rework loop: made things have to change, the orchestrator plans how, and after so many cycles a person is asked.

The service counts and bounds (seed 001, ADR-011). Which agents do the rework is the orchestrator's to say, and need not
be the ones that failed; only where it brings no valid plan does the service fall back to a plain one.
"""

from __future__ import annotations

from collections.abc import Sequence

from routing.jobs import Reason
from routing.router import Intent
from workers.runs import keys
from workers.runs.actions import AddSteps, Decision
from workers.runs.ending import escalate
from workers.runs.facts import Facts
from workers.runs.findings import chain_after, find_demands, group_by_owner, task_of
from workers.runs.plan import Plan, PlanStep
from workers.runs.roles import PLANNER, is_plannable, judges, writes_of
from workers.runs.view import NewStep, Phase, StepView


def begin_rework(facts: Facts, about: Sequence[StepView], *, why: str) -> Decision:
    """Ask the orchestrator to plan the next cycle of rework, or a person when there is none left.

    Args:
        facts: of the run; nothing of it may be under way.
        about: the steps whose results have to be dealt with.
        why: what made it necessary.
    """
    cycle, limit = facts.last_round + 1, facts.book.rules.rework_cycles
    if cycle > limit:
        return escalate(facts, Reason.REWORK_EXHAUSTED, f"{why}; all {limit} cycles of rework are used up")
    about_keys = tuple(step.key for step in about)
    opening = f"Plan rework, cycle {cycle} of {limit}. It may go to whoever can mend the cause."
    step = NewStep(
        key=keys.service_key(cycle, "plan", 1),
        agent=PLANNER,
        task=task_of(find_demands(about), opening=opening),
        phase=Phase.PLAN,
        round=cycle,
        depends_on=about_keys,
        context=about_keys,
        writes=writes_of(PLANNER, facts.book.agents),
    )
    return Decision((AddSteps((step,)),), f"{why}; the orchestrator plans rework, cycle {cycle} of {limit}")


def is_reviewed(facts: Facts, round: int) -> bool:
    """Tell whether a round of rework was asked for by a reviewer, who then has to look again."""
    asked = (facts.by_key[key] for key in facts.about(round) if key in facts.by_key)
    return any(judges(step.agent, facts.book.agents) for step in asked)


def plain_rework(facts: Facts, round: int) -> Plan:
    """Return the plan that stands in where the orchestrator brings none: whoever owns a finding mends it."""
    agents = facts.book.agents
    about = [facts.by_key[key] for key in facts.about(round) if key in facts.by_key]
    owners = group_by_owner(find_demands(about), facts)
    owned = [(agent, found) for agent, found in owners.items() if agent in agents and is_plannable(agent)]
    waits = chain_after([agents[agent].writes for agent, _ in owned])
    steps = [
        PlanStep(
            id=f"mend-{number}",
            agent=agent,
            task=task_of(found, opening="Mend what was found:"),
            depends_on=tuple(f"mend-{before + 1}" for before in waits[number - 1]),
        )
        for number, (agent, found) in enumerate(owned, start=1)
    ]
    mending = tuple(step.id for step in steps)
    again = dict.fromkeys(step.agent for step in about if step.agent is not None and judges(step.agent, agents))
    for number, agent in enumerate(again, start=1):
        task = "Look again at what you found, and at everything that was changed since."
        steps.append(PlanStep(id=f"review-{number}", agent=agent, task=task, depends_on=mending, context=mending))
    return Plan(classification=_label(facts), steps=tuple(steps))


def _label(facts: Facts) -> str:
    return "fix" if facts.view.intent is Intent.FIX else "build"
