"""Carry out the schedule's actions in the caller's transaction, one function per kind of action."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlmodel import Session

from ledger import audit
from ledger.events import EventKind, record
from ledger.job_control import cancel_steps
from ledger.jobs import end, move, wait_on
from ledger.runs.run import RunRows, open_gate, plan_gates, skip_gate
from ledger.runs.steps import StepStart, add_steps, skip_steps, start_step
from ledger.runs.tables import RunStep
from ledger.tables import Job
from routing.estimate import estimate_agents
from routing.jobs import State
from routing.policy.platform import Policy
from routing.policy.prices import NANOUSD_PER_USD
from routing.queues import QueueName
from workers.retries import step_pause
from workers.runs.scheduling.ending import (
    Action,
    AddSteps,
    AdoptPlan,
    CancelSteps,
    EndRun,
    OpenGate,
    Publish,
    SkipGate,
    SkipSteps,
    StartStep,
)

_MAX_FILES = 100
_SUMMARY_CHARACTERS = 2_000


def gate_facts(rows: RunRows, *, after: Sequence[str]) -> dict[str, Any]:
    """Return what a person needs to decide at a gate.

    `after` holds the keys of the steps that precede the gate; empty for all.
    """
    looked_at = [step for step in rows.steps if step.result is not None and (not after or step.key in after)]
    return {
        "ticket": rows.run.ticket.get("title", ""),
        "summaries": {step.key: _summary(step) for step in looked_at},
        "issues": [issue for step in looked_at for issue in (step.result or {}).get("issues", [])],
        "changed": sorted({path for step in rows.steps for path in step.changed})[:_MAX_FILES],
        "spent_nanousd": rows.spent_nanousd,
        "cap_nanousd": rows.cap_nanousd,
        "head": rows.run.head_commit,
    }


def end_facts(rows: RunRows, state: State, record: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a run's owner learns at its end, and what is kept whatever the end.

    `record` is for the person who takes over an escalated run (S-112).
    """
    results = [step.result for step in rows.steps if step.result is not None]
    done = [step.key for step in rows.steps if step.state == "completed"]
    facts: dict[str, Any] = {"kept": {"head": rows.run.head_commit, "base": rows.run.base_commit, "completed": done}}
    answer = next((result["answer"] for result in reversed(results) if result.get("answer")), None)
    if state is State.ANSWERED and answer is not None:
        facts["answer"] = answer
    if summary := next((_summary(step) for step in reversed(rows.steps) if step.phase == "summary"), ""):
        facts["summary"] = summary
    if record is not None:
        context = {"ticket": rows.run.ticket, "plans": rows.run.plans, "head": rows.run.head_commit}
        facts["escalation"] = {**context, **record}
    return facts


def _summary(step: RunStep) -> str:
    return str((step.result or {}).get("summary", ""))[:_SUMMARY_CHARACTERS]


_GATES_PASSED = "policy:gates-passed"
_AT_A_GATE = frozenset({State.REJECTED, State.EXPIRED})
"""Ends that come from a gate: a run that is still working stops at the gate first."""


@dataclass(frozen=True)
class Scene:
    """The context of an action: a held run, and its layers of configuration."""

    session: Session
    job: Job
    rows: RunRows
    policy: Policy
    accounts: Mapping[str, str]
    """The gateway's account that pays, by provider."""


def apply_action(scene: Scene, action: Action) -> None:
    """Carry out one action, except `ScanChanges`: the coordinator scans outside the transaction.

    Raises:
        TypeError: our fault: an action that nothing here carries out would be lost without a word.
    """
    session, job = scene.session, scene.job
    match action:
        case AdoptPlan():
            _adopt(scene, action)
        case AddSteps():
            _add(scene, action)
        case StartStep():
            _start(scene, action)
        case SkipSteps():
            skip_steps(session, job, action.keys, reason=action.why)
        case CancelSteps():
            cancel_steps(session, job, keys=action.keys)
        case OpenGate():
            facts = gate_facts(scene.rows, after=action.gate.after)
            open_gate(session, job, action.gate, hours=scene.policy.runs.gate_hours, facts=facts)
        case SkipGate():
            skip_gate(session, job, key=action.key, why=action.why)
        case Publish():
            _publish(scene)
        case EndRun():
            _end(scene, action)
        case _:
            raise TypeError(f"{type(action).__name__} is not applied here")


def _add(scene: Scene, action: AddSteps) -> None:
    add_steps(scene.session, scene.job, action.steps)
    if action.asked_after:
        plan_gates(scene.session, scene.job, action.asked_after)
        scene.rows.run.scan, scene.rows.run.scan_detail = None, ""


