"""What a supervisor asks: is the process there, can it serve, how does it do."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from monitoring.ledger.store import serves
from producers.api.problems import problem
from producers.api.resources import ResourcesDep

router = APIRouter(tags=["health"])


@router.get("/healthz")
def get_health() -> dict[str, str]:
    """Tell that the process serves requests; it looks at nothing else, so a dead ledger restarts nobody."""
    return {"status": "ok"}


@router.get("/readyz")
def get_readiness(resources: ResourcesDep) -> Response:
    """Tell whether jobs can be taken in: the ledger is reachable and has a schema that this version works with."""
    if not serves(resources.ledger.engine):
        return problem(503, "ledger_outdated", "this version does not work with the ledger's schema; migrate it")
    return Response('{"status":"ready"}', media_type="application/json")


@router.get("/metrics", include_in_schema=False)
def get_metrics(request: Request) -> Response:
    """Return this process's own metrics; those of jobs come from the exporter."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)
