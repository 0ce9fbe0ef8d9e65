"""The console as an application of its own, mounted under `/console`: its own pages and its own way of saying no."""

from __future__ import annotations

import http
import logging
import threading
from importlib import resources as files

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from monitoring.errors import JobNotFoundError, SiteNotFoundError
from producers.api.bodies import MAX_RAW_BYTES
from producers.api.resources import Resources
from producers.api.tracing import NO_TELEMETRY
from producers.console.routes import dead, decisions, fleet, jobs, login, records, runs, sites
from producers.console.web import Console, go, is_part, render
from producers.errors import ForgedFormError, MissingScopeError, NotLoggedInError
from routing.errors import PolicyError

logger = logging.getLogger(__name__)


def create_console(resources: Resources, console: Console, *, stopping: threading.Event) -> FastAPI:
    """Return the application.

    Args:
        resources: those of the HTTP door.
        console: what makes sessions and pages.
        stopping: set when the server is to stop: open event streams end.
    """
    app = FastAPI(
        title="Console", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        telemetry=NO_TELEMETRY, max_body_size=MAX_RAW_BYTES,
    )  # fmt: skip
    app.state.resources = resources
    app.state.console = console
    app.state.stopping = stopping
    app.mount("/static", StaticFiles(directory=str(files.files("producers.console") / "static")))
    for part in (fleet, jobs, decisions, runs, sites, dead, records, login):
        app.include_router(part.router)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    return app


def _refuse(request: Request, status: int, text: str) -> Response:
    title = "Not found" if status == http.HTTPStatus.NOT_FOUND else http.HTTPStatus(status).phrase
    return render(request, "refusal.html", viewer=None, status=status, title=title, text=text)


async def _on_not_logged_in(request: Request, _: Exception) -> Response:
    if is_part(request):  # htmx follows this with the whole page
        return Response(status_code=401, headers={"HX-Redirect": "/console/login"})
    return go(request, "/login")


async def _on_forged_form(request: Request, _: Exception) -> Response:
    return _refuse(request, 403, "This form was not made by a page of your session. Nothing was done; reload the page.")


async def _on_missing_scope(request: Request, error: Exception) -> Response:
    return _refuse(request, 403, f"{str(error).capitalize()}. Nothing was done.")


async def _on_not_found(request: Request, _: Exception) -> Response:
    return _refuse(request, 404, "There is nothing here, or it belongs to somebody else.")


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = "; ".join(f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors())
    return _refuse(request, 422, wrong)


async def _on_unstorable(request: Request, _: Exception) -> Response:
    return _refuse(request, 422, "There is a character in it that cannot be stored or searched for.")


async def _on_unfit_policy(request: Request, error: Exception) -> Response:
    logger.error("tenant_overrides_unfit", extra={"rule": str(error)})
    return _refuse(
        request, 409, "Your own limits do not fit this installation's policy any more; ask whoever operates it."
    )  # fmt: skip


async def _on_ledger_away(request: Request, _: Exception) -> Response:
    return _refuse(request, 503, "The ledger cannot be reached. Nothing was done; try again in a moment.")


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refuse(request, error.status_code, "There is nothing here." if error.status_code == 404 else error.detail)


_HANDLERS = {
    NotLoggedInError: _on_not_logged_in,
    ForgedFormError: _on_forged_form,
    MissingScopeError: _on_missing_scope,
    JobNotFoundError: _on_not_found,
    SiteNotFoundError: _on_not_found,
    RequestValidationError: _on_invalid,
    OperationalError: _on_ledger_away,
    InterfaceError: _on_ledger_away,
    PoolTimeoutError: _on_ledger_away,
    DataError: _on_unstorable,
    PolicyError: _on_unfit_policy,
    HTTPException: _on_http,
}
