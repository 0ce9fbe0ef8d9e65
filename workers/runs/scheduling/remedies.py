"""Between the work of a round and its acceptance: check the build, fix findings, review again, plan rework.

Two bounded loops of ruling A12. A failing build gets one targeted fix and the same check again (P-031). Blocking
findings get two cycles of fixing, and no further one once their number stops falling (P-023, P-057). The rest is for
rework: the service bounds its cycles and the orchestrator plans them, for whichever agents it likes (seed 001,
ADR-011). After the last cycle a person is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ledger.runs.specs import GateState, NewStep, Phase, StepState
from routing.decision.router import Intent
from routing.jobs import Reason
from routing.policy.agents import is_covered
from workers.runs.scheduling import plan
from workers.runs.scheduling.ending import AddSteps, Decision, escalate
from workers.runs.scheduling.plan import PLANNER, Plan, PlanStep, find_overlap, is_plannable, judges, makes, writes_of
from workers.runs.scheduling.view import Facts, GateView, StepView

_SAID = "A person who looked at it says:"
_MAX_LISTED = 40
"""Findings that a task lists; all of them are in the results that are staged for the step."""
_MAX_DETAIL = 400


class Finding(NamedTuple):
    """One thing to fix."""

    source: StepView
    """The step that found it."""
    title: str
    detail: str = ""
    file: str | None = None


def find_blocking(steps: Iterable[StepView], facts: Facts) -> tuple[Finding, ...]:
    """Return the steps' blocking issues that no rework has taken up."""
    return tuple(
        Finding(step, issue.title, issue.detail, issue.file) for step in steps for issue in facts.blocking(step)
    )


def find_demands(steps: Iterable[StepView]) -> tuple[Finding, ...]:
    """Return what each step wants changed: its blocking issues, else its summary."""
    demands: list[Finding] = []
    for step in steps:
        if step.result is not None:
            issues = [Finding(step, issue.title, issue.detail, issue.file) for issue in step.result.blocking]
            demands += issues or [Finding(step, step.result.summary)]
    return tuple(demands)


