"""Dead letters over HTTP: what ended as nobody wanted, by what it has in common; replay it, or lay it to rest."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.telemetry import TelemetryConfig
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ledger.notifications import Wanted
from ledger.store import serves
from monitoring import traces
from producers.api.examples import body_of
from producers.api.job_routes import Body
from producers.api.problems import problem
from producers.api.requests import Reader, ResourcesDep, SubmitCaller, asker_of, parse_json
from producers.use_cases.dead_letters import (
    ClustersPage,
    DeadLetterOrder,
    DeadLettersPage,
    NotificationsPage,
    NotificationView,
    ReplayOrder,
    Verdicts,
)
from routing.jobs import parse_as

dead_letters_router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])

Cursor = Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200)]
ClusterName = Annotated[str, Path(pattern="^[0-9a-f]{10}$", description="A cluster's short name.")]
_EXAMPLE = {"signature": "2f1d0c9b8a", "limit": 50}


@dead_letters_router.get("")
def get_clusters(resources: ResourcesDep, caller: Reader, cursor: Cursor = None, limit: Limit = 50) -> ClustersPage:
    """List the tenant's dead letters by what their ends have in common, the largest cluster first."""
    return resources.dead_letters.clusters(caller.tenant, cursor=cursor, limit=limit)


@dead_letters_router.get("/{cluster}")
def get_cluster(
    resources: ResourcesDep, caller: Reader, cluster: ClusterName, cursor: Cursor = None, limit: Limit = 50
) -> DeadLettersPage:
    """List the dead letters of one cluster, the oldest first."""
    return resources.dead_letters.jobs(caller.tenant, cluster, cursor=cursor, limit=limit)


@dead_letters_router.post("/replay", openapi_extra=body_of(ReplayOrder, _EXAMPLE))
def replay(resources: ResourcesDep, caller: SubmitCaller, raw: Body) -> Verdicts:
    """Submit dead letters once more: decided anew by today's policy, from today's release, on the bill that they have.

    Each job is judged alone. Replaying what was replayed before makes no second job.
    """
    order = parse_as(ReplayOrder, parse_json(raw) if raw.strip() else {})
    return resources.dead_letters.replay(order, asker=asker_of(caller))


@dead_letters_router.post("/dismiss", openapi_extra=body_of(DeadLetterOrder, _EXAMPLE))
def dismiss(resources: ResourcesDep, caller: SubmitCaller, raw: Body) -> Verdicts:
    """Say that dead letters need nothing more."""
    order = parse_as(DeadLetterOrder, parse_json(raw) if raw.strip() else {})
    return resources.dead_letters.dismiss(order, asker=asker_of(caller))


# Notifications over HTTP: what came of a job's callback, which did not arrive, and sending one again.

notifications_router = APIRouter(prefix="/v1", tags=["notifications"])


@notifications_router.get("/notifications")
def get_notifications(
    resources: ResourcesDep,
    caller: Reader,
    state: Annotated[Wanted, Query(description="Given up, or still being tried.")] = "undelivered",
    cursor: Annotated[str | None, Query(max_length=2000, description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> NotificationsPage:
    """List the notifications that the tenant's receivers do not have, the newest first."""
    return resources.notifications.not_delivered(caller.tenant, wanted=state, cursor=cursor, limit=limit)


@notifications_router.get("/jobs/{job_id}/notification")
def get_notification(resources: ResourcesDep, caller: Reader, job_id: UUID) -> NotificationView:
    """Return the notification of a job's end, and what came of each try to deliver it."""
    return resources.notifications.show(job_id, tenant=caller.tenant)


@notifications_router.post("/jobs/{job_id}/notification/replay", status_code=202)
def replay_notification(resources: ResourcesDep, caller: SubmitCaller, job_id: UUID) -> NotificationView:
    """Send a job's notification again, whether it arrived or not: the same id and body, with all its tries before it.

    A receiver that keeps the ids (`webhook-id`) of what it has handled does nothing twice.
    """
    return resources.notifications.replay(job_id, tenant=caller.tenant, actor=caller.actor)


# What a supervisor asks: is the process there, can it serve, how does it do.

health_router = APIRouter(tags=["health"])


@health_router.get("/healthz")
def get_health() -> dict[str, str]:
    """Tell that the process serves requests; it looks at nothing else, so a dead ledger restarts nobody."""
    return {"status": "ok"}


@health_router.get("/readyz")
def get_readiness(resources: ResourcesDep) -> Response:
    """Tell whether jobs can be taken in: the ledger is reachable and has a schema that this version works with."""
    if not serves(resources.ledger.engine):
        return problem(503, "ledger_outdated", "this version does not work with the ledger's schema; migrate it")
    return Response('{"status":"ready"}', media_type="application/json")


@health_router.get("/metrics", include_in_schema=False)
def get_metrics(request: Request) -> Response:
    """Return this process's own metrics; those of jobs come from the exporter."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


# The API's own health: requests and durations by route template, never by what a caller put into a URL.
#
# Metrics about jobs come from the ledger (monitoring); these die with the process and say how the process does.

logger = logging.getLogger(__name__)

UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class ApiMetrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self.requests = Counter(
            "pointsman_api_requests", "HTTP requests answered.", (*labels, "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "pointsman_api_request_seconds",
            "Time to the end of the answer.",
            labels,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.under_way = Gauge(
            "pointsman_api_requests_under_way",
            "HTTP requests being served, open event streams included.",
            registry=self.registry,
        )


class Observer:
    """ASGI middleware that counts and logs each request once it is over, and marks each answer as not to be sniffed."""

    def __init__(self, app: ASGIApp, *, metrics: ApiMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", []))
                if not any(name.lower() == b"x-content-type-options" for name, _ in headers):
                    headers.append((b"x-content-type-options", b"nosniff"))
                message["headers"] = headers
            await send(message)

        with self._metrics.under_way.track_inprogress():
            try:
                await self._app(scope, receive, observed_send)
            finally:
                self._book(scope, status, time.perf_counter() - started)

    def _book(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        logger.log(
            level,
            "request_served",
            extra={"method": method, "route": route, "status": status, "seconds": round(seconds, 4)},
        )


# The span of an HTTP request: where a trace begins, or goes on that a caller began.
#
# Only requests that may change something are traced, of callers who show a key: strangers cannot fill a collector.
# Those that look, a poll for a job's state above all, would fill it with nothing to see; metrics and the log have
# them.

NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""The framework's own: its spans hold paths, of which a preview's is a secret, and its logs what an exception says."""
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_TRACED_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_FAULT = 500
_HEADER = b"traceparent"


class Tracing:
    """ASGI middleware around the application of a process that traces."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] in _LOOKING:
            await self._app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in _TRACED_METHODS else "_OTHER"
        incoming = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), None)
        with traces.begin(method, incoming, kind=traces.Kind.SERVER, facts={"http.request.method": method}) as span:

            async def observed_send(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note(span, scope, message["status"])
                await send(message)

            await self._app(scope, receive, observed_send)


def _note(span: traces.Span, scope: Scope, status: int) -> None:
    """Name a request by the template of its route, never by what a caller put into a URL."""
    if status == HTTPStatus.UNAUTHORIZED:
        span.discard()
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        span.rename(f"{scope['method']} {route}")
    fault = str(status) if status >= _FAULT else None
    span.note({"http.route": route, "http.response.status_code": status, "error.type": fault})
