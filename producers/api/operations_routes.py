"""Queues, dead letters, notifications and health over HTTP, and the middleware that observes requests."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from fastapi import Path, Query, Request, Response
from fastapi.telemetry import TelemetryConfig
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ledger.notifications import Wanted
from ledger.store import serves
from monitoring import traces
from producers.api.http_rules import create_router
from producers.api.job_routes import Body, Cursor
from producers.api.openapi import body_of
from producers.api.problems import problem
from producers.api.requests import Admin, Reader, ResourcesDep, SubmitCaller, parse_model, requester_of
from producers.use_cases.dead_letters import (
    ClustersPage,
    DeadLetterOrder,
    DeadLettersPage,
    NotificationsPage,
    NotificationView,
    ReplayOrder,
    Verdicts,
)
from producers.use_cases.fleet import QueueView, queue_depths
from producers.use_cases.notices import NoticeChoice, NoticeChoiceView, NoticesPage, NoticeView

logger = logging.getLogger(__name__)

router = create_router("/v1")
health_router = create_router("", tags=["health"], is_strict=False)

Limit = Annotated[int, Query(ge=1, le=200)]
ClusterName = Annotated[str, Path(pattern="^[0-9a-f]{10}$", description="A cluster's short name.")]
_EXAMPLE = {"signature": "2f1d0c9b8a", "limit": 50}

_CHOICE = {"states": ["awaiting_approval"], "chat_url": "https://chat.example.org/hooks/1f2e3d"}


@router.get("/dead-letters", tags=["dead letters"])
def list_dead_letter_clusters(
    resources: ResourcesDep, caller: Reader, cursor: Cursor = None, limit: Limit = 50
) -> ClustersPage:
    """List the tenant's dead letters by failure signature, the largest cluster first."""
    return resources.dead_letters.clusters(caller.tenant, cursor=cursor, limit=limit)


@router.get("/dead-letters/{cluster}", tags=["dead letters"])
def list_dead_letters(
    resources: ResourcesDep, caller: Reader, cluster: ClusterName, cursor: Cursor = None, limit: Limit = 50
) -> DeadLettersPage:
    """List the dead letters of one cluster, the oldest first."""
    return resources.dead_letters.jobs(caller.tenant, cluster, cursor=cursor, limit=limit)


@router.post("/dead-letters/replay", tags=["dead letters"], openapi_extra=body_of(ReplayOrder, _EXAMPLE))
def replay_dead_letters(resources: ResourcesDep, caller: SubmitCaller, raw: Body) -> Verdicts:
    """Resubmit dead letters: routed by today's policy, from the current release, on their existing bill.

    Each job succeeds or fails on its own. Replaying a job twice creates no second job.
    """
    order = parse_model(ReplayOrder, raw)
    return resources.dead_letters.replay(order, requester=requester_of(caller))


@router.post("/dead-letters/dismiss", tags=["dead letters"], openapi_extra=body_of(DeadLetterOrder, _EXAMPLE))
def dismiss_dead_letters(resources: ResourcesDep, caller: SubmitCaller, raw: Body) -> Verdicts:
    """Mark dead letters as dealt with."""
    order = parse_model(DeadLetterOrder, raw)
    return resources.dead_letters.dismiss(order, requester=requester_of(caller))


@router.get("/queues", tags=["queues"])
def list_queues(resources: ResourcesDep, caller: Reader) -> list[QueueView]:
    """Tell how many of the tenant's jobs wait on each queue, and how long the oldest has."""
    with resources.ledger.begin() as session:
        return queue_depths(session, caller.tenant)


@router.get("/notifications", tags=["notifications"])
def list_notifications(
    resources: ResourcesDep,
    caller: Reader,
    state: Annotated[Wanted, Query(description="Given up, or still being retried.")] = "undelivered",
    cursor: Cursor = None,
    limit: Limit = 50,
) -> NotificationsPage:
    """List the tenant's undelivered notifications, the newest first."""
    return resources.notifications.not_delivered(caller.tenant, wanted=state, cursor=cursor, limit=limit)


@router.get("/jobs/{job_id}/notification", tags=["notifications"])
def get_notification(resources: ResourcesDep, caller: Reader, job_id: UUID) -> NotificationView:
    """Return the notification of a job's end and every attempt to deliver it."""
    return resources.notifications.show(job_id, tenant=caller.tenant)


@router.post("/jobs/{job_id}/notification/replay", tags=["notifications"], status_code=202)
def replay_notification(resources: ResourcesDep, caller: SubmitCaller, job_id: UUID) -> NotificationView:
    """Resend a job's notification, delivered or not: the same id and body, with a full set of retries.

    A receiver that stores the ids (`webhook-id`) of what it has handled does nothing twice.
    """
    return resources.notifications.replay(job_id, tenant=caller.tenant, actor=caller.actor)


