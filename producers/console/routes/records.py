"""What is on record: limits and budgets, and the audit trail with its check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy import func, select
from sqlmodel import Session, col
from starlette.responses import Response

from monitoring import audit_chain
from monitoring.ledger.attempts import effective_policy
from monitoring.ledger.record_tables import AuditRow
from producers.console.routes.fleet import spend_chart
from producers.console.web import ConsoleDep, ConsoleResources, Operator, Viewer, ViewerDep, render
from producers.keys import Scope
from producers.spend_views import budgets_today
from routing.queues import QUEUES

router = APIRouter()
_ROWS = 60
_LOOKED_AT = 200_000
"""How many rows back a search goes from where it begins: there is no index on actors and actions."""
_MOST_VERIFIED = 300_000
"""A longer chain is verified by the command, which nobody's browser waits for."""


@router.get("/limits")
def show_limits(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """Show the limits of each queue as they hold for the tenant, and how much of its budgets is used."""
    tenant, is_operator = viewer.caller.tenant, viewer.caller.may(Scope.OPERATE)
    with resources.ledger.begin() as session:
        policy = effective_policy(session, tenant, resources.policy)
        budgets = budgets_today(session, tenant, policy=policy, is_operator=is_operator)
        chart = spend_chart(session, tenant)
    limits = [(queue.value, policy.queues[queue], resources.policy.queues[queue]) for queue in QUEUES]
    return render(request, "limits.html", viewer=viewer, limits=limits, policy=policy, budgets=budgets, chart=chart)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which rows of the audit trail are asked for."""

    action: str = ""
    actor: str = ""
    job: str = ""
    before: int | None = None


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
    wanted = Wanted(action=action.strip(), actor=actor.strip(), job=job.strip(), before=before)
    with resources.ledger.begin() as session:
        page = _search(session, viewer, wanted)
    return render(request, "audit.html", viewer=viewer, wanted=wanted, page=page, verdict=None, refusal="")


class AuditPage(NamedTuple):
    """Some rows of the trail, newest first."""

    rows: Sequence[AuditRow]
    following: int | None
    """Older rows lie below this one; None when there are none."""
    is_cut: bool
    """The search ended before it had a page full: it goes on below."""


def _search(session: Session, viewer: Viewer, wanted: Wanted) -> AuditPage:
    end = wanted.before if wanted.before is not None else (session.scalar(select(func.max(AuditRow.seq))) or 0) + 1
    found = select(AuditRow).where(col(AuditRow.seq) < end).order_by(col(AuditRow.seq).desc()).limit(_ROWS + 1)
    if not viewer.caller.may(Scope.OPERATE):
        found = found.where(col(AuditRow.tenant) == viewer.caller.tenant)
    if wanted.action:
        found = found.where(col(AuditRow.action) == wanted.action.lower().replace(" ", "_"))
    if wanted.actor:
        found = found.where(col(AuditRow.actor) == wanted.actor)
    floor = 0
    if wanted.job:
        found = found.where(col(AuditRow.job_id) == _uuid(wanted.job))
    else:
        floor = end - _LOOKED_AT
        found = found.where(col(AuditRow.seq) >= floor)
    rows = session.scalars(found).all()
    if len(rows) > _ROWS:
        return AuditPage(rows[:_ROWS], rows[_ROWS - 1].seq, is_cut=False)
    is_cut = session.scalars(select(col(AuditRow.seq)).where(col(AuditRow.seq) < floor).limit(1)).first() is not None
    return AuditPage(rows, floor if is_cut else None, is_cut)


def _uuid(text: str) -> UUID:
    """Return the id that was searched for; what is none finds nothing."""
    try:
        return UUID(text)
    except ValueError:
        return UUID(int=0)


@router.post("/audit/verify")
def verify(request: Request, console: ConsoleDep, resources: ConsoleResources, viewer: Operator) -> Response:
    """Check the whole chain, and tell what was found."""
    verdict, refusal = None, ""
    with resources.ledger.begin() as session:
        some = select(col(AuditRow.seq)).limit(_MOST_VERIFIED + 1).subquery()
        size = session.scalar(select(func.count()).select_from(some)) or 0
        if not console.audit_key:
            refusal = "This process does not hold the audit key; use the command where it is: pointsman audit verify."
        elif size > _MOST_VERIFIED:
            refusal = f"The trail has more than {_MOST_VERIFIED:,} rows, too many for a page: pointsman audit verify."
        else:
            verdict = audit_chain.verify(session, signing_key=console.audit_key)
        page = _search(session, viewer, Wanted())
    return render(
        request, "audit.html", viewer=viewer, wanted=Wanted(), page=page, verdict=verdict, refusal=refusal
    )  # fmt: skip
