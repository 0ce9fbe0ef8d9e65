"""Commands on a whole installation: run it here, examine it, back it up, remove its sandboxes."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from producers.commands.context import (
    FAILED,
    INTERRUPTED,
    OK,
    PROVIDER_HELP,
    AsJson,
    Context,
    clear_errors,
    context_of,
    err,
    fail,
    installed,
    out,
    print_facts,
    print_json,
    print_result,
)
from producers.commands.images import box_config
from routing.config import strip_settings

if TYPE_CHECKING:
    from ledger.cells.directory import Directory
    from producers.diagnosis import Finding
    from producers.local.embedded import Embedded
    from sites.content_store import ContentStore


app = typer.Typer()

DEMO_SITE = "bakery"
_CHROMIUM = "POINTSMAN_DISPATCHER__CHROMIUM"


@app.command()
def up(
    ctx: typer.Context,
    home: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory of data, logs and secrets.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="Port of the HTTP API.")] = 8080,
    concurrency: Annotated[int, typer.Option(min=1, metavar="N", help="Processes in each worker pool.")] = 2,
    speed: Annotated[
        Literal["real", "max"], typer.Option(metavar="SPEED", help="Of the fake provider: real or max.")
    ] = "real",
    provider: Annotated[str | None, typer.Option(metavar="NAME", help=PROVIDER_HELP)] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="A policy instead of the shipped one.")] = None,
    repositories: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            exists=True,
            help="Tickets may name repositories below it: file:///DIR/NAME.",
        ),
    ] = None,
) -> None:
    """Run everything on this machine, with nothing to install, until Ctrl-C."""
    from gateway.fake_provider.config import FakeProviderConfig
    from producers.local.embedded import Embedded, Options, account_in
    from producers.local.supervisor import data_home, write_up_file
    from producers.servers import KEY, URL

    environment = context_of(ctx).environment
    with clear_errors():
        account = account_in(environment, provider)
    options = Options(
        home=home or data_home(environment),
        account=account,
        fake_provider=FakeProviderConfig(speed=speed, faults=True),
        policy=policy and policy.absolute(),
        repositories=repositories and repositories.resolve(),
        api_port=port,
        concurrency=concurrency,
        idle_children=0,
        site=DEMO_SITE,
        environment={_CHROMIUM: chromium_of(environment)},
    )
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    with clear_errors():
        out.print("starting PostgreSQL, Valkey, gateway, API, dispatcher, exporter and three worker pools ...")
        with Embedded(options, base_environment=environment) as embedded:
            own = {URL: embedded.api_url, KEY: embedded.api_key}
            path = write_up_file(environment, {**embedded.environment, **own})
            try:
                _announce(embedded, program=_program(environment), settings=path)
                _keep_running(embedded, stopping)
            finally:
                path.unlink(missing_ok=True)


def chromium_of(environment: Mapping[str, str]) -> str:
    """Return what takes the sites' pictures in `up`: what is set, or the Chromium of this machine; empty for none."""
    names, path = ("chromium", "chromium-browser", "google-chrome"), environment.get("PATH", "")
    found = next(filter(None, (shutil.which(name, path=path) for name in names)), "")
    return environment.get(_CHROMIUM, found)


def _announce(embedded: Embedded, *, program: str, settings: Path) -> None:
    models = f"{embedded.provider}, paid by your key" if embedded.options.account else "the fake provider, at no cost"
    site = f"{embedded.pages_url}/live/demo/{DEMO_SITE}/"
    facts = (
        ("console", f"{embedded.api_url}/console/"),
        ("API", f"{embedded.api_url}/docs"),
        ("API key", embedded.api_key),
        ("pages", embedded.pages_url),
        ("demo site", site),
        ("metrics", f"{embedded.exporter_url}/metrics"),
        ("broker", f"POINTSMAN_BROKER__URL in {settings}"),
        ("models", models),
        ("tier 3", _tier_three(embedded)),
        ("logs", embedded.home / "logs"),
    )
    print_facts(facts)
    if (port := embedded.options.api_port) and not embedded.api_url.endswith(f":{port}"):
        out.print(f"\nPort {port} is taken, so the API uses another.")
    out.print(
        f"\nTry, in another terminal:\n  {program} submit \"Change the hero heading to 'Bread since 1932'\" "
        f"--site {DEMO_SITE} --wait\nCtrl-C stops everything; the data stays."
    )


