"""The API's own health: requests and durations by route template, never by what a caller put into a URL.

Metrics about jobs come from the ledger (monitoring); these die with the process and say how the process does.
"""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
            "pointsman_api_request_seconds", "Time to the end of the answer.", labels, buckets=_BUCKETS,
            registry=self.registry,
        )  # fmt: skip
        self.under_way = Gauge(
            "pointsman_api_requests_under_way", "HTTP requests being served, open event streams included.",
            registry=self.registry,
        )  # fmt: skip


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
            level, "request_served",
            extra={"method": method, "route": route, "status": status, "seconds": round(seconds, 4)},
        )  # fmt: skip
