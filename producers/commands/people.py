"""Commands about people who sign in, and sessions of the console."""

from __future__ import annotations

from typing import Annotated

import typer

from producers.commands.context import AsJson, Tenant, check_ids, fail, installed, print_result, print_rows, whole_id

people_app = typer.Typer(no_args_is_help=True, help="People who sign in, and open sessions of the console.")

_ACTOR = "operator"
Person = Annotated[str, typer.Argument(metavar="NAME", help="As `people list` shows it.")]


@people_app.command("list")
def list_people(ctx: typer.Context, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """List the people of a tenant with their roles, which the identity provider decides."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.people import list_access

        people = list_access(session, tenant, idle_seconds=installation.idle_seconds).people
    rows = [(p.name, p.role, f"{p.seen_at:%Y-%m-%d %H:%M}", "no" if p.disabled_at else "yes") for p in people]
    print_rows(people, ("name", "role", "signed in", "may enter"), rows)


@people_app.command("sessions")
def list_sessions(ctx: typer.Context, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """List a tenant's open sessions of the console, the newest first."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.people import list_access

        found = list_access(session, tenant, idle_seconds=installation.idle_seconds).sessions
    rows = [(s.id, s.actor, f"{s.created_at:%Y-%m-%d %H:%M}", f"{s.seen_at:%Y-%m-%d %H:%M}") for s in found]
    print_rows(found, ("session", "who", "since", "last used"), rows)


@people_app.command("end")
def end_session(
    ctx: typer.Context,
    session_id: Annotated[
        str,
        typer.Argument(
            metavar="SESSION",
            help="Its id, or as much of it as is no other's; see `people sessions`.",
            callback=check_ids,
        ),
    ],
    tenant: Tenant = "demo",
    as_json: AsJson = False,
) -> None:
    """End a session at once. Exit 1 if it is none, or over already."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.people import list_access, revoke_session

        open_ones = list_access(session, tenant, idle_seconds=installation.idle_seconds).sessions
        ids = [one.id for one in open_ones]
        found = whole_id(session_id, lambda _: ids, kind="session", listed_by="pointsman people sessions")
        is_done = revoke_session(session, tenant, found, actor=_ACTOR)
    if not is_done:
        fail(f"tenant {tenant} has no open session {found}")
    print_result({"session_id": str(found), "is_ended": True}, f"session {found} is over")


@people_app.command("disable")
def disable(ctx: typer.Context, name: Person, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """Shut a person out: their sessions end at once, and they cannot sign in again."""
    _set(ctx, name, tenant, is_disabled=True)


@people_app.command("enable")
def enable(ctx: typer.Context, name: Person, tenant: Tenant = "demo", as_json: AsJson = False) -> None:
    """Let a person sign in again."""
    _set(ctx, name, tenant, is_disabled=False)


def _set(ctx: typer.Context, name: str, tenant: str, *, is_disabled: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.people import set_disabled

        view = set_disabled(session, tenant, name, is_disabled=is_disabled, actor=_ACTOR)
    print_result(view, f"{name} {'is shut out' if is_disabled else 'may sign in again'}")
