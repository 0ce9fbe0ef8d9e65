"""Between the work of a round and its acceptance: the build is checked, findings are mended, reviewers look again.

Two bounded loops of ruling A12 live here. A build that fails gets one targeted fix and the same check again (P-031).
Blocking findings get two cycles of mending, and no further one as soon as they do not get fewer (P-023, P-057). What is
left of either is a matter for rework.
"""

from __future__ import annotations

from workers.runs import keys
from workers.runs.actions import AddSteps, Decision
from workers.runs.facts import Facts
from workers.runs.findings import Finding, chain_after, find_blocking, group_by_owner, task_of
from workers.runs.rework import begin_rework
from workers.runs.roles import writes_of
from workers.runs.view import NewStep, Phase, StepState, StepView

_CHECK = "Run the project's build."
_AGAIN = "Look again: what you found should be mended, and nothing else broken."


def decide_check(facts: Facts, round: int, *, cycle: int) -> Decision | None:
    """Return the next move of the build check of a round and cycle, or None once the build is good."""
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
    """Return the next move after the reviews of a round, or None once nothing is left to mend in it."""
    cycle = max((step.cycle for step in facts.select(round, Phase.REMEDY)), default=0)
    if cycle:
        checked = decide_check(facts, round, cycle=cycle)
        if checked is not None:
            return checked
        if not facts.select(round, Phase.REVIEW, cycle=cycle):
            return _add_reviews(facts, round, cycle=cycle)
    findings = find_blocking(facts.reviews(round, cycle=cycle), facts)
    if not findings or not facts.makers:  # where nothing was made, what reviewers found is the outcome
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
        key=keys.service_key(round, name, cycle),
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
        key=keys.service_key(check.round, "repair", check.cycle),
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
    names = [keys.service_key(round, f"m{cycle}", "fix", agent) for agent in groups]
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
    """Let everyone look again who had the last word, and whoever mandatory rules want after what was mended."""
    mended = facts.select(round, Phase.REMEDY, cycle=cycle)
    agents = facts.book.agents
    roles = {agents[step.agent].role for step in mended if step.agent is not None and step.agent in agents}
    reviewers = facts.final_reviews(round)
    again = [(step.key.removeprefix(keys.work_key(round, "")), step.agent, step.writes) for step in reviewers]
    for rule in facts.book.rules.rules.steps:
        if rule.after in roles and rule.agent not in (agent for _, agent, _ in again):
            again.append((f"rule_{rule.agent}", rule.agent, writes_of(rule.agent, facts.book.agents)))
    names = [keys.service_key(round, f"m{cycle}", name) for name, _, _ in again]
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
