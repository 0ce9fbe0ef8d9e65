"""`pointsman up` as a real process on an engine's host, driven through its command line and watched in its ledger."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psutil
from sqlalchemy import text
from typer.testing import CliRunner

from gateway.fake_provider.config import billed_nanousd, read_log
from ledger.store import Ledger, create_ledger_engine
from producers.cli import app
from routing.policy.platform import platform_policy
from sandbox.docker.engine import Engine, Leftover, is_outer_network
from sandbox.docker.recipe import SLOT
from tests.engine import TestEngine
from tests.services import memory, wait_until

HOOK_PORT = 8112
_LISTENS = "0A"
_SMALL = {"MEMORY_MIB": "1536", "WORKSPACE_MIB": "64", "WORKSPACE_FILES": "4000", "FILE_MIB": "16"}


class Fleet:
    """One running installation."""

    def __init__(self, daemon: TestEngine, home: Path, process: subprocess.Popen[str], said: list[str]) -> None:
        self.daemon = daemon
        self.home = home
        self.process = process
        self.said = said
        self.wiring: dict[str, str] = json.loads((home / "state" / "pointsman" / "up.json").read_text())
        self.ledger = Ledger(create_ledger_engine(self.wiring["POINTSMAN_LEDGER__URL"], pool_size=1))
        self.engine: Engine = daemon.open(install=self.wiring["POINTSMAN_BOX__INSTALL"])

    def line(self, name: str) -> str:
        """What it printed of itself under a name."""
        return next(line.strip().removeprefix(name).strip() for line in self.said if line.strip().startswith(name))

    # -- as its users reach it ---------------------------------------------------------------------------------------

    def run(self, *argv: str) -> str:
        """Run a command beside it, and return what it prints."""
        with self.daemon.network():  # here, which saves the seconds that imports take
            done = CliRunner().invoke(app, argv, env=environment(self.daemon, self.home), prog_name="pointsman")
        assert done.exit_code == 0, done.output
        return done.stdout

    def cli(self, *argv: str) -> Any:
        """Run a command beside it that prints JSON."""
        return json.loads(self.run(*argv))

    def submit(self, prompt: str, **body: Any) -> UUID:
        wanted = {"prompt": prompt, "callback_url": f"http://127.0.0.1:{HOOK_PORT}/ended"} | body
        url = self.line("API").removesuffix("/docs")
        headers = {"authorization": f"Bearer {self.line('API key')}"}
        with self.daemon.network():
            said = httpx2.post(f"{url}/v1/jobs", json=wanted, headers=headers, timeout=30, trust_env=False)
        return UUID(said.raise_for_status().json()["id"])

    def job(self, job_id: UUID) -> dict[str, Any]:
        found: dict[str, Any] = self.cli("job", str(job_id), "--json")
        return found

    # -- as its ledger has it ----------------------------------------------------------------------------------------

    def rows(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.ledger.begin() as session:
            return [tuple(row) for row in session.connection().execute(text(query), values)]

    def state(self, job_id: UUID) -> str:
        [[state]] = self.rows("SELECT state FROM job WHERE id = :id", id=job_id)
        return str(state)

    def wait_for_state(self, job_id: UUID, *states: str, seconds: float) -> str:
        wait_until(lambda: self.state(job_id) in states, seconds=seconds, what=f"{job_id} comes to {states}")
        return self.state(job_id)

    def wait_for_session(self, job_id: UUID, *, seconds: float = 60) -> None:
        """Wait until the agent itself has been heard of."""
        progress = "SELECT count(*) FROM event WHERE job_id = :id AND kind = 'progress'"
        wait_until(lambda: self.rows(progress, id=job_id)[0][0], seconds=seconds, what="the session is under way")

    def attempts(self, job_id: UUID) -> list[str]:
        found = self.rows("SELECT outcome, reason FROM attempt WHERE job_id = :id ORDER BY number", id=job_id)
        return [f"{outcome} {reason}" for outcome, reason in found]

    def billed(self) -> int:
        return int(self.rows("SELECT coalesce(sum(cost_nanousd), 0) FROM call")[0][0])

    def provided(self) -> int:
        """What the model served, by its own log and the price table."""
        prices = platform_policy().prices
        return sum(billed_nanousd(call, prices) for call in read_log(self.request_log))

    @property
    def request_log(self) -> Path:
        return self.home / "home" / "fake-provider.jsonl"

    # -- its processes -----------------------------------------------------------------------------------------------

    def program(self, name: str) -> psutil.Process:
        """One of its programs."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            if process.name() == name:
                return process
        raise AssertionError(f"no program {name}")

    def worker_child(self) -> psutil.Process:
        """The pool child that does tier 3."""
        [child] = [found for found in self.program("worker-agent").children() if found.cmdline()]
        return child

    def listening(self) -> set[tuple[str, int]]:
        """Where its processes listen, as hexadecimal addresses and ports of the kernel's tables."""
        own: set[str] = set()
        for process in psutil.Process(self.process.pid).children(recursive=True):
            for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
                with suppress(OSError):
                    own.add(os.readlink(descriptor))
        found = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{self.process.pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and f"socket:[{fields[9]}]" in own:
                    address, _, port = fields[1].partition(":")
                    found.add((address, int(port, 16)))
        return found

    def kill(self, process: psutil.Process) -> None:
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not process.is_running() or process.status() == "zombie", seconds=10, what="it is dead")

    # -- its engine --------------------------------------------------------------------------------------------------

    def slots(self) -> Counter[str]:
        """The boxes that stand, with the number of objects of each."""
        return Counter(found.labels[SLOT] for found in self.engine.leftovers() if not is_outer_network(found))

    def leftovers(self) -> list[Leftover]:
        return list(self.engine.leftovers())


def program(daemon: TestEngine, home: Path, *argv: str, warm: int = 1) -> list[str]:
    """Return how one of the product's commands is run on an engine's host."""
    settings = [f"{name}={value}" for name, value in environment(daemon, home, warm=warm).items()]
    return [
        "nsenter",
        f"--net=/proc/{daemon.pid}/ns/net",
        "env",
        *settings,
        sys.executable,
        "-m",
        "producers.cli",
        *argv,
    ]


def environment(daemon: TestEngine, home: Path, *, warm: int = 1) -> dict[str, str]:
    settings = {"ENGINE": daemon.url, "WARM": str(warm)} | _SMALL
    boxes = {f"POINTSMAN_BOX__{name}": value for name, value in settings.items()}
    return boxes | {"XDG_STATE_HOME": str(home / "state")}


@contextmanager
def running_fleet(daemon: TestEngine, *, speed: str = "real", warm: int = 1) -> Iterator[Fleet]:
    """Run `pointsman up`, with so many boxes ready, for as long as the context is open."""
    with tempfile.TemporaryDirectory(prefix="pointsman-fleet-", dir=memory(), ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        home.chmod(0o755)
        argv = program(
            daemon,
            home,
            "up",
            "--home",
            str(home / "home"),
            "--port",
            "0",
            "--concurrency",
            "1",
            "--speed",
            speed,
            warm=warm,
        )
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "COLUMNS": "200"}
        )
        try:
            fleet = Fleet(daemon, home, process, _read_until_ready(process))
            try:
                yield fleet
            finally:
                fleet.ledger.close()
                fleet.engine.close()
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _read_until_ready(process: subprocess.Popen[str]) -> list[str]:
    said = []
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line.rstrip("\n"))
        if line.startswith("Ctrl-C"):
            return said
    raise AssertionError("\n".join(said))
