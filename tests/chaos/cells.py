"""Three cells on this machine: one dies and comes back, a tenant moves there and back, and nobody stops submitting."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import httpx2
from celery import Celery
from sqlalchemy import text

from gateway.fake_provider.config import FakeProviderConfig
from ledger.cells.directory import CellRecord, Directory
from ledger.operations.history_reader import examine
from ledger.store import Ledger, create_ledger_engine
from producers.cells.move import Timing, move_tenant
from producers.local.embedded import Embedded
from producers.local.embedded import Options as Local
from producers.local.supervisor import Home, free_port
from producers.use_cases.runs import Projects
from producers.use_cases.tenants import TENANT_SCOPES, create_key, create_tenant, hash_secret
from routing.policy.platform import load_policy, platform_policy
from sites.config import ContentStoreConfig
from sites.repository.copies import claim_root
from tests.acceptance.installation import settle
from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.directories import new_directory
from tests.policies import write_policy
from tests.services import Postgres, wait_until
from tests.unit.workers.runs.repositories import make_project

CELLS = ("east", "west", "north")
ANSWER_SECONDS = 300.0
"""How long a client goes on with one request that is not taken: longer than a cell is dead."""
LIVING_SECONDS = 30.0
"""The longest that a request to a living cell may take, its tenant's move included."""


@dataclass
class Client:
    """Submits for one tenant until told to stop: over the router, and by Celery to a cell that need not be its own."""

    tenant: str
    key: str
    router: str
    broker: str
    accepted: set[UUID] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    longest_seconds: float = 0.0

    project: str | None = None
    """A code project of the tenant, about which some of its jobs are: these are runs."""

    def run(self, stopping: threading.Event, seed: str) -> None:
        chosen = random.Random(seed)
        celery = Celery(broker=self.broker, set_as_current=False)
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx2.Client(base_url=self.router, headers=headers, timeout=10, trust_env=False) as http:
            while not stopping.is_set():
                number = chosen.randrange(10**6)
                fields = {}
                prompt = f"echo {number}" if chosen.random() < 0.7 else f"Explain how bread rises, in {number} words"
                if self.project is not None and chosen.random() < 0.1:
                    prompt, fields = "How does the header of the shop get its colour?", {"project": self.project}
                if chosen.random() < 0.2:
                    self._send(celery, {"prompt": prompt, **fields})
                else:
                    self._submit(http, {"prompt": prompt, **fields})
                stopping.wait(chosen.random() * 0.2)
        celery.close()

    def _send(self, celery: Celery, asked: dict[str, str]) -> None:
        job_id = uuid4()
        kwargs = {**asked, "tenant": self.tenant}
        celery.send_task("pointsman.submit", kwargs=kwargs, queue="intake", task_id=str(job_id))
        self.accepted.add(job_id)

    def _submit(self, http: httpx2.Client, asked: dict[str, str]) -> None:
        key, began = str(uuid4()), time.monotonic()
        while time.monotonic() < began + ANSWER_SECONDS:
            try:
                answer = http.post("/v1/jobs", json=asked, headers={"Idempotency-Key": key})
            except httpx2.TransportError as error:
                self.refused[type(error).__name__] += 1
                continue
            if answer.status_code == 202:
                self.accepted.add(UUID(answer.json()["id"]))
                self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
                return
            self.refused[answer.json()["type"].rpartition(":")[2]] += 1
            settle(0.2)
        self.longest_seconds = ANSWER_SECONDS


@contextmanager
def open_cell(home: Path, name: str, directory_url: str) -> Iterator[Embedded]:
    environment = {
        "POINTSMAN_CELLS__DIRECTORY_URL": directory_url,
        "POINTSMAN_CELLS__NAME": name,
        "POINTSMAN_CELLS__SECRETS": json.dumps(
            {each: {"broker": Home(home / each).secrets()["broker"]} for each in CELLS if each != name}
        ),
        "POINTSMAN_RUNS__FILES_BELOW": str(home / "remotes"),
    }
    policy = platform_policy().model_dump(mode="json")
    policy["runs"]["remotes"] = [*policy["runs"]["remotes"], "file"]
    options = Local(
        home=home / name,
        api_port=0,
        fake_provider=FakeProviderConfig(speed="max"),
        policy=write_policy(home / "platform.yaml", policy),
        concurrency=1,
        idle_children=0,
        environment=environment,
    )
    with Embedded(options, base_environment=os.environ) as cell:
        yield cell


