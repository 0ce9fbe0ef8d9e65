"""Dead letters over HTTP: what ended as nobody wanted, by what it has in common; replay it, or lay it to rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from producers.api.bodies import parse_json
from producers.api.examples import body_of
from producers.api.job_routes import Body
from producers.api.resources import Reader, ResourcesDep, SubmitCaller, asker_of
from producers.dead_letters import ClustersPage, DeadLetterOrder, DeadLettersPage, ReplayOrder, Verdicts
from routing.jobs import parse_as

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

Cursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200)]
ClusterName = Annotated[str, Path(pattern="^[0-9a-f]{10}$", description="A cluster's short name.")]
_EXAMPLE = {"signature": "2f1d0c9b8a", "limit": 50}


@router.get("")
def get_clusters(
    resources: ResourcesDep, caller: Reader, cursor: Cursor = None, limit: Limit = 50
) -> ClustersPage:  # fmt: skip
    """List the tenant's dead letters by what their ends have in common, the largest cluster first."""
    return resources.dead_letters.clusters(caller.tenant, cursor=cursor, limit=limit)


@router.get("/{cluster}")
def get_cluster(
    resources: ResourcesDep, caller: Reader, cluster: ClusterName, cursor: Cursor = None, limit: Limit = 50
) -> DeadLettersPage:
    """List the dead letters of one cluster, the oldest first."""
    return resources.dead_letters.jobs(caller.tenant, cluster, cursor=cursor, limit=limit)


@router.post("/replay", openapi_extra=body_of(ReplayOrder, _EXAMPLE))
def replay(resources: ResourcesDep, caller: SubmitCaller, raw: Body) -> Verdicts:
    """Submit dead letters once more: decided anew by today's policy, from today's release, on the bill that they have.

    Each job is judged alone. Replaying what was replayed before makes no second job.
    """
    order = parse_as(ReplayOrder, parse_json(raw) if raw.strip() else {})
    return resources.dead_letters.replay(order, asker=asker_of(caller))


@router.post("/dismiss", openapi_extra=body_of(DeadLetterOrder, _EXAMPLE))
def dismiss(resources: ResourcesDep, caller: SubmitCaller, raw: Body) -> Verdicts:
    """Say that dead letters need nothing more."""
    order = parse_as(DeadLetterOrder, parse_json(raw) if raw.strip() else {})
    return resources.dead_letters.dismiss(order, asker=asker_of(caller))
