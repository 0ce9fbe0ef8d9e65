"""Runs of the ticket lane: the live graph of a run's steps, its plan and bill, and its gates."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Form, Request
from sqlalchemy import select
from sqlmodel import col
from starlette.responses import Response

from monitoring.ledger.gates import decide_gate, open_gates
from monitoring.ledger.run_tables import Run
from monitoring.ledger.tables import Job
from producers.console.charts import Node, graph
from producers.console.routes.jobs import REFUSALS
from producers.console.shown import tone, words
from producers.console.web import Approver, ConsoleResources, ViewerDep, go, is_part, render, told
from producers.jobs import summarise
from producers.runs import RunView, StepTreeView, describe_run, gate_view

router = APIRouter()
_SHOWN = 50


@router.get("/runs")
def show_runs(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """List the newest runs and the gates that wait."""
    tenant = viewer.caller.tenant
    newest = select(Job).join(Run, col(Run.job_id) == col(Job.id)).where(col(Job.tenant) == tenant)
    with resources.ledger.begin() as session:
        runs = summarise(session, session.scalars(newest.order_by(col(Job.created_at).desc()).limit(_SHOWN)).all())
        gates = [gate_view(gate) for gate in open_gates(session, tenant)]
    return render(request, "runs.html", viewer=viewer, runs=runs, gates=gates)


@router.get("/runs/{run_id}")
def show_run(request: Request, resources: ConsoleResources, viewer: ViewerDep, run_id: UUID) -> Response:
    """Show a run as it stands; the page asks again while it is under way."""
    with resources.ledger.begin() as session:
        run = describe_run(session, run_id, tenant=viewer.caller.tenant)
    template = "parts/run.html" if is_part(request) else "run.html"
    return render(request, template, viewer=viewer, run=run, picture=_picture(run))


def _picture(run: RunView) -> str:
    done = sum(step.state == "done" for step in run.steps)
    return graph([_node(step) for step in run.steps], title=f"{done} of {len(run.steps)} steps are done")


def _node(step: StepTreeView) -> Node:
    note = words(step.state) if step.tries <= 1 else f"{words(step.state)}, try {step.tries}"
    return Node(step.key, step.key, note, tone(step.state), step.depends_on)


@router.post("/gates/{gate_id}")
def decide(
    request: Request,
    resources: ConsoleResources,
    viewer: Approver,
    gate_id: UUID,
    run_id: Annotated[UUID, Form()],
    verdict: Annotated[Literal["passed", "failed"], Form()],
    reason: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Let a run go on behind a gate, or stop it there."""
    try:
        with resources.ledger.begin() as session:
            decide_gate(
                session, gate_id, verdict, actor=viewer.caller.actor, policy=resources.policy, note=reason.strip(),
                tenant=viewer.caller.tenant,
            )  # fmt: skip
    except REFUSALS as error:
        return go(request, f"/runs/{run_id}", notice=told(error), is_error=True)
    return go(request, f"/runs/{run_id}", notice=f"The gate is {verdict}.")
