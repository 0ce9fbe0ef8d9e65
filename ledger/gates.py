"""Gates: points at which a run waits for a person, and nobody else (seed 001 ADR-010, ruling A24).

A gate that waits holds no worker. Whoever passes it or fails it, the run's own advance says what that means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import select
from sqlmodel import Session, col

from ledger import audit
from ledger.attempts import effective_policy
from ledger.errors import GateNotFoundError, GateRefusedError
from ledger.events import EventKind, record
from ledger.jobs import lock_job, move
from ledger.run_tables import Gate, Run
from ledger.sql import after as in_future
from ledger.sql import moment, now, storable
from ledger.step_ends import AT_GATE, owe_note
from ledger.steps import GateSpec, wake_run
from ledger.tables import Job
from routing.jobs import State
from routing.policy.platform import Policy

POLICY_ACTOR = "policy:autonomy"

Verdict = Literal["passed", "failed"]


def plan_gates(session: Session, job: Job, gates: Sequence[GateSpec]) -> None:
    """Put on record which gates a held run will come to. One that is known already stays as it is."""
    known = set(session.scalars(select(col(Gate.key)).where(col(Gate.run_id) == job.id)))
    for spec in gates:
        if spec.key not in known:
            session.add(
                Gate(
                    run_id=job.id,
                    key=spec.key,
                    kind=spec.kind,
                    reason=storable(spec.reason),
                    after=list(spec.after),
                    position=len(known),
                )
            )
            known.add(spec.key)
    session.flush()


def open_gate(
    session: Session, job: Job, spec: GateSpec, *, hours: float, facts: Mapping[str, Any] | None = None
) -> Gate:
    """Open a gate of a held run, planned or not; one that was opened before stays as it is.

    Args:
        session: the caller's transaction.
        job: the run's job.
        spec: the gate.
        hours: how long it stays open.
        facts: what a person needs to decide.
    """
    plan_gates(session, job, [spec])
    gate = _find(session, job, spec.key)
    if gate.state == "planned":
        gate.state = "open"
        gate.facts = dict(facts or {})
        gate.opened_at = now()  # type: ignore[assignment]
        gate.expires_at = in_future(hours * 3600)  # type: ignore[assignment]
        session.flush()
        _tell(session, job, gate)
        owe_note(session, session.get_one(Run, job.id), f"{AT_GATE}{gate.key}")
    return gate


def skip_gate(session: Session, job: Job, *, key: str, why: str) -> None:
    """Put on record that an optional gate was skipped, as the project's autonomy allows (S-104)."""
    gate = _find(session, job, key)
    if gate.state == "planned":
        _mark(session, job, gate, "skipped", actor=POLICY_ACTOR, note=why)


def decide_gate(
    session: Session,
    gate_id: UUID,
    verdict: Verdict,
    *,
    actor: str,
    policy: Policy,
    note: str = "",
    tenant: str | None = None,
) -> Job:
    """Pass a gate or fail it, as a person, and let the run go on from there.

    Args:
        session: the caller's transaction.
        gate_id: the gate.
        verdict: what the person says.
        actor: who says it.
        policy: the platform's; where it wants four eyes, nobody passes a gate of a run that they asked for.
        note: why, in words.
        tenant: if given, the only tenant whose gate it may be.

    Raises:
        GateNotFoundError: the caller's fault.
        GateRefusedError: the caller's fault, or nobody's: it is over.
        PolicyError: the operator's fault: the tenant's overrides do not fit.
    """
    job, gate = _locked(session, gate_id, tenant=tenant)
    if gate.state != "open" or job.ended_at is not None or job.cancel_requested_at is not None:
        raise GateRefusedError(gate.id, "decided")
    if session.scalar(select(col(Gate.expires_at) < now()).where(col(Gate.id) == gate.id)):
        raise GateRefusedError(gate.id, "expired")
    rules = effective_policy(session, job.tenant, policy).approval
    if verdict == "passed" and not rules.requester_may_approve and actor == job.requested_by:
        raise GateRefusedError(gate.id, "own_request")
    _mark(session, job, gate, verdict, actor=actor, note=note)
    _go_on(session, job, actor=actor)
    return job


def expire_gate(session: Session, gate_id: UUID) -> None:
    """Close a gate that nobody decided in time: that counts as a refusal (A16)."""
    job, gate = _locked(session, gate_id)
    is_late = session.scalar(select(col(Gate.expires_at) < now()).where(col(Gate.id) == gate.id))
    if gate.state != "open" or not is_late:
        return
    _mark(session, job, gate, "expired", actor="pointsman")
    _go_on(session, job, actor="pointsman")


def overdue_gates(session: Session, *, limit: int = 100) -> Sequence[UUID]:
    """Return the open gates that nobody decided in time."""
    overdue = select(col(Gate.id)).where(col(Gate.state) == "open", col(Gate.expires_at) < moment())
    return session.scalars(overdue.order_by(col(Gate.expires_at)).limit(limit)).all()


def open_gates(session: Session, tenant: str, *, limit: int = 200) -> Sequence[Gate]:
    """Return the gates of a tenant's runs that wait for a person, the oldest first."""
    waiting = select(Gate).join(Job, col(Job.id) == col(Gate.run_id)).where(col(Gate.state) == "open")
    return session.scalars(waiting.where(col(Job.tenant) == tenant).order_by(col(Gate.opened_at)).limit(limit)).all()


def find_gate(session: Session, gate_id: UUID) -> Gate:
    """Return a gate.

    Raises:
        GateNotFoundError: the caller's fault.
    """
    gate = session.get(Gate, gate_id, populate_existing=True)
    if gate is None:
        raise GateNotFoundError(gate_id)
    return gate


def _find(session: Session, job: Job, key: str) -> Gate:
    return session.scalars(
        select(Gate).where(col(Gate.run_id) == job.id, col(Gate.key) == key),
        execution_options={"populate_existing": True},
    ).one()


def _locked(session: Session, gate_id: UUID, *, tenant: str | None = None) -> tuple[Job, Gate]:
    run_id = session.scalar(select(col(Gate.run_id)).where(col(Gate.id) == gate_id))
    if run_id is None:
        raise GateNotFoundError(gate_id)
    job = lock_job(session, run_id)
    if tenant is not None and job.tenant != tenant:
        raise GateNotFoundError(gate_id)
    return job, session.get_one(Gate, gate_id, populate_existing=True)


def _mark(session: Session, job: Job, gate: Gate, state: str, *, actor: str, note: str = "") -> None:
    gate.state = state
    gate.actor = actor
    gate.note = storable(note)
    gate.decided_at = now()  # type: ignore[assignment]
    session.flush()
    _tell(session, job, gate, actor=actor)
    audit.append(session, f"gate_{state}", actor=actor, job=job, gate=gate.key, kind=gate.kind, note=storable(note))


def _go_on(session: Session, job: Job, *, actor: str) -> None:
    """Let the run's schedule say what a decision means."""
    if job.state == State.AWAITING_APPROVAL:
        move(session, job, State.RUNNING, actor=actor)
    wake_run(session, job)


def _tell(session: Session, job: Job, gate: Gate, **data: Any) -> None:
    record(
        session,
        EventKind.GATE,
        job=job,
        gate=gate.key,
        gate_id=str(gate.id),
        gate_kind=gate.kind,
        state=gate.state,
        after=gate.after,
        reason=gate.reason,
        **data,
    )