def _adopt(scene: Scene, action: AdoptPlan) -> None:
    run, plan = scene.rows.run, action.plan.model_dump(mode="json")
    adopted = {"round": action.round, "origin": action.origin, "plan": plan, "notes": list(action.notes)}
    run.plans = [*run.plans, adopted]
    if action.round == 0:
        agents = [step.agent for step in action.steps if step.agent is not None]
        run.intent = action.plan.classification
        planned = estimate_agents(scene.policy, agents, is_fix=run.intent == "fix", basis="plan")
        run.estimate = {**run.estimate, "planned": planned}
    scene.session.flush()
    add_steps(scene.session, scene.job, action.steps)
    plan_gates(scene.session, scene.job, action.gates)
    audit.append(
        scene.session,
        "plan_adopted",
        actor="pointsman",
        job=scene.job,
        round=action.round,
        origin=action.origin,
        steps=[step.key for step in action.steps],
    )


def _start(scene: Scene, action: StartStep) -> None:
    step = next(step for step in scene.rows.steps if step.key == action.key)
    agent = scene.policy.agents.get(step.agent) if step.agent is not None else None
    pause = step_pause(scene.policy.pauses.step, tries=step.tries, failure=step.failure)
    start = StepStart(key=action.key, attempt=action.attempt, context=action.context or None, pause_seconds=pause)
    if agent is not None:
        cap = None if agent.step_usd is None else round(agent.step_usd * NANOUSD_PER_USD)
        start = replace(start, model=agent.model, provider=scene.accounts[agent.provider], cap_nanousd=cap)
    start_step(scene.session, scene.job, start)


def _publish(scene: Scene) -> None:
    """Write the approval record of ruling A24 and hand the run to publishing."""
    job = scene.job
    gates = {gate.key: gate.state for gate in scene.rows.gates}
    audit.append(scene.session, "approved", actor=_GATES_PASSED, job=job, gates=gates, head=scene.rows.run.head_commit)
    job.lost_attempts = 0  # publishing is not the work that cost workers before
    move(scene.session, job, State.SCANNING, verdict=scene.rows.run.scan)
    move(scene.session, job, State.PUBLISHING, actor=_GATES_PASSED)
    wait_on(scene.session, job, QueueName.CONTROL)


def _end(scene: Scene, action: EndRun) -> None:
    if action.state in _AT_A_GATE and scene.job.state == State.RUNNING:
        move(scene.session, scene.job, State.AWAITING_APPROVAL)
    facts = end_facts(scene.rows, action.state, action.record)
    end(scene.session, scene.job, action.state, reason=action.reason, detail=action.detail, result=facts)


def record_explanation(scene: Scene, explanation: str) -> None:
    """Record, for people, why the run moves as it does."""
    if explanation != scene.rows.run.explanation:
        scene.rows.run.explanation = explanation
        scene.session.flush()
        record(scene.session, EventKind.PROGRESS, job=scene.job, text=explanation)


Spent = Mapping[str, Sequence[int]]
"""Nanodollars of each completed execution in this run, by agent."""


def expected_nanousd(agent: str | None, policy: Policy, spent: Spent) -> int:
    """Return the probable cost of one more step of an agent.

    The average of its steps in this run; before the first of them, as much of what ordinary work takes at most as other
    agents needed of that; at the start of a run, its share for one call.

    Without an agent it is the project's own build, which calls no model.
    """
    if agent is None or (definition := policy.agents.get(agent)) is None:
        return 0
    if own := spent.get(agent):
        return round(sum(own) / len(own))
    most = sum(_most_nanousd(name, policy) * len(costs) for name, costs in spent.items())
    share = min(1.0, sum(map(sum, spent.values())) / most) if most else 1 / definition.max_turns
    return round(_most_nanousd(agent, policy) * share)


def _most_nanousd(agent: str, policy: Policy) -> float:
    definition = policy.agents.get(agent)
    return definition.expected_usd(policy.prices[definition.model]) * NANOUSD_PER_USD if definition else 0.0


def fits(
    batch: Iterable[str | None], running: Iterable[str | None], *, left_nanousd: int, policy: Policy, spent: Spent
) -> bool:
    """Whether the budget covers a batch (P-038, S-123, S-124; ruling A15).

    The gateway's reservation is the hard limit. This stops a loop earlier, between batches, so that none is cut off
    half-way.
    """
    needed = sum(expected_nanousd(agent, policy, spent) for agent in (*batch, *running))
    return needed <= left_nanousd


def spent_by_agent(executions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group the costs of executions by agent."""
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for agent, cost in executions:
        grouped[agent].append(cost)
    return dict(grouped)
