"""A run's rows as the values that its schedule decides from: a translation, and no decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monitoring.ledger.run_tables import Gate, RunStep
from monitoring.ledger.runs import RunRows
from routing.jobs import Reason, State
from routing.router import Intent, Mode
from workers.runs.results import AgentResult
from workers.runs.view import GateKind, GateState, GateView, Phase, RunView, StepState, StepView


def view_of(rows: RunRows, *, has_build: bool, budget_spent: bool) -> RunView:
    """Return a run as its schedule sees it.

    Args:
        rows: as they stand in this transaction.
        has_build: the project has a build of its own.
        budget_spent: nothing more fits what is left of the run's cap.
    """
    job, run = rows.job, rows.run
    return RunView(
        state=State(job.state),
        intent=known_intent(job.route),
        read_only=job.route.get("mode") == Mode.ACTION and bool(job.route.get("read_only")),
        priority=job.priority,  # type: ignore[arg-type]
        labels=tuple(run.ticket.get("labels", ())),
        high_stakes=job.route.get("stakes") == "high",
        has_build=has_build,
        budget_spent=budget_spent,
        cancel_requested=job.cancel_requested_at is not None,
        scan=run.scan,  # type: ignore[arg-type]
        scan_detail=run.scan_detail,
        steps=tuple(_step(step, rows) for step in rows.steps),
        gates=tuple(_gate(gate) for gate in rows.gates),
    )


def known_intent(route: Mapping[str, Any]) -> Intent | None:
    """Return what the rules could tell of a ticket's intent: talk is a question, words of repair a fix (ruling A5).

    What is neither is asked of the classifier, which chooses between build and fix only.
    """
    intent = Intent(str(route.get("intent", Intent.BUILD)))
    return None if intent is Intent.BUILD else intent


def _step(step: RunStep, rows: RunRows) -> StepView:
    state = StepState(step.state)
    return StepView(
        key=step.key,
        agent=step.agent,
        task=step.task,
        phase=Phase(step.phase),
        round=step.round,
        cycle=step.cycle,
        depends_on=tuple(step.depends_on),
        context=tuple(step.context),
        writes=tuple(step.writes),
        state=state,
        tries=step.tries,
        result=AgentResult.model_validate(step.result) if step.result is not None else None,
        failure=Reason(step.failure) if step.failure else None,
        detail=step.detail or "",
        changed=tuple(step.changed),
        cancelling=step.key in rows.cancelling,
    )


def _gate(gate: Gate) -> GateView:
    return GateView(
        key=gate.key, kind=GateKind(gate.kind), reason=gate.reason, after=tuple(gate.after), state=GateState(gate.state)
    )
