"""What a step's worker reads and writes of its step: the order before, the report after, both under its own claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy import update as sql_update
from sqlmodel import Session, col

from monitoring.ledger.jobs import end
from monitoring.ledger.run_tables import AgentExecution, Project, Run, RunStep
from monitoring.ledger.run_values import StepOrder, StepReport
from monitoring.ledger.tables import Job
from routing.jobs import Reason, State
from routing.redaction import redact_all


def step_order(session: Session, job: Job) -> StepOrder:
    """Return what is to be done in the execution whose job this is."""
    execution = session.get_one(AgentExecution, job.id)
    step = session.get_one(RunStep, (execution.run_id, execution.step_key))
    run = session.get_one(Run, execution.run_id)
    project = session.get_one(Project, run.project_id)
    return StepOrder(
        run_id=run.job_id, key=step.key, attempt=execution.attempt, agent=step.agent, phase=step.phase,
        round=step.round, cycle=step.cycle, task=step.task, context=tuple(step.context), writes=tuple(step.writes),
        depends_on=tuple(step.depends_on), base_commit=execution.base_commit, model=execution.model,
        provider=execution.provider, cap_nanousd=execution.cap_nanousd, intent=run.intent, ticket=run.ticket,
        project=project.name, project_config=project.config,
        results=_results(session, step, [*step.depends_on, *step.context]),
    )  # fmt: skip


def _results(session: Session, step: RunStep, keys: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    found = session.scalars(
        select(RunStep)
        .where(col(RunStep.run_id) == step.run_id, col(RunStep.key).in_(keys), col(RunStep.state) == "completed")
        .order_by(col(RunStep.position))
    )
    return {row.key: row.result or {} for row in found}


def settle_step(session: Session, job: Job, report: StepReport, *, known_keys: tuple[str, ...] = ()) -> None:
    """End a held execution that completed, with what it leaves. Failures end through the lifecycle like any job's.

    Args:
        session: the transaction that also closes the attempt.
        job: the execution's job, held by its attempt.
        report: what it leaves. Secrets in it are taken out before anything is stored (S-084).
        known_keys: values of this installation's keys.
    """
    session.execute(
        sql_update(AgentExecution)
        .where(col(AgentExecution.job_id) == job.id)
        .values(
            result=redact_all(report.result, known=known_keys), base_commit=report.base, commit=report.commit,
            changed=redact_all(report.changed, known=known_keys), dropped=redact_all(report.dropped, known=known_keys),
        )
    )  # fmt: skip
    end(session, job, State.ANSWERED, reason=Reason.DONE)
