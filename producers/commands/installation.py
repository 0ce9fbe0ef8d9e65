"""`up` and `demo`: the whole product on this machine, with nothing to install."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from pydantic import BaseModel, ConfigDict

from producers.commands.context import (
    FAILED,
    INTERRUPTED,
    OK,
    AsJson,
    clear_errors,
    context_of,
    err,
    installed,
    out,
    print_json,
)
from producers.local.supervisor import data_home, remove_up_file, write_up_file
from routing.config import read_settings, without_settings
from sandbox.config import BoxConfig

if TYPE_CHECKING:
    from producers.backup import Restored
    from producers.local.embedded import Embedded


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
    from gateway.fake_provider.config import RehearsalConfig
    from producers.local.embedded import (
        ANTHROPIC_URL,
        Embedded,
        Options,  # brings servers that no other command needs
    )

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
        ("console", f"{embedded.api_url}/console/"),
        ("API", f"{embedded.api_url}/docs"),
        ("API key", embedded.api_key),
        ("pages", embedded.pages_url),
        ("demo site", site),
        ("metrics", f"{embedded.exporter_url}/metrics"),
        ("broker", embedded.broker_url),
        ("models", models),
        ("tier 3", _tier_three(embedded)),
        ("logs", embedded.home / "logs"),
    ):
        out.print(f"{name:>10}  {value}", markup=False)
    if (wanted := embedded.options.api_port) and not embedded.api_url.endswith(f":{wanted}"):
        out.print(f"\nPort {wanted} is taken, so the API has another.")
    out.print(
        f"\nTry, in another terminal:\n  {program} submit \"Change the hero heading to 'Bread since 1932'\" "
        f"--site {DEMO_SITE} --wait\nCtrl-C stops everything; the data stays.",
        markup=False,
    )


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
    from producers.local.demo import run_demo

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


# `backup` and `restore`: an installation as of one moment, and back.


@app.command()
def backup(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Where the backup goes; must not be there yet.")],
    as_json: AsJson = False,
) -> None:
    """Back up ledger and site files, consistent with each other, while everything runs. Secrets are not included."""
    from producers.backup import back_up

    with installed(ctx) as installation:
        made = back_up(
            installation.ledger,
            installation.ledger_url,
            installation.den,
            target.absolute(),
            environment=without_settings(installation.environment()),
            progress=_tell,
        )
    if as_json:
        print_json(made)
    else:
        out.print(
            f"{target}: {made.counts['jobs']} jobs, {made.counts['sites']} sites, {made.blobs} files; "
            f"audit head {made.audit_head}",
            markup=False,
        )
        out.print(f"keep elsewhere what is not in it: {', '.join(made.keys)}", markup=False)
    for sha256 in made.damaged:
        err.print(f"pointsman: the store cannot give file {sha256} any more; it is not in the backup", markup=False)
    raise typer.Exit(FAILED if made.damaged else OK)


@app.command()
def restore(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="DIR", help="What `pointsman backup` made.")],
    force: Annotated[bool, typer.Option("--force", help="Give up what the ledger holds.")] = False,
    resend: Annotated[
        bool,
        typer.Option(help="Send notifications that were due when the backup was made; their receivers may have them."),
    ] = False,
    home: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Restore into what `pointsman up --home DIR` runs; it must not run now."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a ledger and a store that no process uses. Exit 1 when the audit chain is not whole."""
    with clear_errors(), _target(ctx, home) as (ledger_url, den, signing_key):
        done = _restore(ctx, source.absolute(), ledger_url, den, force=force, resend=resend, signing_key=signing_key)
    if as_json:
        print_json(
            {
                "backup": done.backup.model_dump(mode="json"),
                "repaired": done.repaired._asdict(),
                "shown": done.shown,
                "lagging": done.lagging,
                "audit_problems": done.audit_problems,
            }
        )
    else:
        facts = done.repaired
        out.print(
            f"restored as of {done.backup.made_at:%Y-%m-%d %H:%M:%S} UTC: {done.backup.counts['jobs']} jobs, "
            f"{done.shown} sites shown, {facts.attempts} attempts lost, {facts.calls} calls charged in full, "
            f"{facts.withheld} notifications withheld",
            markup=False,
        )
        if done.audit_problems is None:
            out.print("the audit chain was not checked: POINTSMAN_AUDIT__SIGNING_KEY is not set")
    for problem in done.audit_problems or ():
        err.print(f"pointsman: {problem}", markup=False)
    raise typer.Exit(FAILED if done.audit_problems else OK)