def group_by_owner(findings: Iterable[Finding], facts: Facts) -> dict[str, list[Finding]]:
    """Return the findings of each agent that has to fix some, in the order of the first finding."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(find_owner(finding, facts), []).append(finding)
    return groups


def find_owner(finding: Finding, facts: Facts) -> str:
    """Return the agent that a finding goes to.

    An agent fixes its own findings about its own work. Any other finding goes to whoever changed the file last, else to
    an agent that may write it, else to whoever made something last.
    """
    agents = facts.book.agents
    source = finding.source.agent
    if source is not None and not judges(source, agents):
        return source
    made = [step.agent for step in reversed(facts.makers) if step.agent is not None]
    if finding.file is not None:
        file = finding.file
        touched = [step.agent for step in reversed(facts.makers) if step.agent is not None and file in step.changed]
        able = [agent for agent in (*made, *agents) if makes(agent, agents) and is_covered(file, agents[agent].writes)]
        made = [*touched, *able, *made]
    return next(iter((*made, *(agent for agent in agents if makes(agent, agents)))), source or "frontend-dev")


def chain_after(writes: Sequence[tuple[str, ...]]) -> list[tuple[int, ...]]:
    """Return for each entry the earlier ones that it must wait for, because both may write the same file."""
    return [
        tuple(earlier for earlier in range(index) if find_overlap(writes[earlier], writes[index]))
        for index in range(len(writes))
    ]


def task_of(findings: Sequence[Finding], *, opening: str) -> str:
    """Return a task that lists findings."""
    lines = [f"{number}. {_line(finding)}" for number, finding in enumerate(findings[:_MAX_LISTED], start=1)]
    if len(findings) > _MAX_LISTED:
        lines.append(f"... and {len(findings) - _MAX_LISTED} more, in the results that you are given.")
    return "\n".join((opening, *lines))[:7900]


def _line(finding: Finding) -> str:
    source = "build" if finding.source.phase is Phase.CHECK else finding.source.agent
    place = f" ({finding.file})" if finding.file else ""
    detail = f": {finding.detail[:_MAX_DETAIL]}" if finding.detail else ""
    return f"[{source}] {finding.title[:_MAX_DETAIL]}{place}{detail}"


def decide_sent_back(facts: Facts) -> Decision | None:
    """Begin the rework that a person asked for at a gate: agents are told the reason, then the gate asks again."""
    for gate in facts.view.gates:
        if gate.state is not GateState.REWORK or facts.is_asked_again(gate):
            continue
        why = f"a person sent the work back: {gate.reason}"
        if facts.running:
            going = ", ".join(step.key for step in facts.running)
            return Decision((), f"{why}; no new step starts, waiting for {going} to end")
        looked_at = [facts.by_key[key] for key in gate.after if key in facts.by_key] or facts.latest_verdicts()
        about = [step for step in looked_at or facts.view.steps if step.state is StepState.COMPLETED]
        return begin_rework(facts, about, why=why, sent_back=gate)
    return None


def begin_rework(facts: Facts, about: Sequence[StepView], *, why: str, sent_back: GateView | None = None) -> Decision:
    """Ask the orchestrator to plan the next cycle of rework, or a person when there is none left.

    A gate at which a person sent the work back says what to change; without one, the steps do.
    """
    cycle, limit = facts.last_round + 1, facts.book.rules.rework_cycles
    if cycle > limit:
        return escalate(facts, Reason.REWORK_EXHAUSTED, f"{why}; all {limit} cycles of rework are used up")
    about_keys = tuple(step.key for step in about)
    opening = f"Plan rework, cycle {cycle} of {limit}. It may go to whoever can mend the cause."
    task = f"{opening}\n{_SAID} {sent_back.note}" if sent_back else task_of(find_demands(about), opening=opening)
    step = NewStep(
        key=plan.service_key(cycle, "plan", 1),
        agent=PLANNER,
        task=task,
        phase=Phase.PLAN,
        round=cycle,
        depends_on=about_keys,
        context=about_keys,
        writes=writes_of(PLANNER, facts.book.agents),
    )
    again = tuple(gate.successor(cycle) for gate in _asked_again(facts, sent_back)) if sent_back else ()
    return Decision((AddSteps((step,), again),), f"{why}; the orchestrator plans rework, cycle {cycle} of {limit}")


def _asked_again(facts: Facts, sent_back: GateView) -> Iterator[GateView]:
    """Yield the gate at which work is sent back, and those before publishing that are about the work as it was."""
    for gate in facts.view.gates:
        is_old = not gate.after and gate.state in (GateState.OPEN, GateState.PASSED) and not facts.is_asked_again(gate)
        if gate is sent_back or is_old:
            yield gate


def is_reviewed(facts: Facts, round: int) -> bool:
    """Whether a reviewer asked for a round of rework, and thus has to look again."""
    about = (facts.by_key[key] for key in facts.about(round) if key in facts.by_key)
    return any(judges(step.agent, facts.book.agents) for step in about)


def plain_rework(facts: Facts, round: int) -> Plan:
    """Return the plan that replaces a missing one of the orchestrator's: whoever owns a finding fixes it."""
    agents = facts.book.agents
    about = [facts.by_key[key] for key in facts.about(round) if key in facts.by_key]
    said = facts.sent_back(round)
    demands = [Finding(step, f"{_SAID} {said}") for step in about[:1]] if said else find_demands(about)
    owners = group_by_owner(demands, facts)
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


_CHECK = "Run the project's build."
_AGAIN = "Look again: what you found should be mended, and nothing else broken."


def decide_check(facts: Facts, round: int, *, cycle: int) -> Decision | None:
    """Return the next move of a round's and cycle's build check, or None once the build is good."""
    if not facts.view.has_build:
        return None
    checks = facts.select(round, Phase.CHECK, cycle=cycle)
    if not checks:
        return _add_check(facts, round, cycle=cycle, name="build", why="the build is checked")
    last = checks[-1]
    if last.state is not StepState.COMPLETED:
        return Decision((), f"waiting for {last.key} to end")
    errors = find_blocking((last,), facts)
    if not errors:
        return None
    if len(checks) > 1:
        return begin_rework(facts, (last,), why="the build still fails after its one fix")
    if not facts.select(round, Phase.REPAIR, cycle=cycle):
        return _add_repair(facts, last, errors)
    return _add_check(facts, round, cycle=cycle, name="rebuild", why="the build is checked again")


def decide_reviews(facts: Facts, round: int) -> Decision | None:
    """Return the next move after a round's reviews, or None once nothing is left to fix in it."""
    cycle = max((step.cycle for step in facts.select(round, Phase.REMEDY)), default=0)
    if cycle:
        checked = decide_check(facts, round, cycle=cycle)
        if checked is not None:
            return checked
        if not facts.select(round, Phase.REVIEW, cycle=cycle):
            return _add_reviews(facts, round, cycle=cycle)
    findings = find_blocking(facts.reviews(round, cycle=cycle), facts)
    if not findings or not facts.makers:  # where nothing was made, the findings are the outcome
        return None
    left = f"{len(findings)} blocking finding(s)"
    if cycle and len(findings) >= _count(facts, round, cycle=cycle - 1):
        return _hand_on(facts, findings, why=f"{left} after mending, no fewer than before")
    if cycle >= facts.book.rules.remediation_cycles:
        return _hand_on(facts, findings, why=f"{left} after {cycle} cycle(s) of mending")
    return _add_remedies(facts, round, findings, cycle=cycle + 1)


