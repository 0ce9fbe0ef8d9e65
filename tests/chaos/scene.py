"""The fleet that is set on fire: an embedded installation with more of everything, and a look at what it leaves."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import text

from gateway.fake_provider.config import FakeProviderConfig
from ledger.tables import Tenant
from producers.local.embedded import Embedded
from producers.local.embedded import Options as EmbeddedOptions
from producers.local.supervisor import Program, python_module
from producers.use_cases.runs import Projects
from producers.use_cases.tenants import Scope, create_key, create_tenant
from routing.policy.platform import load_policy, platform_policy
from tests.chaos.options import Options
from tests.chaos.workload import AUTO_APPROVED, POOR, PROJECT, TENANTS
from tests.policies import impatient_policy, write_policy
from tests.services import memory
from tests.unit.workers.runs.repositories import make_project
from workers.scratch import sweep_scratch

_PR_SET_CHILD_SUBREAPER = 36
_FAKETIME = "libfaketimeMT.so.1"
SKEWS = {"dispatcher-2": "+240s", "worker-edits-2": "-180s", "worker-quick-2": "+420s", "gateway": "-120s"}
"""Whose clocks are how wrong. The ledger's own is the only one that leases may go by."""
_EXTRA = {"worker-edits-2": ("answer", "spec", "patch"), "worker-quick-2": ("intake", "tools", "control")}
POOR_DAY_USD = 0.25


def faketime() -> Path | None:
    """Where the library is that skews a process's clock; Debian's package `faketime` brings it."""
    found = sorted(Path("/usr/lib").glob(f"*/faketime/{_FAKETIME}"))
    return found[0] if found else None


class Fleet(Embedded):
    """An embedded installation with two dispatchers and twice the workers, some of which have a wrong clock."""

    def __init__(
        self, options: EmbeddedOptions, *, base_environment: Mapping[str, str], skews: Mapping[str, str]
    ) -> None:
        super().__init__(options, base_environment=base_environment)
        self._skews = skews

    def _programs(self) -> list[Program]:
        concurrency = ("--concurrency", str(self.options.concurrency))
        more = [Program("dispatcher-2", python_module("producers.cli", "dispatcher"))]
        more += [Program(name, python_module("workers.main", *queues, *concurrency)) for name, queues in _EXTRA.items()]
        return [self._skewed(program) for program in [*super()._programs(), *more]]

    def _skewed(self, program: Program) -> Program:
        library = faketime()
        if program.name not in self._skews or library is None:
            return program
        paths = [str(Path(__file__).with_name("skewed")), self.environment.get("PYTHONPATH", "")]
        clock = {
            "LD_PRELOAD": str(library),
            "FAKETIME": self._skews[program.name],
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        }
        return replace(program, environment={**program.environment, **clock})


class Scene:
    """A running fleet with what a run needs of it."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        keys: Mapping[str, str],
        sites: Sequence[str],
        notes: list[str],
        earlier: frozenset[int] = frozenset(),
    ) -> None:
        self.fleet = fleet
        self.earlier = earlier
        """Processes of others that ran before: of the tests that ran in this process."""
        self.keys = keys
        self.sites = sites
        self.notes = notes
        """What this machine did not allow, to be told in the report."""
        self.ledger = fleet.open_ledger(pool_size=4)
        self.policy = load_policy(fleet.options.policy)

    def rows(self, query: str, **values: Any) -> list[Any]:
        with self.ledger.begin() as session:
            return list(session.execute(text(query), values).all())

    def scalar(self, query: str, **values: Any) -> Any:
        return self.rows(query, **values)[0][0]

    def close(self) -> None:
        self.ledger.close()


@contextmanager
def burning(options: Options) -> Iterator[Scene]:
    """Run a fleet for as long as the context is open, on disks of its own where the machine allows that."""
    adopt_orphans()
    notes: list[str] = []
    earlier = frozenset(process.pid for process in psutil.Process().children(recursive=True))
    home = Path(tempfile.mkdtemp(prefix="pm-chaos-", dir=memory()))
    home.chmod(0o755)
    mounted = [] if options.is_short else _mount_small(home, options, notes)
    try:
        fleet = _fleet(home, options, notes)
        with fleet:
            keys = _make_tenants(fleet)
            sites = _make_sites(fleet, options)
            scene = Scene(fleet, keys=keys, sites=sites, notes=notes, earlier=earlier)
            try:
                yield scene
            finally:
                scene.close()
    finally:
        end_remaining(earlier)
        for directory in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(directory)], check=False)
        shutil.rmtree(home, ignore_errors=True)


def adopt_orphans() -> None:
    """Become the parent of whatever a killed process leaves behind, so that nothing of it goes unseen."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def remaining(earlier: frozenset[int] = frozenset(), *, besides: str = "") -> list[psutil.Process]:
    """Return the processes below this one that still run, but for earlier ones and those of one name."""
    left = []
    for process in psutil.Process().children(recursive=True):
        if process.pid in earlier:
            continue
        with suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE:
                _reap(process.pid)
            elif process.name() != besides:
                left.append(process)
    return left


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def end_remaining(earlier: frozenset[int] = frozenset()) -> None:
    """Kill whatever runs below this process, which adopts no more: it would owe each a `wait`."""
    for process in remaining(earlier):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)