def add_cell(directory: Directory, name: str, cell: Embedded) -> None:
    store = ContentStoreConfig(root=cell.home / "content-store")
    url, runs = cell.environment["POINTSMAN_LEDGER__URL"], cell.home / "runs"
    claim_root(runs, name)
    record = CellRecord(name, cell.api_url, cell.pages_url, cell.broker_url, url, store.model_dump_json(), str(runs))
    directory.add_cell(record)


def add_tenant(directory: Directory, name: str, cell: Embedded, cell_name: str) -> str:
    ledger = cell.open_ledger()
    with ledger.begin() as session:
        create_tenant(session, name, provider="fake")
        secret = create_key(session, name, name="load", scopes=TENANT_SCOPES)
        directory.claim(name, cell=cell_name, key_hashes=[hash_secret(secret)])
    ledger.close()
    return secret


def add_project(home: Path, cell: Embedded, tenant: str) -> str:
    remote = home / "remotes" / "shop.git"
    remote.parent.mkdir()
    make_project(remote, {"README.md": b"# Shop\n", "src/header.ts": b"export const colour = 'red';\n"})
    words = f'repo: {{url: "file://{remote}"}}\nstack: {{language: typescript, frontend: react}}\n'
    ledger = cell.open_ledger()
    Projects(ledger, load_policy(cell.options.policy)).put(tenant, "shop", words, source="project.yaml", actor="chaos")
    ledger.close()
    return "shop"


