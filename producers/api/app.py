"""The HTTP application, made from its resources: two of them in one process share nothing."""

from __future__ import annotations

import threading
from importlib import resources
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

from monitoring import traces
from producers.api import (
    batch_routes,
    dead_routes,
    health,
    job_routes,
    notification_routes,
    round_routes,
    run_routes,
    site_routes,
    ticket_routes,
)
from producers.api.examples import describe_webhook, request_schemas, show_answers
from producers.api.field_docs import describe_fields
from producers.api.observe import ApiMetrics, Observer
from producers.api.problems import add_handlers, describe_problems
from producers.api.resources import Resources
from producers.api.tracing import NO_TELEMETRY, Tracing
from producers.console.app import create_console
from producers.console.web import PREFIX, Console

_DESCRIPTION = """
Submit AI edit work in plain words; get a job id, events, a bill to the cent, a signed preview and one final state.

Every request under `/v1` needs an API key (`pointsman key create`), as `Authorization: Bearer pmk_...` or
`X-API-Key: pmk_...`. The key says which tenant calls; another tenant's jobs and sites do not exist for it. Errors are
RFC 9457 problem details that name each field and the rule it breaks.
"""


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, with the schemas of bodies that are read by hand."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            document["components"].setdefault("schemas", {}).update(request_schemas())
            describe_problems(document)
            show_answers(document)
            describe_webhook(document)
            describe_fields(document)
            self.openapi_schema = document
        return self.openapi_schema


def _serve_docs(app: FastAPI) -> None:
    """Serve Swagger UI from the wheel that carries it: the page works where nothing outside can be reached."""
    files = str(resources.files("fastapi_offline") / "static")
    app.mount("/docs/files", StaticFiles(directory=files), name="docs-files")

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url=str(app.openapi_url),
            title="Pointsman",
            swagger_js_url="/docs/files/swagger-ui-bundle.js",
            swagger_css_url="/docs/files/swagger-ui.css",
            swagger_favicon_url="/docs/files/favicon.png",
        )


def create_app(wiring: Resources, *, console: Console | None = None) -> FastAPI:
    """Return the application. It opens nothing and closes nothing: the resources' owner does.

    Args:
        wiring: what it works with.
        console: what makes the console's pages; without it there are none.
    """
    metrics = ApiMetrics()
    app = _Api(
        title="Pointsman",
        version=version("pointsman"),
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
    )
    _serve_docs(app)
    app.state.resources = wiring
    app.state.metrics = metrics
    app.state.stopping = threading.Event()  # set when the server is to stop: open event streams end
    if traces.is_on():
        app.add_middleware(Tracing)
    app.add_middleware(Observer, metrics=metrics)
    add_handlers(app)
    for part in (
        job_routes, batch_routes, round_routes, notification_routes, dead_routes, run_routes, site_routes,
        ticket_routes, health,
    ):  # fmt: skip
        app.include_router(part.router)
    if console is not None:
        app.mount(PREFIX, create_console(wiring, console, stopping=app.state.stopping))
        app.add_api_route("/", _to_console, include_in_schema=False)
    return app


def _to_console() -> RedirectResponse:
    return RedirectResponse(f"{PREFIX}/")
