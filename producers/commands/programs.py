"""Commands that run the processes of an installation, and `migrate`."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, Field

from monitoring.config import CellsConfig, LedgerConfig, LogsConfig, TracingConfig
from monitoring.heartbeat import is_well
from monitoring.logs import configure_logging
from producers.commands.context import USAGE, AsJson, become, clear_errors, context_of, fail, installed, print_result
from routing.config import PolicyConfig, read_settings, strip_settings

if TYPE_CHECKING:
    from producers.bootstrap import Installation, Settings


app = typer.Typer()


class _ProgramSettings(BaseModel, frozen=True):
    """The sections that every program reads."""

    ledger: LedgerConfig = LedgerConfig()
    policy: PolicyConfig = PolicyConfig()
    logs: LogsConfig = LogsConfig()
    tracing: TracingConfig = TracingConfig()


_BROKER_SECONDS = 2.0
"""How long a scrape waits for the broker."""


@app.command()
def worker(
    ctx: typer.Context,
    queues: Annotated[list[str] | None, typer.Argument(metavar="QUEUE...", help="Queues to consume.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Jobs at once: by default 2, in a dense pool 50.")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            help="prefork, a process for each job, or dense, a thread: the default where all wait for a model."
        ),
    ] = None,
    idle_children: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Processes that a prefork pool keeps while idle; default all."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Report by the exit code whether the worker is healthy.")
    ] = False,
) -> None:
    """Consume one or several queues with a Celery pool."""
    if check:  # here, as a probe asks often: the worker's own imports take two seconds of the processor
        if not (heartbeat := context_of(ctx).environment.get("POINTSMAN_WORKER__HEARTBEAT")):
            fail("--check needs POINTSMAN_WORKER__HEARTBEAT, as the worker has it", code=USAGE)
        raise typer.Exit(0 if is_well(Path(heartbeat)) else 1)
    options = {"concurrency": concurrency, "pool": pool, "idle-children": idle_children}
    become(ctx, "workers.main", *(queues or ()), options=options)


@app.command()
def api(ctx: typer.Context) -> None:
    """Serve the HTTP API and console and, on a separate listener, previews and live pages."""
    from producers.api.app import serve

    with installed(ctx) as installation:
        _begin(installation.settings, traced_as="api")
        serve(installation)


@app.command()
def dispatcher(
    ctx: typer.Context,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve the metrics, too, as `exporter` does.")] = False,
) -> None:
    """Dispatch jobs from the ledger to the queues, and recover lost attempts."""
    from ledger.operations.audit_archive import Archive
    from producers.dispatch.broker import BrokerLists
    from producers.dispatch.dispatcher import Dispatcher, DispatcherLoop
    from producers.dispatch.housekeeping import Projector
    from producers.use_cases.routing_log import RoutingLog

    with installed(ctx) as installation:
        settings = installation.settings
        signing_key = settings.audit.signing_key.get_secret_value()
        if not signing_key:
            fail("POINTSMAN_AUDIT__SIGNING_KEY: must be set to seal the audit trail", code=USAGE)
        holder = f"{socket.gethostname()}.{os.getpid()}"
        _begin(settings, traced_as="dispatcher")
        routing_log = None
        if (directory := settings.logs.routing_dir) is not None:
            known_keys = installation.use_cases.known_keys
            routing_log = RoutingLog(installation.ledger, directory, known_keys=known_keys)
        dispatcher = Dispatcher(
            installation.ledger,
            installation.publisher,
            BrokerLists(settings.broker.url, tls=settings.broker.tls),
            policy=installation.policy,
            config=settings.dispatcher,
            holder=holder,
            signing_key=signing_key.encode(),
            routing_log=routing_log,
            show_lagging=Projector(installation.ledger, installation.content_store).run,
            archive=Archive(settings.audit.archive_dir) if settings.audit.archive_dir is not None else None,
            heads=installation.audit_heads,
        )
        with ExitStack() as running:
            running.enter_context(_background_threads(installation, holder))
            if metrics:
                from monitoring.exporter import serving

                running.enter_context(serving(installation.ledger, **_exporter_settings(installation)))
            DispatcherLoop(dispatcher, ledger_url=installation.ledger_url, config=settings.dispatcher).run()


def _exporter_settings(installation: Installation) -> dict[str, Any]:
    from monitoring.gauges import read_broker, read_cell
    from producers.dispatch.redis_client import open_broker

    settings = installation.settings
    broker = open_broker(settings.broker.url, tls=settings.broker.tls, timeout_seconds=_BROKER_SECONDS)
    others = [partial(read_broker, broker)]
    if installation.directory is not None:
        others.append(partial(read_cell, installation.directory, settings.cells.name))
    return {
        "host": settings.exporter.host,
        "port": settings.exporter.port,
        "policy": installation.policy,
        "others": others,
    }


@contextmanager
def _background_threads(installation: Installation, holder: str) -> Iterator[None]:
    """Run what must not delay the dispatcher beside it: messages, notes, reviews, intake, thumbnails, housekeeping."""
    from producers.dispatch.containment import deliver
    from producers.dispatch.housekeeping import Housekeeper
    from producers.dispatch.thumbnails import ThumbnailMaker
    from producers.dispatch.webhooks import WebhookSender
    from producers.intake.celery_intake import CeleryIntake, IntakeLists
    from producers.intake.webhook_receiver import WebhookReceiver
    from producers.use_cases.reviews import REVIEW_TICK_SECONDS, ReviewRounds
    from producers.use_cases.tickets import TicketWriter, may_write

    settings, ledger, stopping = installation.settings, installation.ledger, threading.Event()
    broker, tick_seconds = settings.broker, settings.dispatcher.tick_seconds
    console_url = f"{settings.api.public_url.rstrip('/')}/console"
    lists = IntakeLists(broker.url, tls=broker.tls)
    with ExitStack() as opened:
        opened.callback(lists.close)
        forwarder = None
        if (directory := installation.directory) is not None:
            from producers.cells.intake import Forwarder

            forwarder = Forwarder(directory, cell=settings.cells.name, broker_url=broker.url, tls=broker.tls)
            opened.callback(forwarder.close)
        intake = CeleryIntake(
            lists, ledger, installation.submitter, holder=holder, is_shared=broker.shared_intake, forward=forwarder
        )
        sender = WebhookSender(
            ledger, settings.webhook, installation.policy.webhooks, console_url=console_url, mail=settings.mail
        )
        writer = TicketWriter(ledger, settings.accounts)
        receiver = WebhookReceiver(ledger, installation.submitter, settings.accounts, may_write=may_write)
        reviews = ReviewRounds(installation.use_cases.rounds)
        maker = ThumbnailMaker(ledger, installation.content_store, program=settings.dispatcher.chromium, holder=holder)
        keeper = Housekeeper(
            ledger, installation.content_store, installation.policy, runs_root=settings.runs.root, holder=holder
        )
        works: list[Callable[[], None]] = [
            partial(deliver, writer, stopping, tick_seconds=tick_seconds),
            partial(deliver, receiver, stopping, tick_seconds=tick_seconds),
            partial(deliver, reviews, stopping, tick_seconds=REVIEW_TICK_SECONDS),
            partial(sender.serve, stopping, tick_seconds=tick_seconds),
            partial(intake.serve, stopping, tick_seconds=tick_seconds),
            partial(maker.run, stopping),
        ]
        if forwarder is not None:
            works.append(partial(forwarder.serve, stopping))
        threads = [threading.Thread(target=work) for work in works]
        # Housekeeping can take hours and may stop at any point, so nothing waits for it.
        keep = partial(keeper.run, stopping, hours=settings.dispatcher.housekeeping_hours)
        for thread in (*threads, threading.Thread(target=keep, daemon=True)):
            thread.start()
        try:
            yield
        finally:
            stopping.set()
            for thread in threads:
                thread.join()


@app.command()
def exporter(ctx: typer.Context) -> None:
    """Serve the metrics, which are computed from the ledger."""
    from monitoring.exporter import serve

    with installed(ctx) as installation:
        _begin(installation.settings)
        serve(installation.ledger_url, **_exporter_settings(installation))


@app.command()
def gateway(ctx: typer.Context) -> None:
    """Serve the model gateway, which alone holds provider keys and meters every call."""
    from gateway.config import GatewayConfig
    from gateway.server import serve
    from routing.policy.platform import load_policy

    class GatewaySettings(_ProgramSettings):
        cells: CellsConfig = CellsConfig()
        gateway: GatewayConfig = Field(default_factory=dict, validate_default=True)

    with clear_errors():
        settings = read_settings(GatewaySettings, context_of(ctx).environment)
        _begin(settings, traced_as="gateway")
        policy = load_policy(settings.policy.path)
        serve(settings.gateway, settings.ledger.url.get_secret_value(), policy, settings.cells)


@app.command()
def router(ctx: typer.Context) -> None:
    """Serve API, consoles and pages of several cells: each request goes to the cell of its tenant."""
    from producers.cells.router import serve

    class RouterSettings(BaseModel, frozen=True):
        cells: CellsConfig = CellsConfig()
        logs: LogsConfig = LogsConfig()

    with clear_errors():
        settings = read_settings(RouterSettings, context_of(ctx).environment)
        if not settings.cells.directory_url.get_secret_value():
            fail("POINTSMAN_CELLS__DIRECTORY_URL: must name the database of the directory", code=USAGE)
        configure_logging(level=settings.logs.level)
        serve(settings.cells)


@app.command()
def mirror(ctx: typer.Context) -> None:
    """Serve packages to sandboxes, read only, from the registries that this account's npm uses."""
    from routing.policy.platform import load_policy
    from sandbox.config import MirrorConfig
    from sandbox.package_mirror.app import serve

    class MirrorSettings(_ProgramSettings):
        mirror: MirrorConfig = MirrorConfig()

    with clear_errors():
        environment = context_of(ctx).environment
        settings = read_settings(MirrorSettings, environment)
        ledger_url, policy = settings.ledger.url.get_secret_value(), load_policy(settings.policy.path)
        _begin(settings)
        serve(settings.mirror, ledger_url, policy, environment=strip_settings(environment))