def die(cell: Embedded) -> None:
    """SIGKILL of every process of a cell, its database's included."""
    assert cell.supervisor is not None
    for name in cell.supervisor.pids():
        cell.supervisor.kill(name)
    os.kill(int((cell.home / "postgres" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


@contextmanager
def router(directory_url: str) -> Iterator[str]:
    ports = free_port(), free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POINTSMAN_")} | {
        "POINTSMAN_CELLS__DIRECTORY_URL": directory_url,
        "POINTSMAN_CELLS__PORT": str(ports[0]),
        "POINTSMAN_CELLS__PAGES_PORT": str(ports[1]),
    }
    argv = [sys.executable, "-m", "producers.cli", "router"]
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{ports[0]}"

    def answers() -> bool:
        try:
            return httpx2.get(f"{url}/router/healthz", trust_env=False).is_success
        except httpx2.TransportError:
            return False

    try:
        wait_until(answers, seconds=60, what="the router answers")
        yield url
    finally:
        process.terminate()
        process.wait(15)


def run(options: Options, say: Callable[[str], None]) -> Report:
    """Run the scene."""
    report = Report("three cells: one dies and comes back, a tenant moves there and back")
    home = Path(tempfile.mkdtemp(prefix="pointsman-cells-"))
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        url, directory = stack.enter_context(new_directory(server))
        scopes = {name: stack.enter_context(ExitStack()) for name in CELLS}
        cells = {}
        for name in CELLS:
            cells[name] = scopes[name].enter_context(open_cell(home, name, url))
            add_cell(directory, name, cells[name])
            say(f"cell {name} is up")
        front = stack.enter_context(router(url))
        clients = []
        for place, name in enumerate(CELLS):
            key = add_tenant(directory, f"of-{name}", cells[name], name)
            other = cells[CELLS[(place + 1) % 2]]  # never the one that dies
            clients.append(Client(f"of-{name}", key, front, other.broker_url))
        clients[0].project = add_project(home, cells["east"], clients[0].tenant)
        stopping = threading.Event()
        threads = [
            threading.Thread(target=client.run, args=(stopping, f"{options.seed}/{client.tenant}/{number}"))
            for client in clients
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        try:
            scene(directory, cells, scopes, home, url, report, say, seconds=options.burns_seconds)
        finally:
            stopping.set()
            for thread in threads:
                thread.join()
        say(f"{sum(len(client.accepted) for client in clients)} jobs were taken; they come to their end")
        check(directory, cells, clients, report)
    return report


def scene(
    directory: Directory,
    cells: dict[str, Embedded],
    scopes: dict[str, ExitStack],
    home: Path,
    url: str,
    report: Report,
    say: Callable[[str], None],
    *,
    seconds: float,
) -> None:
    """Move a tenant there and back while one cell is dead, again and again."""
    until, moved, deaths = time.monotonic() + seconds, [], 0
    settle(2)
    while True:
        die(cells["north"])
        deaths += 1
        for target in ("west", "east"):
            began = time.monotonic()
            move_tenant(directory, "of-east", target, timing=Timing(drain=3, let_go=60, lease=2))
            moved.append(time.monotonic() - began)
            say(f"of-east is in {target} after {moved[-1]:.1f} s")
        scopes["north"].close()
        cells["north"] = scopes["north"].enter_context(open_cell(home, "north", url))
        add_cell(directory, "north", cells["north"])
        say("north is back")
        settle(2)
        if time.monotonic() >= until:
            break
    report.figures |= {"moves": len(moved), "longest move, s": max(moved), "deaths of a cell": deaths}


def check(directory: Directory, cells: dict[str, Embedded], clients: list[Client], report: Report) -> None:
    ledgers = {
        name: Ledger(create_ledger_engine(cell.environment["POINTSMAN_LEDGER__URL"], pool_size=2))
        for name, cell in cells.items()
    }
    found: dict[UUID, list[str]] = {}
    states: Counter[str] = Counter()

    def look() -> bool:
        found.clear()
        states.clear()
        for name, ledger in ledgers.items():
            with ledger.begin() as session:
                for job_id, state in session.execute(
                    text("SELECT id, state FROM job WHERE tenant LIKE 'of-%' AND queue <> 'steps'")
                ):
                    found.setdefault(job_id, []).append(name)
                    states[state] += 1
        wanted = {job_id for client in clients for job_id in client.accepted}
        return wanted <= found.keys() and states.total() == states["answered"]

    late = []
    try:
        wait_until(look, seconds=180, what="every job is answered")
    except AssertionError:
        late = [f"{states}"]
    accepted = {job_id for client in clients for job_id in client.accepted}
    report.promise("what was taken is there", [str(job_id) for job_id in accepted - found.keys()])
    report.promise("no job is in two cells", [f"{job_id}: {where}" for job_id, where in found.items() if where[1:]])
    report.promise("nobody got a job that they did not ask for", [str(job) for job in found.keys() - accepted])
    report.promise("every job is answered", late, is_late=True)
    runs: dict[str, set[str]] = {}
    broken = []
    for name, ledger in ledgers.items():
        with ledger.begin() as session:
            runs[name] = {f"{run}.git" for run in session.scalars(text("SELECT job_id FROM run"))}
        verdict = examine(ledger.engine, platform_policy().retention)
        broken += [f"{name}: {violation}" for violation in verdict.violations]
        ledger.close()
    report.promise("each cell's history holds by every rule", broken)
    found_files = {name: {path.name for path in (cell.home / "runs").glob("*.git")} for name, cell in cells.items()}
    report.promise("each workspace is where its run is, and there alone", [] if found_files == runs else [f"{runs}"])
    living = {client.tenant: client.longest_seconds for client in clients if client.tenant != "of-north"}
    late = [f"{tenant}: {seconds:.0f} s" for tenant, seconds in living.items() if seconds > LIVING_SECONDS]
    report.promise(f"a living cell takes a request within {LIVING_SECONDS:.0f} s", late)
    leased = directory.leased_today()
    limit = platform_policy().budgets.fleet_day_usd * 1e9
    report.promise("no more is leased than the fleet may spend", [f"{leased}"] if sum(leased.values()) > limit else [])
    report.figures |= {"jobs": len(accepted), "runs": sum(map(len, runs.values())), "answered": states["answered"]}
    for client in clients:
        report.figures[f"{client.tenant}: longest wait, s"] = client.longest_seconds
        report.figures[f"{client.tenant}: refusals"] = dict(client.refused)
