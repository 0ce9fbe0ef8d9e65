"""Work by hand at a gate: who had a shell in the run's workspace, what was shown there, and what it changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import select
from sqlmodel import Session, col

from ledger import audit
from ledger.errors import NoOpenGateError
from ledger.events import EventKind, record
from ledger.jobs import lock_job
from ledger.runs.run import find_run, plan_gates
from ledger.runs.specs import AGAIN, GateKind, NewGate
from ledger.runs.steps import has_live_attempt
from ledger.runs.tables import Gate, Project, Run
from ledger.store import after
from ledger.tables import Job
from routing.jobs import State
from routing.redaction import redact_all

TERMINAL = "cli"
"""The actor of whoever decides gates at a terminal beside the ledger, under no name of their own."""
OPEN_SHELLS = "open_shells"
"""Of a gate's facts: who has a shell there, and until when at most. One that was killed stays until then."""


class ShellOrder(NamedTuple):
    """What a shell at a gate begins with."""

    run_id: UUID
    workspace_id: UUID
    gate_id: UUID
    gate: str
    until: str
    """When it is over at the latest, as in the gate's facts."""
    head: str
    project_config: Mapping[str, Any]
    project_image: str | None


def begin_shell(session: Session, run_id: UUID, *, tenant: str, actor: str, seconds: float) -> ShellOrder:
    """Put on record that somebody opens a shell at a run's open gate, for so many seconds at most.

    Raises:
        JobNotFoundError: the caller's fault: there is no such run of this tenant.
        NoOpenGateError: the caller's fault: it waits for nobody, or has no work yet.
    """
    job, run = find_run(session, run_id, tenant=tenant)
    waiting = select(Gate).where(col(Gate.run_id) == run_id, col(Gate.state) == "open").order_by(col(Gate.position))
    gate = session.scalars(waiting.limit(1)).first()
    if gate is None or run.head_commit is None or job.state != State.AWAITING_APPROVAL:
        raise NoOpenGateError(run_id)
    session.refresh(gate, with_for_update=True)
    until = session.scalars(select(after(seconds))).one().isoformat()
    gate.facts = {**gate.facts, OPEN_SHELLS: [*gate.facts.get(OPEN_SHELLS, ()), {"by": actor, "until": until}]}
    session.flush()
    audit.append(session, "gate_shell_opened", actor=actor, job=job, gate=gate.key, head=run.head_commit)
    project = session.get_one(Project, run.project_id)
    image = project.image["id"] if project.image else None
    return ShellOrder(run_id, run.workspace, gate.id, gate.key, until, run.head_commit, project.config, image)


def end_shell(
    session: Session, order: ShellOrder, *, actor: str, facts: Mapping[str, Any], merge: Callable[[str], str] | None
) -> bool:
    """Record a shell's end at its gate and, if `merge` is given, move the run's head by it.

    For that the gate must still be open and no worker hold the run: a head that is moved under an advance would be
    lost. What is changed is scanned anew, and whoever decides at the run's other gates is asked about it, too. An end
    is recorded once, even if the reply of its commit was lost and it is told again.

    Returns:
        False if the run goes on already: the head stays, and the shell is on record all the same.
    """
    job = lock_job(session, order.run_id)
    gate = session.get_one(Gate, order.gate_id, populate_existing=True, with_for_update=True)
    for shell in gate.facts.get("shells", ()):
        if (shell["by"], shell.get("until")) == (actor, order.until):
            return shell["is_changed"] or merge is None
    run = session.get_one(Run, order.run_id, populate_existing=True)
    is_open = gate.state == "open" and job.state == State.AWAITING_APPROVAL and not has_live_attempt(session, job)
    is_changed = merge is not None and is_open and run.head_commit is not None
    if is_changed:
        assert merge is not None
        run.head_commit = merge(run.head_commit or "")
        run.scan, run.scan_detail = None, ""
    shell = {"by": actor, "terminal": TERMINAL, "until": order.until, "is_changed": is_changed, **facts}
    shell["commit"] = run.head_commit if is_changed else None
    head = run.head_commit if is_changed else gate.facts.get("head")
    shells, still_open = gate.facts.get("shells", ()), gate.facts.get(OPEN_SHELLS, ())
    facts = {**gate.facts, "head": head, "shells": [*shells, shell]}
    facts[OPEN_SHELLS] = [one for one in still_open if (one["by"], one["until"]) != (actor, order.until)]
    gate.facts = redact_all(facts)
    session.flush()
    if is_changed:
        _ask_about(session, job, head=head)
    shown = {name: value for name, value in shell.items() if name not in ("said", "terminal", "until")}
    record(session, EventKind.GATE, job=job, gate=gate.key, gate_id=str(gate.id), state=gate.state, shell=shown)
    audit.append(session, "gate_shell", actor=actor, job=job, gate=gate.key, shell=shown)
    return is_changed or merge is None


def _ask_about(session: Session, job: Job, *, head: str | None) -> None:
    """Let a run's open gates be about the work as it is now, and ask those again that were passed before it."""
    for gate in session.scalars(select(Gate).where(col(Gate.run_id) == job.id).with_for_update()).all():
        if gate.state == "open":
            gate.facts = {**gate.facts, "head": head}
        elif gate.state == "passed" and not gate.after:
            plan_gates(session, job, [NewGate(f"{gate.key}{AGAIN}", GateKind(gate.kind), gate.reason)])
    session.flush()