def _tier_three(embedded: Embedded) -> str:
    boxes = embedded.boxes
    if boxes.off:
        return f"off: {boxes.off}. Then restart."
    packages = f"; no packages: {boxes.no_packages}" if boxes.no_packages else ""
    return f"on, in sandboxes of {embedded.box_config().engine or 'the local Docker engine'}{packages}"


def _program(environment: Mapping[str, str]) -> str:
    """Return how to call this program, whose directory may not be on the PATH, as after `make up`."""
    program = Path(sys.argv[0])
    on_path = shutil.which("pointsman", path=environment.get("PATH"))
    is_on_path = on_path is not None and Path(on_path).resolve() == program.resolve()
    return str(program) if program.name == "pointsman" and not is_on_path else "pointsman"


def _keep_running(embedded: Embedded, stopping: threading.Event) -> None:
    assert embedded.supervisor is not None
    while not stopping.wait(1.0):
        for name in embedded.supervisor.revive():
            out.print(f"{name} died and was restarted; its log is in {embedded.home / 'logs'}")


@app.command()
def demo(
    ctx: typer.Context,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep data and logs in this directory.")] = None,
) -> None:
    """Demonstrate the product end to end in a temporary installation. Exit 1 if anything fails."""
    from producers.local.demo import run_demo

    logging.disable(logging.WARNING)
    signal.signal(signal.SIGTERM, _interrupt)
    with clear_errors():
        try:
            is_good = run_demo(dict(context_of(ctx).environment), keep=keep)
        except KeyboardInterrupt:
            err.print("\ninterrupted; everything is stopped")
            raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(OK if is_good else FAILED)


def _interrupt(*_: object) -> NoReturn:
    """End as Ctrl-C does: stop servers and remove temporary files."""
    raise KeyboardInterrupt


@app.command()
def backup(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to create.")],
    as_json: AsJson = False,
) -> None:
    """Back up ledger and site files, consistent with each other, while everything runs. Secrets are not included."""
    from producers.backup import back_up

    with installed(ctx) as installation:
        made = back_up(
            installation.ledger,
            installation.ledger_url,
            installation.content_store,
            target.absolute(),
            environment=strip_settings(installation.environment()),
            progress=_report,
        )
    print_result(
        made,
        f"{target}: {made.counts['jobs']} jobs, {made.counts['sites']} sites, {made.blobs} files; "
        f"audit head {made.audit_head}",
        f"not included, keep elsewhere: {', '.join(made.keys)}",
    )
    for sha256 in made.damaged:
        err.print(f"pointsman: file {sha256} is missing or damaged in the content store; it is not in the backup")
    raise typer.Exit(FAILED if made.damaged else OK)


@app.command()
def restore(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="DIR", help="What `pointsman backup` made.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Delete what the ledger holds, and in time the files that the backup does not name."
        ),
    ] = False,
    resend: Annotated[
        bool,
        typer.Option(help="Resend notifications that were due at the time of the backup; receivers may have them."),
    ] = False,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Restore into the home of a stopped `pointsman up --home DIR`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a ledger and content store that no process uses. Exit 1 if the audit chain is broken."""
    from ledger.store import Ledger, create_ledger_engine
    from producers.backup import restore as restore_backup

    with (
        clear_errors(),
        _target(ctx, home) as (ledger_url, content_store, signing_key, directory, cell),
        closing(Ledger(create_ledger_engine(ledger_url))) as ledger,
    ):
        done = restore_backup(
            ledger,
            ledger_url,
            content_store,
            source.absolute(),
            environment=strip_settings(context_of(ctx).environment),
            is_forced=force,
            resend=resend,
            signing_key=signing_key,
            directory=directory,
            cell=cell,
            progress=_report,
        )
    facts, unverified = done.repaired, "the audit chain was not verified: POINTSMAN_AUDIT__SIGNING_KEY is not set"
    print_result(
        done._asdict() | {"repaired": facts._asdict(), "placed": done.placed._asdict()},
        f"restored as of {done.backup.made_at:%Y-%m-%d %H:%M:%S} UTC: {done.backup.counts['jobs']} jobs, "
        f"{done.shown} sites live, {facts.attempts} attempts lost, {facts.calls} calls charged in full, "
        f"{facts.withheld} notifications withheld",
        *(f"{tenant} has moved to another cell since: nothing of it is here" for tenant in done.placed.elsewhere),
        *([unverified] if done.audit_problems is None else []),
    )
    for tenant in done.placed.missing:
        err.print(f"pointsman: {tenant} has come to this cell since: the backup lacks it")
    for problem in done.audit_problems or ():
        err.print(f"pointsman: {problem}")
    raise typer.Exit(FAILED if done.audit_problems else OK)


@contextmanager
def _target(ctx: typer.Context, home: Path | None) -> Iterator[tuple[str, ContentStore, bytes, Directory | None, str]]:
    """Yield ledger URL, content store, audit key, directory and cell of the installation to restore into."""
    if home is not None:
        from producers.local.preparation import open_offline
        from sites.content_store import ContentStore

        with open_offline(home) as found:
            yield found.ledger_url, ContentStore(found.content_store), found.signing_key, None, ""
        return
    with installed(ctx) as installation:
        settings = installation.settings
        key = settings.audit.signing_key.get_secret_value().encode()
        yield installation.ledger_url, installation.content_store, key, installation.directory, settings.cells.name


def _report(step: str) -> None:
    err.print(f"{step} ...")


@app.command()
def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check every part of an installation: OK, WARN or FAIL, and what to do. Exit 1 if one fails."""
    from producers.diagnosis import Verdict, worst

    findings = []
    with clear_errors():
        for finding in _examine(context_of(ctx)):
            findings.append(finding)
            if not as_json:
                out.print(finding.line, soft_wrap=True)
    verdict = worst(findings)
    if as_json:
        print_json({"verdict": verdict.value, "findings": [finding._asdict() for finding in findings]})
    raise typer.Exit(FAILED if verdict is Verdict.FAIL else OK)


