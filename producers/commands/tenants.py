"""`tenant ...` and `queue list`: the switches of an installation, and how it stands."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from producers.commands.context import AsJson, installed, out, print_json, print_table
from producers.commands.operate import queue_app

app = typer.Typer(no_args_is_help=True, help="Tenants: who waits, how much they may do at once, and who is paused.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The tenant's name.")]
_ACTOR = "operator"
_LARGEST_WEIGHT = 1_000


@app.command("list")
def list_all(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the tenants, with what waits and runs of theirs."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.tenants import list_tenants

        tenants = list_tenants(session)
    if as_json:
        print_json([tenant.model_dump(mode="json") for tenant in tenants])
        return
    print_table(
        ("tenant", "waiting", "running", "limit", "weight", "approves", "provider", "state"),
        (
            (
                one.name, str(one.waiting), str(one.running), _limit(one.max_running), str(one.weight),
                "policy" if one.auto_approve else "people", one.provider or "none",
                "paused" if one.is_paused else "open",
            )
            for one in tenants
        ),
    )  # fmt: skip


@app.command()
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a tenant's switches and limits."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.tenants import show_tenant

        found = show_tenant(session, name)
    if as_json:
        print_json(found)
        return
    for label, value in (
        ("tenant", found.name),
        ("state", f"paused since {found.paused_at:%Y-%m-%d %H:%M:%S}" if found.paused_at else "open"),
        ("waiting", found.waiting),
        ("running", f"{found.running}, limit {_limit(found.max_running)}"),
        ("weight", found.weight),
        ("approves", "policy, where it may" if found.auto_approve else "people"),
        ("provider", found.provider or "none, so what needs a model is refused"),
        ("overrides", found.overrides or "none"),
    ):
        out.print(f"{label:<10} {value}", markup=False)


@app.command()
def pause(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Start none of a tenant's jobs any more; what runs goes on. Survives restarts."""
    _pause(ctx, name, is_paused=True, as_json=as_json)


@app.command()
def resume(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Start a tenant's jobs again."""
    _pause(ctx, name, is_paused=False, as_json=as_json)


@app.command()
def weight(
    ctx: typer.Context,
    name: Name,
    turns: Annotated[
        int, typer.Argument(min=1, max=_LARGEST_WEIGHT, metavar="N", help="Turns, where weight 1 takes one.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say how many turns a tenant takes while others wait, too."""
    _change(ctx, name, f"{name} has weight {turns}", as_json=as_json, weight=turns)


@app.command()
def limit(
    ctx: typer.Context,
    name: Name,
    jobs: Annotated[str, typer.Argument(metavar="N|none", help="Jobs at once; none leaves it to the policy.")],
    as_json: AsJson = False,
) -> None:
    """Say how many of a tenant's jobs may run at once, over all queues."""
    if jobs != "none" and not (jobs.isascii() and jobs.isdigit() and 0 < int(jobs) < 2**31):
        raise typer.BadParameter("must be a number above 0, or none")
    most = None if jobs == "none" else int(jobs)
    _change(ctx, name, f"{name} may run {_limit(most)} at once", as_json=as_json, max_running=most)


@app.command("auto-approve")
def auto_approve(
    ctx: typer.Context,
    name: Name,
    value: Annotated[Literal["on", "off"], typer.Argument(metavar="on|off")],
    as_json: AsJson = False,
) -> None:
    """Let policy approve a tenant's clean tier 1 work without high stakes, or leave all of it to people."""
    said = f"{name}: {'policy approves what it may' if value == 'on' else 'people approve'}"
    _change(ctx, name, said, as_json=as_json, auto_approve=value == "on")


@queue_app.command("list")
def list_queues(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the queues: what waits and runs, how old the oldest is, which are paused."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.tenants import list_queues as read_queues

        queues = read_queues(session)
    if as_json:
        print_json([queue.model_dump(mode="json") for queue in queues])
        return
    print_table(
        ("queue", "waiting", "oldest", "running", "state"),
        (
            (
                one.queue, str(one.waiting), f"{one.oldest_age_seconds:.0f} s" if one.waiting else "-",
                str(one.running), "paused" if one.is_paused else "open",
            )
            for one in queues
        ),
    )  # fmt: skip


def _pause(ctx: typer.Context, name: str, *, is_paused: bool, as_json: bool) -> None:
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.tenants import pause_tenant, show_tenant

        pause_tenant(session, name, is_paused=is_paused, actor=_ACTOR)
        view = show_tenant(session, name)
    print_json(view) if as_json else out.print(f"{name} is {'paused' if is_paused else 'resumed'}", markup=False)


def _change(ctx: typer.Context, name: str, said: str, *, as_json: bool, **values: Any) -> None:
    """Change a tenant, and print it as it stands then, or in words."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from producers.tenants import change_tenant, show_tenant

        change_tenant(session, name, actor=_ACTOR, **values)
        view = show_tenant(session, name)
    print_json(view) if as_json else out.print(said, markup=False)


def _limit(most: int | None) -> str:
    return "as the policy says" if most is None else str(most)
