"""`capacity`: how many workers a load needs, what that costs, and what gives out next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from producers.commands.context import FAILED, USAGE, AsJson, fail, installed

app = typer.Typer()


def _many(metavar: str, words: str) -> object:
    return typer.Option(metavar=metavar, help=f"{words}; repeatable.")


Words = list[str] | None


@app.command()
def capacity(
    ctx: typer.Context,
    rate: Annotated[Words, _many("RATE", "New jobs: 5/s, 3000000/day, or spec=2/s; without: as measured")] = None,
    wait: Annotated[Words, _many("SECONDS", "What 95 % of attempts may wait at most, or spec=10")] = None,
    ceiling: Annotated[
        float | None,
        typer.Option(metavar="USD", min=0, help="What a day may cost; without: the policy's budget."),
    ] = None,
    slots: Annotated[Words, _many("QUEUE=N", "A pool to be judged, not chosen; or `now`: all that are there")] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help="ledger, defaults, or a file of --save; without: the ledger."),
    ] = None,
    hours: Annotated[int, typer.Option(metavar="N", min=1, max=8_760, help="How far back the ledger is read.")] = 24,
    peak: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", min=1, max=100, help="Peak over a day's mean: 2.5 of rates by the day, else 1."),
    ] = None,
    bursts: Annotated[
        float, typer.Option(metavar="FACTOR", min=1, max=10, help="A burst's rate over the mean, a tenth of the time.")
    ] = 1.0,
    burst_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86_400, help="Mean length of a burst.")
    ] = 60.0,
    replay: Annotated[bool, typer.Option("--replay", help="Let jobs come as they came, not at random.")] = False,
    slot_usd: Annotated[float, typer.Option(metavar="USD", min=0, help="What a worker's slot costs an hour.")] = 0.0,
    busy: Annotated[
        float, typer.Option(metavar="SHARE", min=0.05, max=0.99, help="How busy a planned slot may be.")
    ] = 0.9,
    apis: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="API processes.")] = 1,
    gateways: Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Gateway processes.")] = 1,
    tenants: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Tenants with work; without: as measured.")
    ] = None,
    limits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What the other parts bear, as make bench ONLY=capacity writes."),
    ] = None,
    limit: Annotated[Words, _many("NAME=VALUE", "One of these")] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of the simulation.")] = 1,
    attempts: Annotated[
        int | None, typer.Option(metavar="N", min=1_000, max=400_000, help="Length of the simulation.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep what was measured, for --from.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when a target, the ceiling or a part gives.")] = False,
    as_json: AsJson = False,
) -> None:
    """Size the pools by a queueing formula and by simulation, and name what gives out next.

    Durations, escalations and costs are those of the ledger's attempts; what was not measured is taken by defaults,
    and the answer says so. docs/scaling.md explains both methods and where they are weak.
    """
    from monitoring.capacity.arrivals import Bursts
    from monitoring.errors import CapacityError
    from producers.capacity import Asked, answer, save_workload
    from producers.commands.capacity_shown import show

    asked = Asked(
        rates=rate or (), waits=wait or (), slots=slots or (), limits=limit or (), limits_file=limits, source=source,
        hours=hours, peak=peak, ceiling_usd=ceiling, slot_usd_hour=slot_usd, most_busy=busy,
        bursts=Bursts(peak=bursts, seconds=burst_seconds), is_replay=replay, apis=apis, gateways=gateways,
        tenants=tenants, seed=seed, attempts=attempts,
    )  # fmt: skip
    with installed(ctx) as installation:
        try:
            found = answer(installation, asked)
            if save is not None:
                save_workload(found.workload, save)
        except CapacityError as error:
            fail(str(error), code=USAGE)
    show(found, as_json=as_json)
    if check and not found.plan.is_good:
        raise typer.Exit(FAILED)
