"""The first page: what waits, what runs, what is spent, and who is waited for. Operators pause queues here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from monitoring.ledger.runway import pause
from producers.console.charts import Bar, bars
from producers.console.web import ConsoleResources, Operator, ViewerDep, go, is_part, render
from producers.fleet_views import Bin, fleet_view
from producers.keys import Scope
from routing.tiers import QueueName

router = APIRouter()


@router.get("/")
def show_fleet(request: Request, resources: ConsoleResources, viewer: ViewerDep) -> Response:
    """Show how the fleet does; the page asks again every two seconds."""
    is_operator = viewer.caller.may(Scope.OPERATE)
    with resources.ledger.begin() as session:
        fleet = fleet_view(session, viewer.caller.tenant, policy=resources.policy, is_operator=is_operator)
    ended = sum(one.good + one.bad + one.other for one in fleet.bins)
    chart = bars([_bar(one) for one in fleet.bins], title=f"{ended} jobs ended in the last three hours")
    template = "parts/fleet.html" if is_part(request) else "fleet.html"
    return render(request, template, viewer=viewer, fleet=fleet, chart=chart, ended=ended, is_operator=is_operator)


def _bar(one: Bin) -> Bar:
    return Bar(one.began.strftime("%H:%M"), (("good", one.good), ("bad", one.bad), ("still", one.other)))


@router.post("/queues/{queue}")
def switch_queue(
    request: Request, resources: ConsoleResources, viewer: Operator, queue: QueueName, paused: Annotated[bool, Form()]
) -> Response:
    """Pause a queue, or let it go on."""
    with resources.ledger.begin() as session:
        pause(session, queue, is_paused=paused)
    return go(request, "/", notice=f"{queue.value} is {'paused' if paused else 'resumed'}.")
