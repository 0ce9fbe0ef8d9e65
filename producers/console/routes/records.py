"""What is on record: limits and budgets, and the audit trail with its check."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy import select
from sqlmodel import col
from starlette.responses import Response

from monitoring import audit
from monitoring.ledger.attempts import effective_policy
from monitoring.ledger.record_tables import AuditRow
from producers.console.web import ConsoleDep, ConsoleResources, Operator, ViewerDep, render
from producers.fleet_views import fleet_view
from producers.keys import Scope
from routing.tiers import TASK_OF_QUEUE

router = APIRouter()
_ROWS = 100


@router.get("/limits")
def show_limits(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """Show the limits of each queue as they hold for the tenant, and how much of its budgets is used."""
    tenant = viewer.caller.tenant
    is_operator = viewer.caller.may(Scope.OPERATE)
    with resources.ledger.begin() as session:
        policy = effective_policy(session, tenant, resources.policy)
        fleet = fleet_view(session, tenant, policy=policy, is_operator=is_operator)
    limits = [(queue.value, policy.queues[queue]) for queue in TASK_OF_QUEUE]
    return render(request, "limits.html", viewer=viewer, limits=limits, policy=policy, budgets=fleet.budgets)


@router.get("/audit")
def show_audit(
    request: Request,
    resources: ConsoleResources,
    viewer: ViewerDep,
    action: Annotated[str, Query(max_length=64)] = "",
    actor: Annotated[str, Query(max_length=200)] = "",
    job: Annotated[str, Query(max_length=36)] = "",
    before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Response:
    """Search the audit trail, newest first: operators all of it, everyone else what concerns their tenant."""
    found = select(AuditRow).order_by(col(AuditRow.seq).desc()).limit(_ROWS + 1)
    if not viewer.caller.may(Scope.OPERATE):
        found = found.where(col(AuditRow.tenant) == viewer.caller.tenant)
    for column, value in ((AuditRow.action, action.strip()), (AuditRow.actor, actor.strip())):
        found = found.where(col(column) == value) if value else found
    found = found.where(col(AuditRow.job_id) == _uuid(job)) if job.strip() else found
    found = found.where(col(AuditRow.seq) < before) if before is not None else found
    with resources.ledger.begin() as session:
        rows = session.scalars(found).all()
    more = rows[_ROWS - 1].seq if len(rows) > _ROWS else None
    wanted = {"action": action, "actor": actor, "job": job}
    return render(request, "audit.html", viewer=viewer, rows=rows[:_ROWS], more=more, wanted=wanted, verdict=None)


def _uuid(text: str) -> UUID:
    """Return the id that was searched for; what is none finds nothing."""
    try:
        return UUID(text.strip())
    except ValueError:
        return UUID(int=0)


@router.post("/audit/verify")
def verify(request: Request, console: ConsoleDep, resources: ConsoleResources, viewer: Operator) -> Response:
    """Check the whole chain, and tell what was found."""
    wanted = {"action": "", "actor": "", "job": ""}
    with resources.ledger.begin() as session:
        verdict = audit.verify(session, signing_key=console.audit_key)
    return render(request, "audit.html", viewer=viewer, rows=[], more=None, wanted=wanted, verdict=verdict)
