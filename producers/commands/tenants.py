"""Commands on tenants: their load, limits, pauses and notices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

from producers.commands.context import AsJson, installed, print_facts, print_json, print_result, print_rows
from routing.jobs import State

_ACTOR = "operator"
tenant_app = typer.Typer(no_args_is_help=True, help="Tenants: their load, limits and pauses.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
_MAX_WEIGHT = 1_000


@tenant_app.command("list")
def list_all(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the tenants with their waiting and running jobs."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import list_tenants

        tenants = list_tenants(session)
    print_rows(
        tenants,
        ("tenant", "waiting", "running", "limit", "weight", "approves", "provider", "state"),
        (
            (
                t.name,
                t.waiting,
                t.running,
                _limit(t.max_running),
                t.weight,
                "policy" if t.auto_approve else "people",
                t.provider or "none",
                "paused" if t.is_paused else "open",
            )
            for t in tenants
        ),
    )


@tenant_app.command()
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a tenant's settings and limits."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import show_tenant

        view = show_tenant(session, name)
    if as_json:
        print_json(view)
        return
    facts = (
        ("tenant", view.name),
        ("state", f"paused since {view.paused_at:%Y-%m-%d %H:%M:%S}" if view.paused_at else "open"),
        ("waiting", view.waiting),
        ("running", f"{view.running}, limit {_limit(view.max_running)}"),
        ("weight", view.weight),
        ("approves", "policy, where allowed" if view.auto_approve else "people"),
        ("records", f"model calls, for {view.recording_days:g} days" if view.recording_days else "no model calls"),
        ("notices", " and ".join(view.notices) or "none while jobs wait for a person"),
        ("chat", view.chat_host or "none"),
        ("provider", view.provider or "none, so jobs that need a model are refused"),
        ("overrides", view.overrides or "none"),
    )
    print_facts(facts)


@tenant_app.command("pause")
def pause_tenant(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Pause a tenant: its running jobs finish, no others start. Survives restarts."""
    _pause(ctx, name, is_paused=True)


@tenant_app.command("resume")
def resume_tenant(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Resume a paused tenant."""
    _pause(ctx, name, is_paused=False)


@tenant_app.command()
def weight(
    ctx: typer.Context,
    name: Name,
    turns: Annotated[
        int, typer.Argument(min=1, max=_MAX_WEIGHT, metavar="N", help="Its share relative to a tenant of weight 1.")
    ],
    as_json: AsJson = False,
) -> None:
    """Set a tenant's share of the workers while others wait, too."""
    _change(ctx, name, f"{name} has weight {turns}", weight=turns)


@tenant_app.command(context_settings={"ignore_unknown_options": True})  # -3 is a wrong number, not an option
def limit(
    ctx: typer.Context,
    name: Name,
    jobs: Annotated[str, typer.Argument(metavar="N|none", help="Concurrent jobs; none leaves it to the policy.")],
    as_json: AsJson = False,
) -> None:
    """Limit how many of a tenant's jobs run at once, over all queues."""
    if jobs != "none" and not (jobs.isascii() and jobs.isdigit() and 0 < int(jobs) < 2**31):
        raise typer.BadParameter("must be a positive number, or none")
    most = None if jobs == "none" else int(jobs)
    _change(ctx, name, f"{name} may run {_limit(most)} at once", max_running=most)


@tenant_app.command()
def record(
    ctx: typer.Context,
    name: Name,
    days: Annotated[float, typer.Argument(min=0, max=365, metavar="DAYS", help="How long to keep each; 0 for none.")],
    as_json: AsJson = False,
) -> None:
    """Record a tenant's model calls, redacted, so that its jobs can be replayed; what is kept stays its time."""
    message = f"{name}: model calls are {f'kept for {days:g} days' if days else 'not recorded'}"
    _change(ctx, name, message, recording_days=days or None)


@tenant_app.command("auto-approve")
def auto_approve(
    ctx: typer.Context,
    name: Name,
    value: Annotated[Literal["on", "off"], typer.Argument(metavar="on|off")],
    as_json: AsJson = False,
) -> None:
    """Let the policy approve a tenant's clean tier 1 work at low stakes, or leave every approval to people."""
    message = f"{name}: {'the policy approves what it may' if value == 'on' else 'people approve'}"
    _change(ctx, name, message, auto_approve=value == "on")


class Wait(StrEnum):
    """What a job may wait for a person in."""

    AWAITING_APPROVAL = State.AWAITING_APPROVAL.value
    CLARIFYING = State.CLARIFYING.value


@tenant_app.command()
def notify(
    ctx: typer.Context,
    name: Name,
    on: Annotated[
        list[Wait] | None,
        typer.Option("--on", help="A state that jobs wait for a person in; give it once for each. None for none."),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask for the URL of an incoming webhook of a chat that hears of it, too.")
    ] = False,
    mail: Annotated[
        list[str] | None,
        typer.Option("--mail", metavar="ADDRESS", help="An address that hears of it, too; give it once for each."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Choose which waits for a person a tenant is notified of; it is always notified of a job's end."""
    with installed(ctx) as installation:
        from producers.use_cases.notices import NoticeChoice

        url = typer.prompt("URL of the incoming webhook", hide_input=True) if chat else None
        choice = NoticeChoice(states=[wait.value for wait in on or ()], chat_url=url, mail_to=mail or [])
        is_private_allowed = installation.settings.webhook.allow_private
        view = installation.use_cases.notices.choose(
            choice, tenant=name, allow_private=is_private_allowed, actor=_ACTOR
        )
    places = ", ".join([*filter(None, (view.chat_host,)), *view.mail_to])
    told = f"{' and '.join(view.states) or 'nothing'}{f', also at {places}' if places else ''}"
    print_result(view, f"{name} hears of {told}")


def _pause(ctx: typer.Context, name: str, *, is_paused: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import pause_tenant, show_tenant

        pause_tenant(session, name, is_paused=is_paused, actor=_ACTOR)
        view = show_tenant(session, name)
    print_result(view, f"{name} is {'paused' if is_paused else 'resumed'}")


def _change(ctx: typer.Context, name: str, message: str, **values: Any) -> None:
    """Change a tenant, then print it as JSON or the message."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.use_cases.tenants import change_tenant, show_tenant

        change_tenant(session, name, actor=_ACTOR, **values)
        view = show_tenant(session, name)
    print_result(view, message)


def _limit(most: int | None) -> str:
    return "as the policy says" if most is None else str(most)