def leftover_files(home: Path) -> list[str]:
    """Return sockets in a stopped installation's home but the database's, and what is where temporary files go."""
    found = (path for path in home.rglob("*") if path.parent.name != "postgres")
    sockets = [str(path) for path in found if stat.S_ISSOCK(path.lstat().st_mode)]
    sweep_scratch(home / "tmp")  # as the next worker that starts does
    return sockets + [str(path) for path in (home / "tmp").iterdir() if path.suffix != ".lock"]


def _mount_small(home: Path, options: Options, notes: list[str]) -> list[Path]:
    mounted = []
    for name, megabytes in {"content-store": 128 + options.jobs // 4, "postgres": 1_024 + options.jobs // 4}.items():
        directory = home / "home" / name
        directory.mkdir(parents=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "pm-chaos", str(directory)],
            check=False,
            capture_output=True,
        )
        if done.returncode != 0:
            notes.append("no disk was filled: this machine does not let us mount one of our own (it takes root)")
            break
        mounted.append(directory)
    return mounted


def _fleet(home: Path, options: Options, notes: list[str]) -> Fleet:
    skews: Mapping[str, str] = {} if options.is_short else SKEWS
    if skews and faketime() is None:
        notes.append("no clock was skewed: Debian's package faketime is not installed")
    (home / "home" / "tmp").mkdir(parents=True, exist_ok=True)
    environment = {
        "TMPDIR": str(home / "home" / "tmp"),
        "POINTSMAN_BOX__ENGINE": f"unix://{home}/no-engine.sock",  # one that runs here is not the suite's to use
        "POINTSMAN_RUNS__FILES_BELOW": str(home / "remotes"),
        "POINTSMAN_LOGS__LEVEL": "INFO",
    }
    fake_provider = FakeProviderConfig(speed="max", faults=True, scenarios=(write_scenarios(home, options),))
    made = EmbeddedOptions(
        home=home / "home",
        fake_provider=fake_provider,
        policy=_policy(home, is_short=options.is_short),
        api_port=0,
        concurrency=options.concurrency,
        environment=environment,
    )
    return Fleet(made, base_environment=os.environ, skews=skews)


def write_scenarios(home: Path, options: Options) -> Path:
    """Write the scenario file of a run, with its speed."""
    words = Path(__file__).with_name("chaos.yaml").read_text()
    words = words.replace("FIRST_TOKEN_SECONDS", str(options.first_token_seconds))
    words = words.replace("TOKENS_PER_SECOND", str(options.tokens_per_second))
    path = home / "chaos.yaml"
    path.write_text(words)
    return path


def _policy(home: Path, *, is_short: bool) -> Path:
    """The platform's policy, but that projects may lie in a directory of this machine, and that a job waits for a
    provider that never answers for seconds instead of an hour."""
    policy = impatient_policy() if is_short else platform_policy().model_dump(mode="json")
    policy["runs"]["remotes"] = [*policy["runs"]["remotes"], "file"]
    longest = 6 if is_short else 25
    policy["circuits"] |= {"pause_seconds": 1, "longest_pause_seconds": longest / 5, "longest_wait_seconds": longest}
    return write_policy(home / "platform.yaml", policy)


def _make_tenants(fleet: Fleet) -> dict[str, str]:
    ledger = fleet.open_ledger()
    try:
        with ledger.begin() as session:
            for name in TENANTS:
                create_tenant(session, name, provider="fake")
            session.get_one(Tenant, AUTO_APPROVED).auto_approve = True
            session.get_one(Tenant, POOR).overrides = {"budgets": {"tenant_day_usd": POOR_DAY_USD}}
            keys = {
                name: create_key(session, name, name="chaos", scopes=(Scope.SUBMIT, Scope.READ, Scope.APPROVE))
                for name in TENANTS
            }
        remote = fleet.home.parent / "remotes" / "shop.git"
        remote.parent.mkdir(exist_ok=True)
        make_project(remote, {"README.md": b"# Shop\n", "src/header.ts": b"export const colour = 'red';\n"})
        words = f'repo: {{url: "file://{remote}"}}\nstack: {{language: typescript, frontend: react}}\n'
        Projects(ledger, load_policy(fleet.options.policy)).put(
            TENANTS[0], PROJECT, words, source="project.yaml", actor="chaos"
        )
        return keys
    finally:
        ledger.close()


def _make_sites(fleet: Fleet, options: Options) -> list[str]:
    """Import the shipped site for every tenant, under so many names that most edits need not wait for each other."""
    from importlib import resources

    from producers.use_cases.sites import Sites
    from sites.content_store import ContentStore

    names = [f"site-{number}" for number in range(max(3, options.jobs // 60))]
    shipped = Path(str(resources.files("producers.local") / "demo_site"))
    ledger = fleet.open_ledger()
    try:
        sites = Sites(ledger, ContentStore(fleet.home / "content-store"), load_policy(fleet.options.policy))
        for tenant in TENANTS:
            for name in names:
                sites.import_site(tenant, name, shipped, actor="chaos")
    finally:
        ledger.close()
    return names