@router.get("/notices", tags=["notifications"])
def list_notices(
    resources: ResourcesDep,
    caller: Reader,
    state: Annotated[Wanted | None, Query(description="Given up, or still being retried; all by default.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> NoticesPage:
    """List the messages that jobs wait for a person, with every attempt to deliver them, the newest first."""
    return resources.notices.find(caller.tenant, wanted=state, cursor=cursor, limit=limit)


@router.post("/notices/{notice_id}/replay", tags=["notifications"], status_code=202)
def replay_notice(resources: ResourcesDep, caller: SubmitCaller, notice_id: UUID) -> NoticeView:
    """Resend a message that a job waits for a person: the same id and body, with a full set of retries."""
    return resources.notices.replay(notice_id, tenant=caller.tenant, actor=caller.actor)


@router.get("/notice-choice", tags=["notifications"])
def get_notice_choice(resources: ResourcesDep, caller: Reader) -> NoticeChoiceView:
    """Tell of which waits for a person the tenant hears, and on which host its chat is."""
    return resources.notices.choice(caller.tenant)


@router.put("/notice-choice", tags=["notifications"], openapi_extra=body_of(NoticeChoice, _CHOICE))
def choose_notices(resources: ResourcesDep, caller: Admin, raw: Body) -> NoticeChoiceView:
    """Choose which waits for a person the tenant is notified of; a job's `callback_url` always gets its end."""
    choice = parse_model(NoticeChoice, raw)
    is_private_allowed = resources.submitter.private_callbacks
    return resources.notices.choose(choice, tenant=caller.tenant, allow_private=is_private_allowed, actor=caller.actor)


@health_router.get("/healthz")
def get_health() -> dict[str, str]:
    """Report that the process serves requests; it checks nothing else, so that a ledger outage causes no restarts."""
    return {"status": "ok"}


@health_router.get("/readyz", responses={503: {"description": "Jobs cannot be accepted."}})
def get_readiness(resources: ResourcesDep) -> Response:
    """Report whether jobs can be accepted: the ledger is reachable and its schema fits this version."""
    if not serves(resources.ledger.engine):
        return problem(503, "ledger_outdated", "this version does not work with the ledger's schema; migrate it")
    return Response('{"status":"ready"}', media_type="application/json")


@health_router.get("/metrics", include_in_schema=False)
def get_metrics(request: Request) -> Response:
    """Return this process's own metrics; those of jobs come from the exporter."""
    return Response(generate_latest(request.app.state.metrics.registry), media_type=CONTENT_TYPE_LATEST)


UNMATCHED = "unmatched"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})


class ApiMetrics:
    """The metrics of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self.requests = Counter(
            "pointsman_api_requests", "HTTP requests answered.", (*labels, "status"), registry=self.registry
        )
        self.problems = Counter("pointsman_api_problems", "Requests refused.", ("type",), registry=self.registry)
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


@dataclass(frozen=True)
class Observer:
    """ASGI middleware that counts and logs each request, by route template.

    It forbids content sniffing, and caches to keep what the API says.
    """

    app: ASGIApp
    metrics: ApiMetrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = list(message.get("headers", []))
                given = {name.lower() for name, _ in headers}
                wanted = _HEADERS if scope["path"].startswith("/v1") else _HEADERS[:1]
                message["headers"] = headers + [header for header in wanted if header[0] not in given]
            await send(message)

        with self.metrics.under_way.track_inprogress():
            try:
                await self.app(scope, receive, observed_send)
            finally:
                self._book(scope, status, time.perf_counter() - started)

    def _book(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self.metrics.requests.labels(method, route, str(status)).inc()
        self.metrics.seconds.labels(method, route).observe(seconds)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        logger.log(
            level,
            "request_served",
            extra={"method": method, "route": route, "status": status, "seconds": round(seconds, 4)},
        )


NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""Turns off FastAPI's own: its spans hold paths, of which a preview's is a secret, and its logs exception texts."""
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_TRACED_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_FAULT = 500
_HEADER = b"traceparent"


class Tracing:
    """ASGI middleware that traces requests which may change something.

    Reads, polls above all, would fill a collector with nothing to see; and strangers without a key must not fill it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] in _READING:
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
    """Name a span by its route template, never by what a caller put into the URL."""
    if status == HTTPStatus.UNAUTHORIZED:
        span.discard()
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        span.rename(f"{scope['method']} {route}")
    fault = str(status) if status >= _FAULT else None
    span.note({"http.route": route, "http.response.status_code": status, "error.type": fault})