@contextmanager
def _target(ctx: typer.Context, home: Path | None) -> Iterator[tuple[str, Path, bytes]]:
    """Give the ledger's URL, the Den's directory and the audit trail's key of what is restored into."""
    if home is not None:
        from producers.local.embedded import open_offline

        with open_offline(home) as found:
            yield found.ledger_url, found.den, found.signing_key
        return
    with installed(ctx) as installation:
        key = installation.settings.audit.signing_key.get_secret_value()
        yield installation.ledger_url, installation.settings.den.root, key.encode()


def _restore(
    ctx: typer.Context, source: Path, ledger_url: str, den: Path, *, force: bool, resend: bool, signing_key: bytes
) -> Restored:
    from ledger.store import Ledger, create_ledger_engine
    from producers.backup import restore as bring_back
    from sites.content_store import Den

    ledger = Ledger(create_ledger_engine(ledger_url))
    try:
        return bring_back(
            ledger,
            ledger_url,
            Den(den),
            source,
            environment=without_settings(context_of(ctx).environment),
            is_forced=force,
            resend=resend,
            signing_key=signing_key,
            progress=_tell,
        )
    finally:
        ledger.close()


def _tell(what: str) -> None:
    err.print(f"{what} ...", markup=False)


# `image build`: the image that boxes are made from.

image_app = typer.Typer(no_args_is_help=True, help="The image that boxes are made from.")


class BoxSettings(BaseModel):
    """The section that the commands on boxes read."""

    model_config = ConfigDict(frozen=True)

    box: BoxConfig = BoxConfig()


@image_app.command("build")
def build_image(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Build it even if the engine has it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the image where it is missing: from a base that can be pulled, else with debootstrap (needs root)."""
    from sandbox.docker.engine import DEFAULT_ENGINE
    from sandbox.image.build import build

    with clear_errors():
        config = read_settings(BoxSettings, context_of(ctx).environment).box
        with err.status("") as status:

            def say(line: str) -> None:
                status.update(line) if err.is_terminal else err.print(line, markup=False)

            built = build(
                config.engine or DEFAULT_ENGINE, base_image=config.base_image, cache=config.cache, say=say, force=force
            )
    if as_json:
        print_json(built._asdict())
        return
    state = f"built in {built.seconds:.0f} s" if built.is_new else "is there"
    out.print(
        f"{built.reference} {state}: {built.base}, Node {built.node}, Claude Code {built.claude}, "
        f"{built.bytes / 1e6:.0f} MB",
        markup=False,
    )


# `box clear`: what an installation has on its engine, taken away at its end.

box_app = typer.Typer(no_args_is_help=True, help="Boxes of this installation, on its engine.")


@box_app.callback()
def _group() -> None:
    """Keep `clear` a command of its own while it is the only one."""


@box_app.command()
def clear(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Remove every box, network and workspace of this installation: for its end, once its workers have stopped."""
    from sandbox.pool import Reaper, open_engine

    with clear_errors():
        engine = open_engine(read_settings(BoxSettings, context_of(ctx).environment).box)
        try:
            swept = Reaper(engine).clear()
        finally:
            engine.close()
    if as_json:
        print_json(swept._asdict())
        return
    out.print(f"removed {swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes")
