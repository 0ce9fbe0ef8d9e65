"""Log in with an API key, and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Form, Header, Request
from starlette.responses import Response

from producers.console.sessions import COOKIE, MAX_AGE_SECONDS
from producers.console.web import PREFIX, ConsoleDep, ConsoleResources, Viewer, acting, go, render
from producers.errors import AuthenticationError, ForgedFormError
from producers.keys import Scope, authenticate

router = APIRouter()


@router.get("/login")
def show_login(request: Request) -> Response:
    """Ask for an API key."""
    return render(request, "login.html", viewer=None, error="")


@router.post("/login")
def log_in(
    request: Request,
    console: ConsoleDep,
    resources: ConsoleResources,
    key: Annotated[str, Form(max_length=200)] = "",
    sec_fetch_site: Annotated[str | None, Header()] = None,
) -> Response:
    """Open a session for the holder of a key that may read."""
    if sec_fetch_site not in (None, "same-origin", "none"):
        raise ForgedFormError
    try:
        with resources.ledger.begin() as session:
            caller = authenticate(session, key.strip())
        caller.require(Scope.READ)
    except AuthenticationError as error:
        return render(request, "login.html", viewer=None, status=401, error=str(error))
    assert caller.key_id is not None
    response = go(request, "/")
    response.set_cookie(
        COOKIE, console.sessions.open(caller.key_id), path=PREFIX, max_age=MAX_AGE_SECONDS, httponly=True,
        samesite="lax", secure=console.is_secure,
    )  # fmt: skip
    return response


@router.post("/logout")
def log_out(request: Request, viewer: Annotated[Viewer, Depends(acting(Scope.READ))]) -> Response:
    """End the session in this browser."""
    response = go(request, "/login")
    response.delete_cookie(COOKIE, path=PREFIX)
    return response
