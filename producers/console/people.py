"""The page of people, sessions and keys of a tenant, for its administrators."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Form
from starlette.responses import Response

from producers.console.web import Admin, ConsoleDep, ViewerDep, refusals_on
from producers.use_cases.people import list_access, revoke_session, set_disabled
from producers.use_cases.tenants import Scope, revoke

router = APIRouter()
_PAGE = "/people"


@router.get(_PAGE)
def show_people(console: ConsoleDep, viewer: ViewerDep) -> Response:
    """Show who may enter the tenant, and who is in."""
    viewer.caller.require(Scope.ADMIN)
    with viewer.resources.ledger.begin() as session:
        access = list_access(session, viewer.caller.tenant, idle_seconds=viewer.resources.idle_seconds)
    return viewer.render("people.html", access=access, has_provider=console.provider is not None)


@router.post(f"{_PAGE}/sessions/{{session_id}}/revoke")
def end_one(viewer: Admin, session_id: UUID) -> Response:
    """End a session."""
    caller = viewer.caller
    with viewer.resources.ledger.begin() as session:
        is_done = revoke_session(session, caller.tenant, session_id, actor=caller.actor)
    return viewer.redirect(_PAGE, notice="Session ended." if is_done else "That session was over already.")


@router.post(f"{_PAGE}/keys/revoke")
def revoke_key(viewer: Admin, name: Annotated[str, Form(max_length=64)]) -> Response:
    """Revoke a key, and with it the sessions that it opened."""
    caller = viewer.caller
    with viewer.resources.ledger.begin() as session:
        is_done = revoke(session, caller.tenant, name=name, actor=caller.actor)
    return viewer.redirect(_PAGE, notice=f"Key {name} is revoked." if is_done else "That key was revoked already.")


@router.post(f"{_PAGE}/access")
def set_access(
    viewer: Admin,
    name: Annotated[str, Form(max_length=100)],
    is_disabled: Annotated[bool, Form()],
) -> Response:
    """Take a person's access away, or give it back."""
    caller = viewer.caller
    with refusals_on(_PAGE), viewer.resources.ledger.begin() as session:
        set_disabled(session, caller.tenant, name, is_disabled=is_disabled, actor=caller.actor)
    return viewer.redirect(_PAGE, notice=f"{name} {'is shut out' if is_disabled else 'may sign in again'}.")