@app.command()
def fake_provider(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8140,
    host: Annotated[str, typer.Option(metavar="HOST", help="Where to listen.")] = "127.0.0.1",
    log: Annotated[Path | None, typer.Option(help="Append each finished call to this file.")] = None,
    speed: Annotated[str, typer.Option(help="real: as slow as the policy states; max: no pauses.")] = "real",
    scenarios: Annotated[
        list[Path] | None, typer.Option(help="Scenario files or directories, which take precedence.")
    ] = None,
    cases: Annotated[
        list[Path] | None, typer.Option(help="Files of cases, whose replies are played before the shipped ones.")
    ] = None,
    recorded: Annotated[Path | None, typer.Option(help="Replay the calls in this file, and refuse any other.")] = None,
    faults: Annotated[bool, typer.Option("--faults", help="Let tags in prompts request faults.")] = False,
    policy: Annotated[Path | None, typer.Option(help="Take the speeds from this policy.")] = None,
) -> None:
    """Serve the fake provider: a Messages API that plays scenarios, for trials and tests without a key."""
    from pydantic import ValidationError

    from gateway.fake_provider.config import FakeProviderConfig
    from gateway.fake_provider.server import serve

    try:
        config = FakeProviderConfig(**{name: value for name, value in ctx.params.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        fail(f"fake-provider: --{first['loc'][0]}: {first['msg']}", code=USAGE)
    with clear_errors():
        try:
            serve(config)
        except OSError as error:
            fail(f"fake-provider: {error}")


@app.command("migrate")
def migrate_ledger(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Migrate the ledger to the current schema."""
    from ledger.operations.migrate import migrate
    from ledger.store import Fit, create_ledger_engine, fit, found_revision

    with installed(ctx) as installation:
        engine = create_ledger_engine(installation.ledger_url, pool_size=0)  # never the pooler: a session is locked
        migrate(engine)
        revision, is_newer = found_revision(engine), fit(engine) is Fit.NEWER
    print_result(
        {"revision": revision, "is_newer": is_newer},
        f"the ledger is newer than this version: revision {revision}" if is_newer else "the ledger is current",
    )


def _begin(settings: Settings | _ProgramSettings, *, traced_as: str = "") -> None:
    """Log, trace where the program is named, and wait for the ledger; exit with code 2 if it is not migrated in time.

    What is imported by now stays: no collection of garbage has to look at it.
    """
    from ledger.store import await_schema
    from monitoring import traces

    configure_logging(level=settings.logs.level)
    if traced_as:
        traces.start(settings.tracing, program=traced_as)
    gc.freeze()
    gc.set_threshold(700, 10, 10)
    ledger = settings.ledger
    await_schema(ledger.url.get_secret_value(), patience_seconds=ledger.migration_wait_seconds)
