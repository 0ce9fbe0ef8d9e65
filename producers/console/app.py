"""The console as an application mounted under `/console`, with its own pages, login and error pages."""

from __future__ import annotations

import http
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from ledger.errors import GateNotFoundError, JobNotFoundError, ReleaseNotFoundError, SiteNotFoundError
from ledger.store import LEDGER_UNREACHABLE
from producers.api.operations_routes import NO_TELEMETRY
from producers.api.problems import on_too_many_streams
from producers.api.requests import MAX_RAW_BYTES, Resources
from producers.console import bulk, jobs, operations, people, sign_in, sites
from producers.console.presentation import sentence
from producers.console.web import (
    PREFIX,
    THEME,
    Console,
    ConsoleDep,
    Viewer,
    acting,
    is_part,
    redirect,
    render,
    set_cookie,
)
from producers.errors import (
    ActionRefusedError,
    ForgedFormError,
    MissingScopeError,
    NotLoggedInError,
    PageNotFoundError,
    TooManyStreamsError,
)
from producers.use_cases.tenants import Scope
from routing.errors import PolicyError
from routing.jobs import rule_of
from sites.errors import BlobCorruptError, BlobMissingError, ReleaseAlteredError, StoreUnavailableError

logger = logging.getLogger(__name__)

Handler = Callable[[Request, Exception], Awaitable[Response]]

theme_router = APIRouter()
THEME_SECONDS = 365 * 86_400
"""How long a chosen theme is kept."""


@theme_router.post("/theme")
def choose_theme(
    request: Request,
    console: ConsoleDep,
    _: Annotated[Viewer, Depends(acting(Scope.READ))],
    theme: Annotated[Literal["", "light", "dark"], Form()] = "",
) -> Response:
    """Show the console in light or dark, or as the system does; the choice stays with the browser."""
    came_from = urlsplit(request.headers.get("referer", ""))
    path = came_from.path.removeprefix(PREFIX) if came_from.path.startswith(f"{PREFIX}/") else "/"
    response = redirect(request, f"{path}?{came_from.query}" if came_from.query else path)
    set_cookie(response, console, THEME, theme, seconds=THEME_SECONDS if theme else 0)
    return response


def create_console(resources: Resources, console: Console) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        title="Console",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        telemetry=NO_TELEMETRY,
        max_body_size=MAX_RAW_BYTES,
    )
    app.state.resources = resources
    app.state.console = console
    app.mount("/static", StaticFiles(packages=[("producers.console", "static"), ("sites.spec.fonts", "files")]))
    for router in (
        operations.router,
        bulk.router,
        jobs.router,
        jobs.decisions_router,
        sites.runs_router,
        sites.router,
        operations.dead_letters_router,
        sign_in.router,
        theme_router,
        people.router,
    ):
        app.router.routes.extend(router.routes)  # as in the API: not made anew for each application
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


def _error_page(request: Request, status: int, text: str) -> Response:
    title = "Not found" if status == http.HTTPStatus.NOT_FOUND else http.HTTPStatus(status).phrase
    return render(request, "refusal.html", viewer=None, status=status, title=title, text=text)


async def _on_not_logged_in(request: Request, _: Exception) -> Response:
    if is_part(request):  # htmx then loads the whole page
        return Response(status_code=401, headers={"HX-Redirect": "/console/login"})
    return redirect(request, "/login")


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {rule_of(item)}" for item in error.errors())
    return _error_page(request, 422, fields)


async def _on_refused_action(request: Request, error: Exception) -> Response:
    assert isinstance(error, ActionRefusedError)
    return redirect(request, error.path, notice=error.why, is_error=True)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "There is nothing here." if error.status_code == 404 else error.detail
    return _error_page(request, error.status_code, text)


async def _on_missing_scope(request: Request, error: Exception) -> Response:
    return _error_page(request, 403, f"{sentence(str(error))}. Nothing was done.")


async def _on_unfit_policy(request: Request, error: Exception) -> Response:
    logger.error("tenant_overrides_unfit", extra={"rule": str(error)})
    return _error_page(request, 409, "Your own limits no longer fit this installation's policy; ask its operator.")


async def _on_damaged(request: Request, error: Exception) -> Response:
    logger.error("stored_file_unreadable", extra={"path": request.url.path, "error": str(error)})
    return _error_page(request, 500, "A stored file of this page is missing or damaged; an operator has to look at it.")


async def _on_too_many_streams(_: Request, error: Exception) -> Response:
    return on_too_many_streams(error)


def _shows(status: int, text: str) -> Handler:
    async def handle(request: Request, _: Exception) -> Response:
        return _error_page(request, status, text)

    return handle


_on_not_found = _shows(404, "There is nothing here, or it belongs to somebody else.")
_on_ledger_away = _shows(503, "The ledger cannot be reached. Nothing was done; try again in a moment.")
_HANDLERS: Mapping[type[Exception], Handler] = {
    NotLoggedInError: _on_not_logged_in,
    ForgedFormError: _shows(
        403, "This form does not belong to your session. Nothing was done; reload the page and try again."
    ),
    ActionRefusedError: _on_refused_action,
    MissingScopeError: _on_missing_scope,
    TooManyStreamsError: _on_too_many_streams,
    **dict.fromkeys(
        (GateNotFoundError, JobNotFoundError, PageNotFoundError, ReleaseNotFoundError, SiteNotFoundError), _on_not_found
    ),
    RequestValidationError: _on_invalid,
    **dict.fromkeys(LEDGER_UNREACHABLE, _on_ledger_away),
    StoreUnavailableError: _shows(503, "The files cannot be reached. Nothing was done; try again in a moment."),
    **dict.fromkeys((BlobCorruptError, BlobMissingError, ReleaseAlteredError), _on_damaged),
    DataError: _shows(422, "The text holds a character that cannot be stored or searched for."),
    PolicyError: _on_unfit_policy,
    HTTPException: _on_http,
}
