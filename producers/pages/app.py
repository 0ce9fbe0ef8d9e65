"""The application behind the pages' listener.

Previews and live pages hold scripts that a model or a stranger wrote. They are served from an origin of their own,
where there is no API, no documentation and no cookie, and where every answer says by its headers what may be done
with it.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.api.observe import ApiMetrics, Observer
from producers.api.problems import add_handlers
from producers.api.tracing import NO_TELEMETRY
from producers.pages import routes
from producers.pages.resources import PageResources
from sandbox.preview import REFUSAL_HEADERS

_PORTS = {"http": 80, "https": 443}
_REFUSAL = [(name.lower().encode(), value.encode()) for name, value in REFUSAL_HEADERS.items()]


class _Shield:
    """ASGI middleware that gives an answer without a policy of its own the strictest there is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def shielded_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", []))
                names = {name.lower() for name, _ in headers}
                if b"content-security-policy" not in names:
                    headers += [(name, value) for name, value in _REFUSAL if name not in names]
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, shielded_send)


def create_pages_app(wiring: PageResources, *, metrics: ApiMetrics | None = None) -> FastAPI:
    """Return the application. It opens nothing and closes nothing: the resources' owner does.

    Args:
        wiring: what it works with.
        metrics: where its requests are counted; those of the API's process, or its own.
    """
    app = FastAPI(
        title="Pages", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False, telemetry=NO_TELEMETRY
    )
    app.state.resources = wiring
    app.add_middleware(Observer, metrics=metrics or ApiMetrics())
    app.add_middleware(_Shield)
    add_handlers(app)
    app.include_router(routes.router)
    return app


def is_same_origin(one: str, other: str) -> bool:
    """Tell whether a browser would let pages at two URLs reach into each other."""
    return _origin_of(one) == _origin_of(other)


def _origin_of(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
