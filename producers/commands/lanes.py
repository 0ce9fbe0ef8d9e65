"""`lanes` and `lane open`: which models are parked for the whole fleet, and how an operator opens one."""

from __future__ import annotations

from typing import Annotated

import typer

from producers.commands.context import AsJson, fail, installed, out, print_json, print_table

lane_app = typer.Typer(no_args_is_help=True, help="Lanes: one model of one provider's account each.")
app = typer.Typer()


@app.command()
def lanes(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the models that there was trouble with: which are parked, why, and for how long."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring.ledger import provider_circuits as ledger_lanes

        views = ledger_lanes.lanes(session)
    if as_json:
        print_json([view._asdict() for view in views])
        return
    if not views:
        out.print("every model flows; there was no trouble yet")
        return
    rows = [
        (view.provider, view.model, view.state.value, f"{view.parked_seconds:.0f} s", str(view.failures),
         view.reason or "")
        for view in views
    ]  # fmt: skip
    print_table(("PROVIDER", "MODEL", "STATE", "PARKED FOR", "FAILURES", "REASON"), rows)


@lane_app.command("open")
def open_(
    ctx: typer.Context,
    provider: Annotated[str, typer.Argument(metavar="PROVIDER", help="The account, as the gateway names it.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model.")],
    as_json: AsJson = False,
) -> None:
    """Let a parked lane flow at once, and the jobs that wait for it. It is parked again when its provider says so."""
    with installed(ctx) as installation, installation.ledger.begin() as session:
        from monitoring.ledger.provider_circuits import open_lane

        is_known = open_lane(session, provider, model)
    if not is_known:
        fail(f"there was no trouble with model {model} of provider {provider}; `pointsman lanes` lists all lanes")
    if as_json:
        print_json({"provider": provider, "model": model, "state": "open"})
    else:
        out.print(f"{provider}/{model} is open", markup=False)
