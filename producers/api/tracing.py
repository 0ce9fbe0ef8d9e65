"""The span of an HTTP request: where a trace begins, or goes on that a caller began.

Only requests that may change something are traced, of callers who show a key: strangers cannot fill a collector.
Those that look, a poll for a job's state above all, would fill it with nothing to see; metrics and the log have them.
"""

from __future__ import annotations

from http import HTTPStatus

from fastapi.telemetry import TelemetryConfig
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from monitoring import traces

NO_TELEMETRY: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""The framework's own: its spans hold paths, of which a preview's is a secret, and its logs what an exception says."""
_LOOKING = frozenset({"GET", "HEAD", "OPTIONS"})
_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})
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
        method = scope["method"] if scope["method"] in _METHODS else "_OTHER"
        incoming = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), None)
        with traces.begin(
            method, incoming, kind=traces.Kind.SERVER, facts={"http.request.method": method}
        ) as span:  # fmt: skip

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
