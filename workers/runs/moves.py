"""Carry out what the schedule decided, in the transaction of its caller: one function for each kind of action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlmodel import Session

from monitoring.ledger import audit
from monitoring.ledger.cancelling import cancel_steps
from monitoring.ledger.events import EventKind, record
from monitoring.ledger.gates import open_gate, plan_gates, skip_gate
from monitoring.ledger.jobs import end, move, wait_on
from monitoring.ledger.runs import RunChange, RunRows, change_run
from monitoring.ledger.steps import GateSpec, StepSpec, StepStart, add_steps, skip_steps, start_steps
from monitoring.ledger.tables import Job
from routing.jobs import State
from routing.policy import Policy
from routing.prices import NANOUSD_PER_USD
from routing.queues import QueueName
from routing.run_estimate import estimate_agents
from workers.retries import step_pause
from workers.runs.actions import (
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
from workers.runs.story import end_facts, gate_facts
from workers.runs.view import NewGate, NewStep

_AT_A_GATE = frozenset({State.REJECTED, State.EXPIRED})
"""Ends that come from a gate: a run that goes on working beside it stops there first."""


@dataclass(frozen=True)
class Scene:
    """What actions are carried out on: a held run, and the layers of the configuration as they hold for it."""

    session: Session
    job: Job
    rows: RunRows
    policy: Policy
    accounts: Mapping[str, str]
    """The gateway's account that pays, by provider."""


def carry_out(scene: Scene, action: Action) -> None:
    """Carry out one action of a decision."""
    _DOING[type(action)](scene, action)


def _adopt(scene: Scene, action: AdoptPlan) -> None:
    plan = action.plan.model_dump(mode="json")
    adopted = {"round": action.round, "origin": action.origin, "plan": plan, "notes": list(action.notes)}
    change = RunChange(plan=adopted, **(_first_plan(scene, action) if action.round == 0 else {}))
    change_run(scene.session, scene.rows.run, change)
    add_steps(scene.session, scene.job, [_spec(step) for step in action.steps])
    plan_gates(scene.session, scene.job, [_gate_spec(gate) for gate in action.gates])
    audit.append(
        scene.session, "plan_adopted", actor="pointsman", job=scene.job, round=action.round, origin=action.origin,
        steps=[step.key for step in action.steps],
    )  # fmt: skip


def _first_plan(scene: Scene, action: AdoptPlan) -> dict[str, Any]:
    agents = [step.agent for step in action.steps if step.agent is not None]
    is_fix = action.plan.classification == "fix"
    planned = estimate_agents(scene.policy, agents, is_fix=is_fix, basis="plan")
    return {"intent": action.plan.classification, "estimate": {**scene.rows.run.estimate, "planned": planned}}


def _add(scene: Scene, action: AddSteps) -> None:
    add_steps(scene.session, scene.job, [_spec(step) for step in action.steps])


def _start(scene: Scene, action: StartStep) -> None:
    step = next(step for step in scene.rows.steps if step.key == action.key)
    agent = scene.policy.agents.get(step.agent) if step.agent is not None else None
    pause = step_pause(scene.policy.pauses.step, tries=step.tries, failure=step.failure)
    start = StepStart(
        key=action.key, attempt=action.attempt, context=action.context or None, pause_seconds=pause
    )  # fmt: skip
    if agent is not None:
        cap = None if agent.step_usd is None else round(agent.step_usd * NANOUSD_PER_USD)
        start = replace(start, model=agent.model, provider=scene.accounts[agent.provider], cap_nanousd=cap)
    start_steps(scene.session, scene.job, [start])


def _skip(scene: Scene, action: SkipSteps) -> None:
    skip_steps(scene.session, scene.job, action.keys, reason=action.why)


def _cancel(scene: Scene, action: CancelSteps) -> None:
    cancel_steps(scene.session, scene.job, keys=action.keys)


def _open(scene: Scene, action: OpenGate) -> None:
    facts = gate_facts(scene.rows, after=action.gate.after)
    open_gate(scene.session, scene.job, _gate_spec(action.gate), hours=scene.policy.runs.gate_hours, facts=facts)


def _skip_gate(scene: Scene, action: SkipGate) -> None:
    skip_gate(scene.session, scene.job, key=action.key, why=action.why)


def _publish(scene: Scene, action: Publish) -> None:
    """Write the approval record of ruling A24 and hand the run to publishing."""
    job = scene.job
    gates = {gate.key: gate.state for gate in scene.rows.gates}
    audit.append(
        scene.session, "approved", actor=action.approved_by, job=job, gates=gates, head=scene.rows.run.head_commit
    )  # fmt: skip
    job.lost_attempts = 0  # publishing is other work than what may have cost workers before
    move(scene.session, job, State.SCANNING, verdict=scene.rows.run.scan)
    move(scene.session, job, State.PUBLISHING, actor=action.approved_by)
    wait_on(scene.session, job, QueueName.CONTROL)


def _end(scene: Scene, action: EndRun) -> None:
    if action.state in _AT_A_GATE and scene.job.state == State.RUNNING:
        move(scene.session, scene.job, State.AWAITING_APPROVAL)
    facts = end_facts(scene.rows, action.state, action.record)
    end(scene.session, scene.job, action.state, reason=action.reason, detail=action.detail, result=facts)


def _spec(step: NewStep) -> StepSpec:
    return StepSpec(
        key=step.key, agent=step.agent, phase=step.phase.value, task=step.task, round=step.round, cycle=step.cycle,
        context=step.context, writes=step.writes, depends_on=step.depends_on,
    )  # fmt: skip


def _gate_spec(gate: NewGate) -> GateSpec:
    return GateSpec(key=gate.key, kind=gate.kind.value, reason=gate.reason, after=gate.after)


_DOING: Mapping[type, Callable[[Scene, Any], None]] = {
    AdoptPlan: _adopt,
    AddSteps: _add,
    StartStep: _start,
    SkipSteps: _skip,
    CancelSteps: _cancel,
    OpenGate: _open,
    SkipGate: _skip_gate,
    Publish: _publish,
    EndRun: _end,
}


def tell_move(scene: Scene, explanation: str) -> None:
    """Put on record, for people, why the run moves as it does."""
    if explanation != scene.rows.run.explanation:
        change_run(scene.session, scene.rows.run, RunChange(explanation=explanation))
        record(scene.session, EventKind.PROGRESS, job=scene.job, text=explanation)
