"""`up` and `demo`: the whole product on this machine, with nothing to install."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from producers.commands.context import FAILED, INTERRUPTED, clear_errors, context_of, err, out
from producers.upfile import data_home, remove_up_file, write_up_file

if TYPE_CHECKING:
    from producers.embedded import Embedded

app = typer.Typer()

DEMO_SITE = "bakery"


@app.command()
def up(
    ctx: typer.Context,
    home: Annotated[Path | None, typer.Option(metavar="DIR", help="Where data, logs and secrets are kept.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port of the HTTP door.")] = 8080,
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Processes in each worker pool.")] = 2,
    speed: Annotated[
        Literal["real", "max"], typer.Option(metavar="SPEED", help="Of the rehearsal model: real or max.")
    ] = "real",
) -> None:
    """Start everything embedded, print the URL, and keep it running until Ctrl-C."""
    from producers.embedded import ANTHROPIC_URL, Embedded, Options  # brings servers that no other command needs
    from sandbox.rehearsal.config import RehearsalConfig

    environment = context_of(ctx).environment
    options = Options(
        home=home or data_home(environment),
        anthropic_key=environment.get("ANTHROPIC_API_KEY") or None,
        anthropic_url=environment.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL,
        rehearsal=RehearsalConfig(speed=speed),
        api_port=port,
        concurrency=concurrency,
    )
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with clear_errors():
        out.print("starting PostgreSQL, Valkey, gateway, API, dispatcher, exporter and three worker pools ...")
        with Embedded(options, base_environment=environment) as embedded:
            embedded.import_site(DEMO_SITE)
            path = write_up_file(environment, embedded.environment)
            try:
                _announce(embedded, program=_program(environment))
                _keep_running(embedded, stopping)
            finally:
                remove_up_file(path)


def _announce(embedded: Embedded, *, program: str) -> None:
    models = "Claude, paid by your key" if embedded.provider == "anthropic" else "the rehearsal model, at no cost"
    site = f"{embedded.pages_url}/live/demo/{DEMO_SITE}/"
    for name, value in (
        ("console", f"{embedded.api_url}/console/"), ("API", f"{embedded.api_url}/docs"), ("API key", embedded.api_key),
        ("pages", embedded.pages_url), ("demo site", site),
        ("metrics", f"{embedded.exporter_url}/metrics"), ("broker", embedded.broker_url), ("models", models),
        ("tier 3", _tier_three(embedded)),
        ("logs", embedded.home / "logs"),
    ):  # fmt: skip
        out.print(f"{name:>10}  {value}", markup=False)
    if (wanted := embedded.options.api_port) and not embedded.api_url.endswith(f":{wanted}"):
        out.print(f"\nPort {wanted} is taken, so the API has another.")
    out.print(f"\nTry, in another terminal:\n  {program} submit \"Change the hero heading to 'Bread since 1932'\" "
              f"--site {DEMO_SITE} --wait\nCtrl-C stops everything; the data stays.", markup=False)  # fmt: skip


def _tier_three(embedded: Embedded) -> str:
    boxes = embedded.boxes
    if boxes.off:
        return f"off: {boxes.off}. Then start this again."
    packages = f"; no packages in them: {boxes.no_packages}" if boxes.no_packages else ""
    return f"on, in boxes of {embedded.box_config().engine or 'the local Docker engine'}{packages}"


def _program(environment: Mapping[str, str]) -> str:
    """Return what to type for this program where its directory may not be on the PATH, as after `make up`."""
    called = Path(sys.argv[0])
    found = shutil.which("pointsman", path=environment.get("PATH"))
    is_found = found is not None and Path(found).resolve() == called.resolve()
    return str(called) if called.name == "pointsman" and not is_found else "pointsman"


def _keep_running(embedded: Embedded, stopping: threading.Event) -> None:
    assert embedded.supervisor is not None
    while not stopping.wait(1.0):
        for name in embedded.supervisor.revive():
            out.print(f"{name} died and was started again; its log is in {embedded.home / 'logs'}", markup=False)


@app.command()
def demo(
    ctx: typer.Context,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep data and logs in this directory.")] = None,
) -> None:
    """Show the product's main job, end to end, on embedded defaults. Exit 1 if anything is not as it should be."""
    from producers.demo import run_demo

    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    with clear_errors():
        try:
            is_good = run_demo(dict(context_of(ctx).environment), keep=keep)
        except KeyboardInterrupt:
            err.print("\ninterrupted; everything is stopped")
            raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(0 if is_good else FAILED)


def _interrupt(*_: object) -> NoReturn:
    """End as Ctrl-C does: servers are stopped and temporary files removed on the way out."""
    raise KeyboardInterrupt
