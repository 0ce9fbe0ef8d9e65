"""The first page: what waits, what runs, what is spent, and who is waited for. Operators pause queues here."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from markupsafe import Markup
from sqlmodel import Session
from starlette.responses import Response

from monitoring.ledger.attempts import effective_policy
from producers.console.charts import Bar, bars
from producers.console.shown import cents, plural
from producers.console.web import ConsoleResources, Operator, Viewer, ViewerDep, go, is_part, render
from producers.fleet import ended_lately, fleet_view
from producers.keys import Scope
from producers.spend_views import budgets_today, spent_by_day
from producers.tenants import pause_queue
from routing.queues import QueueName

router = APIRouter()


@router.get("/")
def show_fleet(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """Show how the fleet does; the page asks again every two seconds."""
    tenant, is_operator = viewer.caller.tenant, viewer.caller.may(Scope.OPERATE)
    with resources.ledger.begin() as session:
        policy = effective_policy(session, tenant, resources.policy)
        facts: dict[str, Any] = {
            "fleet": fleet_view(session, tenant, policy=policy, is_operator=is_operator),
            "budgets": budgets_today(session, tenant, policy=policy, is_operator=is_operator),
        }
        if not is_part(request):
            facts |= charts_of(session, viewer)
    template = "parts/fleet.html" if is_part(request) else "fleet.html"
    return render(request, template, viewer=viewer, is_operator=is_operator, **facts)


@router.get("/charts")
def show_charts(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """Return the first page's charts anew: they look further back than its numbers, and change more slowly."""
    with resources.ledger.begin() as session:
        charts = charts_of(session, viewer)
    if not is_part(request):
        return go(request, "/")
    return render(request, "parts/charts.html", viewer=viewer, **charts)


def charts_of(session: Session, viewer: Viewer) -> dict[str, Any]:
    """Return the charts of what ended lately and of what the last days cost."""
    whose = None if viewer.caller.may(Scope.OPERATE) else viewer.caller.tenant
    return {"ended_chart": _ended(session, whose), "spend_chart": spend_chart(session, whose)}


def _ended(session: Session, tenant: str | None) -> Markup:
    found = ended_lately(session, tenant)
    total = sum(one.good + one.bad + one.other for one in found)
    pieces = []
    for one in found:
        counts = ((one.good, "done"), (one.bad, "failed"), (one.other, "rejected, expired or cancelled"))
        words = ", ".join(f"{count} {name}" for count, name in counts if count) or "nothing ended"
        parts = (("good", one.good), ("bad", one.bad), ("still", one.other))
        pieces.append(Bar(one.began.strftime("%H:%M"), parts, words))
    top = max((one.good + one.bad + one.other for one in found), default=0)
    return bars(pieces, title=f"{plural(total, 'job')} ended in the last three hours", top_label=plural(top, "job"))


def spend_chart(session: Session, tenant: str | None) -> Markup:
    """Return the chart of what the last days cost."""
    days = spent_by_day(session, tenant)
    pieces = [Bar(f"{one.day:%d %b}", (("money", one.spent_nanousd),), cents(one.spent_nanousd)) for one in days]
    total, top = sum(one.spent_nanousd for one in days), max(one.spent_nanousd for one in days)
    return bars(pieces, title=f"{cents(total)} spent in {len(days)} days", top_label=cents(top))


@router.post("/queues/{queue}")
def switch_queue(
    request: Request, resources: ConsoleResources, viewer: Operator, queue: QueueName, paused: Annotated[bool, Form()]
) -> Response:
    """Pause a queue, or let it go on."""
    word = "paused" if paused else "resumed"
    with resources.ledger.begin() as session:
        pause_queue(session, queue, is_paused=paused, actor=viewer.caller.actor)
    return go(request, "/", notice=f"{queue.value} is {word}.")
