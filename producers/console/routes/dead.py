"""Dead letters: what ended as nobody wanted, by what it has in common; replayed or laid to rest, many at once."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Form, Path, Query, Request
from starlette.responses import Response

from monitoring.errors import ClusterNotFoundError
from producers.api.resources import asker_of
from producers.console.web import REFUSALS, ConsoleResources, Submitter, ViewerDep, go, render, told
from producers.dead_letters import DeadLetterOrder, ReplayOrder
from routing.jobs import parse_as

router = APIRouter(prefix="/dead")

ClusterName = Annotated[str, Path(pattern="^[0-9a-f]{10}$")]
Ids = Annotated[list[UUID] | None, Form()]
Signature = Annotated[str, Form(max_length=400)]
Cursor = Annotated[str | None, Query(max_length=2000)]
_PAGE = 100


@router.get("")
def show_clusters(request: Request, resources: ConsoleResources, viewer: ViewerDep, cursor: Cursor = None) -> Response:
    """Show what dead letters have in common, the largest cluster first."""
    try:
        page = resources.dead_letters.clusters(viewer.caller.tenant, cursor=cursor)
    except REFUSALS as error:
        return go(request, "/dead", notice=told(error), is_error=True)
    most = max((cluster.jobs for cluster in page.clusters), default=0)
    return render(request, "dead.html", viewer=viewer, page=page, most=most)


@router.get("/{cluster}")
def show_cluster(
    request: Request, resources: ConsoleResources, viewer: ViewerDep, cluster: ClusterName, cursor: Cursor = None
) -> Response:
    """Show the dead letters of one cluster, the oldest first."""
    try:
        page = resources.dead_letters.jobs(viewer.caller.tenant, cluster, cursor=cursor, limit=_PAGE)
    except ClusterNotFoundError:
        return go(request, "/dead", notice="Nothing is left of that cluster.")
    except REFUSALS as error:
        return go(request, "/dead", notice=told(error), is_error=True)
    return render(request, "cluster.html", viewer=viewer, name=cluster, page=page)


@router.post("/replay")
def replay(
    request: Request,
    resources: ConsoleResources,
    viewer: Submitter,
    ids: Ids = None,
    signature: Signature = "",
    budget: Annotated[str, Form()] = "",
) -> Response:
    """Replay the chosen dead letters, or up to 200 of a cluster; tell what became of each."""
    try:
        order = parse_as(ReplayOrder, _order(ids, signature) | ({"budget_usd": budget} if budget else {}))
        verdicts = resources.dead_letters.replay(order, asker=asker_of(viewer.caller))
    except REFUSALS as error:
        return go(request, "/dead", notice=told(error), is_error=True)
    return render(request, "verdicts.html", viewer=viewer, verdicts=verdicts, title="Replayed", done="replayed")


@router.post("/dismiss")
def dismiss(
    request: Request, resources: ConsoleResources, viewer: Submitter, ids: Ids = None, signature: Signature = ""
) -> Response:
    """Say that the chosen dead letters, or up to 200 of a cluster, need nothing more."""
    try:
        order = parse_as(DeadLetterOrder, _order(ids, signature))
        verdicts = resources.dead_letters.dismiss(order, asker=asker_of(viewer.caller))
    except REFUSALS as error:
        return go(request, "/dead", notice=told(error), is_error=True)
    return render(request, "verdicts.html", viewer=viewer, verdicts=verdicts, title="Dismissed", done="dismissed")


def _order(ids: list[UUID] | None, signature: str) -> dict[str, Any]:
    """Return an order; ticked boxes are meant alone, though their form names the cluster too."""
    return {"ids": ids} if ids else {"signature": signature} if signature else {}