def _count(facts: Facts, round: int, *, cycle: int) -> int:
    results = (step.result for step in facts.reviews(round, cycle=cycle))
    return sum(len(result.blocking) for result in results if result is not None)


def _hand_on(facts: Facts, findings: tuple[Finding, ...], *, why: str) -> Decision:
    sources = {finding.source.key: finding.source for finding in findings}
    return begin_rework(facts, tuple(sources.values()), why=why)


def _add_check(facts: Facts, round: int, *, cycle: int, name: str, why: str) -> Decision:
    before = (*facts.select(round, Phase.REMEDY, cycle=cycle), *facts.select(round, Phase.REPAIR, cycle=cycle))
    step = NewStep(
        key=plan.service_key(round, name, cycle),
        agent=None,
        task=_CHECK,
        phase=Phase.CHECK,
        round=round,
        cycle=cycle,
        depends_on=tuple(step.key for step in before),
    )
    return Decision((AddSteps((step,)),), why)


def _add_repair(facts: Facts, check: StepView, errors: tuple[Finding, ...]) -> Decision:
    agent = max(group_by_owner(errors, facts).items(), key=lambda group: len(group[1]))[0]
    step = NewStep(
        key=plan.service_key(check.round, "repair", check.cycle),
        agent=agent,
        task=task_of(errors, opening="The build fails. Mend exactly this:"),
        phase=Phase.REPAIR,
        round=check.round,
        cycle=check.cycle,
        depends_on=(check.key,),
        context=(check.key,),
        writes=writes_of(agent, facts.book.agents),
    )
    return Decision((AddSteps((step,)),), f"the build failed with {len(errors)} error(s): {agent} mends it once")


def _add_remedies(facts: Facts, round: int, findings: tuple[Finding, ...], *, cycle: int) -> Decision:
    groups = group_by_owner(findings, facts)
    writes = [writes_of(agent, facts.book.agents) for agent in groups]
    names = [plan.service_key(round, f"m{cycle}", "fix", agent) for agent in groups]
    steps = tuple(
        NewStep(
            key=name,
            agent=agent,
            task=task_of(found, opening="Mend what the reviewers found:"),
            phase=Phase.REMEDY,
            round=round,
            cycle=cycle,
            depends_on=tuple(names[before] for before in waits),
            context=tuple(dict.fromkeys(finding.source.key for finding in found)),
            writes=allowed,
        )
        for name, (agent, found), allowed, waits in zip(names, groups.items(), writes, chain_after(writes), strict=True)
    )
    limit = facts.book.rules.remediation_cycles
    why = f"{len(findings)} blocking finding(s): {', '.join(groups)} mend(s), cycle {cycle} of {limit}"
    return Decision((AddSteps(steps),), why)


def _add_reviews(facts: Facts, round: int, *, cycle: int) -> Decision:
    """Let the final reviewers look again, and those that mandatory rules want after the fixes."""
    mended = facts.select(round, Phase.REMEDY, cycle=cycle)
    agents = facts.book.agents
    roles = {agents[step.agent].role for step in mended if step.agent is not None and step.agent in agents}
    reviewers = facts.final_reviews(round)
    again = [(step.key.removeprefix(plan.work_key(round, "")), step.agent, step.writes) for step in reviewers]
    for rule in facts.book.rules.rules.steps:
        if rule.after in roles and rule.agent not in (agent for _, agent, _ in again):
            again.append((f"rule_{rule.agent}", rule.agent, writes_of(rule.agent, facts.book.agents)))
    names = [plan.service_key(round, f"m{cycle}", name) for name, _, _ in again]
    waits = chain_after([writes for _, _, writes in again])
    after = tuple(step.key for step in mended)
    steps = tuple(
        NewStep(
            key=key,
            agent=agent,
            task=_AGAIN,
            phase=Phase.REVIEW,
            round=round,
            cycle=cycle,
            depends_on=(*after, *(names[before] for before in earlier)),
            context=tuple(step.key for step in reviewers if step.state is StepState.COMPLETED),
            writes=writes,
        )
        for key, (_, agent, writes), earlier in zip(names, again, waits, strict=True)
    )
    return Decision((AddSteps(steps),), f"the reviewers look again after cycle {cycle} of mending")
