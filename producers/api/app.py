"""The HTTP application of API and console, and the process that serves it beside the pages."""

from __future__ import annotations

import asyncio
import hashlib
import re
import signal
import socket
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

import uvicorn
import uvloop
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from monitoring import traces
from monitoring.asgi import Server, uvicorn_config
from producers.api import access_routes, job_routes, operations_routes, site_routes
from producers.api.http_rules import HeadAsGet, name_allowed_methods
from producers.api.openapi import describe_fields, describe_problems, request_schemas, show_answers
from producers.api.operations_routes import NO_TELEMETRY, ApiMetrics, Observer, Tracing
from producers.api.problems import add_handlers
from producers.api.requests import Resources
from producers.bootstrap import Installation, Settings
from producers.config import ApiConfig, PagesConfig
from producers.console.app import create_console
from producers.console.oidc import OidcProvider
from producers.console.sign_in import CALLBACK
from producers.console.web import PREFIX, Console, Sessions
from producers.pages import PageResources, create_pages_app, is_below, is_same_origin
from routing.errors import PolicyError

_DESCRIPTION = """
Submit AI edit work in plain words; get a job id, events, a bill to the cent, a signed preview and one final state.

Every request under `/v1` needs an API key (`pointsman key create`), as `Authorization: Bearer pmk_...` or
`X-API-Key: pmk_...`. The key says which tenant calls; another tenant's jobs and sites do not exist for it. Errors are
RFC 9457 problem details that name each field and the rule it breaks.
"""


class _Api(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which FastAPI cannot derive for bodies that we parse ourselves."""
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            document["components"].setdefault("schemas", {}).update(request_schemas())
            describe_problems(document)
            show_answers(document)
            describe_fields(document)
            self.openapi_schema = document
        return self.openapi_schema


def _serve_docs(app: FastAPI) -> None:
    """Serve Swagger UI from an installed wheel, so that it works offline."""
    files = str(resources.files("fastapi_offline") / "static")
    app.mount("/docs/files", StaticFiles(directory=files), name="docs-files")

    page = get_swagger_ui_html(
        openapi_url=str(app.openapi_url),
        title="Pointsman",
        swagger_js_url="/docs/files/swagger-ui-bundle.js",
        swagger_css_url="/docs/files/swagger-ui.css",
        swagger_favicon_url="/docs/files/favicon.png",
    )
    page.headers.update(_docs_headers(bytes(page.body).decode()))

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return page


def _docs_headers(page: str) -> dict[str, str]:
    """Return the headers of the documentation's page: its own script, our files, and nobody's frame."""
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = " ".join(f"'sha256-{b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" for code in scripts)
    return {
        "Content-Security-Policy": f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }


def create_app(wiring: Resources, *, console: Console | None = None) -> FastAPI:
    """Return the application. Whoever made the resources opens and closes them."""
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
    if traces.is_on():
        app.add_middleware(Tracing)
    app.add_middleware(Observer, metrics=metrics)
    app.add_middleware(HeadAsGet)
    add_handlers(app)
    name_allowed_methods(app)
    for router in (
        job_routes.router,
        operations_routes.router,
        access_routes.router,
        site_routes.router,
        site_routes.webhook_router,
        operations_routes.health_router,
    ):
        app.router.routes.extend(router.routes)  # `include_router` would make each anew, in 55 ms of every command
    if console is not None:
        app.mount(PREFIX, create_console(wiring, console))
        app.add_api_route("/", _to_console, include_in_schema=False)
    return app


def _to_console() -> RedirectResponse:
    return RedirectResponse(f"{PREFIX}/")


STOP_SECONDS = 10
"""How long requests may take after SIGTERM. Event streams end at once."""


class _Server(Server):
    """A server that ends event streams before it waits for requests, and leaves signals to its process."""

    def __init__(self, app: ASGIApp, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        state = getattr(self._app, "state", None)
        if isinstance(wiring := getattr(state, "resources", None), Resources):
            wiring.streams.stop()
        await super().shutdown(sockets)


def create_server(
    app: ASGIApp, *, config: ApiConfig | PagesConfig, lifespan: Literal["on", "off"] = "off"
) -> uvicorn.Server:
    """Return a server that has not started."""
    settings = uvicorn_config(app, host=config.host, port=config.port, grace_seconds=STOP_SECONDS, lifespan=lifespan)
    return _Server(app, settings)


def serve(installation: Installation) -> None:
    """Serve API and pages on a listener each until SIGTERM or SIGINT, then close the ledger.

    Raises:
        PolicyError: the operator's fault: there is no key to sign previews with, or API and pages share an origin.
    """
    settings = installation.settings
    if installation.signer is None:
        raise PolicyError("POINTSMAN_PREVIEW__KEYS: at least one key is needed to sign previews")
    if is_same_origin(settings.api.public_url, settings.pages.public_url):
        raise PolicyError("POINTSMAN_PAGES__PUBLIC_URL: must be another origin than POINTSMAN_API__PUBLIC_URL")
    if is_below(settings.api.public_url, settings.pages.site_url):
        raise PolicyError("POINTSMAN_PAGES__SITE_URL: its host names must not hold POINTSMAN_API__PUBLIC_URL's")
    resources = Resources(
        **vars(installation.use_cases),
        submitter=installation.submitter,
        signer=installation.signer,
        pages_url=settings.pages.public_url,
        site_url=settings.pages.site_url,
        accounts=settings.accounts,
        idle_seconds=installation.idle_seconds,
    )
    pages = PageResources(
        ledger=installation.ledger,
        content_store=installation.content_store,
        signer=installation.signer,
        preview_seconds=installation.policy.approval.preview_hours * 3600,
        console_url=settings.api.public_url.rstrip("/"),
        site_url=settings.pages.site_url,
    )
    console = Console(
        sessions=Sessions([key.get_secret_value() for key in settings.preview.keys]),
        public_url=settings.api.public_url,
        audit_key=settings.audit.signing_key.get_secret_value().encode(),
        provider=_provider_of(settings),
    )
    api_app = create_app(resources, console=console)
    pages_app = create_pages_app(pages, metrics=api_app.state.metrics)
    servers = (create_server(api_app, config=settings.api), create_server(pages_app, config=settings.pages))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_servers(servers))
    finally:
        installation.ledger.close()


def _provider_of(settings: Settings) -> OidcProvider | None:
    """Return the identity provider, if there is one.

    Raises:
        PolicyError: the operator's fault: its settings do not fit, or the extra is missing.
    """
    if not settings.oidc.issuer:
        return None
    if find_spec("authlib") is None:
        raise PolicyError("POINTSMAN_OIDC__ISSUER: needs the extra `oidc` (pip install 'pointsman[oidc]')")
    if not settings.oidc.client_id:
        raise PolicyError("POINTSMAN_OIDC__CLIENT_ID: is needed with POINTSMAN_OIDC__ISSUER")
    try:
        return OidcProvider(settings.oidc, redirect_uri=f"{settings.api.public_url.rstrip('/')}{PREFIX}{CALLBACK}")
    except ValueError as error:
        raise PolicyError(f"POINTSMAN_OIDC__GRANTS: {error}") from None


async def run_servers(servers: Sequence[uvicorn.Server]) -> None:
    """Serve until a signal arrives or one server ends; a second signal does not wait for requests."""

    def stop() -> None:
        for server in servers:
            server.force_exit = server.should_exit
            server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    tasks = [asyncio.create_task(server.serve()) for server in servers]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*tasks)