def _examine(context: Context) -> Iterator[Finding]:
    """Check every part; only an invalid configuration stops this."""
    from producers.diagnosis import examine, fail, ok
    from routing.errors import PolicyError

    try:
        installation = context.installation()
        policy = installation.policy
        if installation.settings.policy.vocabulary is not None:  # the shipped one is tested, and takes long to read
            _ = installation.vocabularies
    except (PolicyError, OSError) as error:
        yield fail("configuration", str(error), "fix it: no program starts with it")
        return
    yield ok("configuration", f"policy {policy.prices_as_of}")
    from producers.doctor import checks_of  # takes longer than all before it

    try:
        yield from examine(checks_of(installation, dict(context.environment)))
    finally:
        installation.close()


@app.command("dashboards")
def write_dashboards(
    directory: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of the dashboards.")],
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="Also write the alert rules to this file.")
    ] = None,
    docs: Annotated[
        str, typer.Option("--docs", metavar="URL", help="Where the documentation is; alerts link to its runbooks.")
    ] = "",
    grafana: Annotated[
        str, typer.Option("--grafana", metavar="URL", help="Where Grafana is; alerts link to its dashboards.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Write the dashboards as JSON for Grafana's file provisioning; no running installation is needed.

    Point a provider of type `file` (grafana/provisioning/dashboards/*.yml) at DIR. Viewers choose the Prometheus data
    source of each dashboard. With --rules the alert rules go to FILE, for `rule_files` of prometheus.yml.
    """
    texts = {directory / name: text for name, text in read_dashboards().items()}
    if rules is not None:
        texts[rules] = read_alert_rules(docs=docs, grafana=grafana)
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        fail(f"dashboards: {error.filename}: {error.strerror}")
    written = [str(path) for path in texts]
    print_result({"written": written}, *written)


def read_dashboards() -> dict[str, str]:
    """Return Grafana's dashboards by file name."""
    folder = resources.files("monitoring") / "dashboards"
    return {file.name: file.read_text() for file in sorted(folder.iterdir(), key=lambda file: file.name)}


def read_alert_rules(*, docs: str = "", grafana: str = "") -> str:
    """Return the alert rules for Prometheus.

    Without the URLs of documentation and Grafana their links stay relative.
    """
    text = (resources.files("monitoring") / "alerts" / "rules.yaml").read_text()
    if docs:
        text = text.replace("runbook_url: ", f"runbook_url: {docs.rstrip('/')}/")
    if grafana:
        text = text.replace("dashboard_url: ", f"dashboard_url: {grafana.rstrip('/')}")
    return text


box_app = typer.Typer(no_args_is_help=True, help="Sandboxes of this installation.")


@box_app.callback()
def _group() -> None:
    """Keep `clear` a sub-command although it is the only one."""


@box_app.command()
def clear(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Remove every sandbox, network and workspace of this installation, once its workers have stopped."""
    from sandbox.pool import Reaper, open_engine

    with clear_errors():
        engine = open_engine(box_config(ctx))
        try:
            swept = Reaper(engine).clear()
        finally:
            engine.close()
    print_result(
        swept._asdict(), f"removed {swept.containers} containers, {swept.networks} networks, {swept.volumes} volumes"
    )
