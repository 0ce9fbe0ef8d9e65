"""Signing in and out of the console: by the identity provider, where there is one, or with an API key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import RedirectResponse
from itsdangerous import BadData
from starlette.responses import Response

from producers.api.requests import presented_by
from producers.console.oidc import Ticket
from producers.console.web import (
    COOKIE,
    Console,
    ConsoleDep,
    ConsoleResources,
    Viewer,
    acting,
    cookie_of,
    refuse_foreign,
    render,
    set_cookie,
    signer_of,
    start_session,
)
from producers.errors import AuthenticationError, PageNotFoundError, SignInRefusedError, TooManyTriesError
from producers.use_cases.people import end_session, sign_in
from producers.use_cases.tenants import Scope

router = APIRouter()

CALLBACK = "/login/oidc/callback"
_TICKET = "pointsman_sign_in"
_TICKET_SECONDS = 600
_SALT = "pointsman.sign-in.v1"


@router.get("/login")
def show_login(request: Request) -> Response:
    """Show the login form."""
    return _login_page(request)


def _login_page(request: Request, *, status: int = 200, error: str = "") -> Response:
    has_provider = request.app.state.console.provider is not None
    return render(request, "login.html", viewer=None, status=status, error=error, has_provider=has_provider)


@router.post("/login")
def log_in(
    request: Request,
    resources: ConsoleResources,
    _: Annotated[None, Depends(refuse_foreign)],
    key: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Open a session for the holder of a key with scope `read`."""
    try:
        caller = resources.caller(presented_by(request, key.strip()), Scope.READ, is_login=True)
    except AuthenticationError as error:
        return _login_page(request, status=401, error=str(error))
    except TooManyTriesError as error:
        page = _login_page(request, status=429, error=str(error))
        page.headers["Retry-After"] = str(error.retry_after_seconds)
        return page
    return start_session(request, key_id=caller.key_id)


@router.get("/login/oidc")
def leave_for_provider(request: Request, console: ConsoleDep) -> Response:
    """Send the browser to the identity provider."""
    if console.provider is None:
        raise PageNotFoundError
    try:
        url, ticket = console.provider.begin()
    except SignInRefusedError as error:
        return _login_page(request, status=503, error=str(error))
    response = RedirectResponse(url, status_code=303, headers={"Cache-Control": "no-store"})
    kept = str(signer_of(console.sessions.keys, _SALT).dumps(list(ticket)))
    set_cookie(response, console, _TICKET, kept, seconds=_TICKET_SECONDS)
    return response


@router.get(CALLBACK)
def come_back(request: Request, console: ConsoleDep, resources: ConsoleResources) -> Response:
    """Open a session for whom the identity provider has signed in; it leads to the console's first page alone."""
    if console.provider is None:
        raise PageNotFoundError
    try:
        ticket = _ticket_of(console, cookie_of(request, _TICKET))
        proven = console.provider.finish(ticket, dict(request.query_params))
        with resources.ledger.begin() as transaction:
            person_id = sign_in(transaction, proven.identity, proven.grant).id
        response = start_session(request, person_id=person_id)
    except SignInRefusedError as error:
        response = _login_page(request, status=403, error=str(error))
    set_cookie(response, console, _TICKET, "", seconds=0)  # it is good for one answer
    return response


@router.post("/logout")
def log_out(
    console: ConsoleDep,
    viewer: Annotated[Viewer, Depends(acting(Scope.READ))],
) -> Response:
    """End the session, whoever holds its cookie."""
    with viewer.resources.ledger.begin() as transaction:
        end_session(transaction, viewer.session.nonce)
    response = viewer.redirect("/login")
    set_cookie(response, console, COOKIE, "", seconds=0)
    return response


def _ticket_of(console: Console, cookie: str) -> Ticket:
    try:
        return Ticket(*signer_of(console.sessions.keys, _SALT).loads(cookie, max_age=_TICKET_SECONDS))
    except (BadData, TypeError):
        raise SignInRefusedError("this sign-in was begun elsewhere or long ago; begin again") from None
