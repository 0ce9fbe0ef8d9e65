"""The built wheel runs `pointsman up` in an empty environment outside the checkout, data files included.

It is few and small processes at rest (issue 19, point 8). It leaves nothing behind, even when it is killed, and starts
again where it was.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.acceptance.closure import closure, link
from tests.acceptance.conftest import NO_ENGINE
from tests.chaos.samples import pss_bytes
from tests.services import wait_until

ROOT = Path(__file__).parents[2]
MOST_PROCESSES = 15
"""Besides those of connections to the ledger, which close within a minute: two are left."""
MOST_MIB = 700


def run(*argv: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(part) for part in argv], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """A virtual environment that holds nothing but the wheel and what it declares that it needs."""
    with tempfile.TemporaryDirectory(prefix="pointsman-wheel-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)
        (scratch / "fresh.cfg").write_text(f"[build]\nbuild_base = {scratch / 'build'}\n")  # nothing of an older build
        fresh = os.environ | {"DIST_EXTRA_CONFIG": str(scratch / "fresh.cfg")}
        build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", scratch / "dist")
        run(*build, ROOT, cwd=scratch, env=fresh)
        [wheel] = (scratch / "dist").glob("*.whl")
        venv.create(scratch / "venv")
        pip = (sys.executable, "-m", "pip", "--python", scratch / "venv", "--disable-pip-version-check")
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=scratch, env=alone)
        site_packages = next((scratch / "venv" / "lib").glob("python*/site-packages"))
        for needed in closure(next(distributions(name="pointsman", path=[str(site_packages)]))):
            link(needed, site_packages)
        yield scratch


class Up:
    """`pointsman up` of the wheel, and what it says."""

    def __init__(self, installed: Path) -> None:
        self.home = installed / "home"
        self.home.mkdir(exist_ok=True)
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self._pointsman = installed / "venv" / "bin" / "pointsman"
        self.process = self.start()
        self.said = ""
        assert self.process.stdout is not None
        while "Ctrl-C stops" not in self.said:
            line = self.process.stdout.readline()
            assert line, f"it ended: {self.said}"
            self.said += line
        self.processes = self._processes()

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self._pointsman), "up", "--port", "0", "--speed", "max"],
            cwd=self.home,
            env=self._environment | {"POINTSMAN_DISPATCHER__CHROMIUM": ""} | NO_ENGINE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def url(self, name: str) -> str:
        found = re.search(rf"{name}\s+(http://[^\s/]+)", self.said)
        assert found is not None, self.said
        return found[1]

    def run(self, *argv: str) -> str:
        return run(self._pointsman, *argv, cwd=self.home, env=self._environment)

    def live_page(self) -> str:
        return httpx2.get(f"{self.url('pages')}/live/demo/bakery/", trust_env=False, verify=False).text

    def workers_with_children(self) -> set[str]:
        return {each.name() for each in self.processes if each.name().startswith("worker-") and each.children()}

    def _processes(self) -> list[psutil.Process]:
        """Everything that it runs; the database is nobody's child."""
        [postmaster] = self.home.rglob("postmaster.pid")
        database = psutil.Process(int(postmaster.read_text().split()[0]))
        own = psutil.Process(self.process.pid)
        return [database, own, *own.children(recursive=True)]

    def end(self, number: signal.Signals) -> None:
        """Send a signal, and see that nothing is left."""
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        wait_until(
            lambda: not [process for process in self.processes if is_alive(process)],
            seconds=30,
            what=f"nothing is left after {number.name}",
        )


def memory_of(process: psutil.Process) -> int:
    """Bytes; none of a connection's process that has just ended."""
    try:
        return pss_bytes(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def is_a_connection(process: psutil.Process) -> bool:
    """Also one that has just ended: it cannot have been a program of the database's own."""
    try:
        return "[local]" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return True


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.timeout(400)
def test_the_wheel_runs_everything_embedded_and_starts_again_where_it_was_when_it_was_killed(installed: Path) -> None:
    up = Up(installed)
    try:
        everything = {*up.processes, *up.processes[0].children()}
        assert 9 < len([each for each in everything if not is_a_connection(each)]) <= MOST_PROCESSES
        assert sum(memory_of(each) for each in everything) / 2**20 <= MOST_MIB
        assert httpx2.get(f"{up.url('API')}/readyz", trust_env=False, verify=False).status_code == httpx2.codes.OK
        assert "<main" in up.live_page()
        prompt = "Change the hero heading to 'Bread since 1932'"
        job = json.loads(up.run("submit", prompt, "--site", "bakery", "--wait", "--json"))
        assert job["state"] == "awaiting_approval"
        assert up.run("doctor").count("OK  ") >= 5
        second = up.start()
        said, _ = second.communicate(timeout=60)
        assert second.returncode == 1
        assert "is used by another installation that runs" in " ".join(said.split())
    finally:
        up.end(signal.SIGKILL)

    up = Up(installed)
    try:
        assert up.workers_with_children() == set()
        up.run("approve", job["id"])
        wait_until(lambda: "Bread since 1932" in up.live_page(), seconds=30, what="what was done before is published")
        assert up.workers_with_children() == {"worker-quick"}, "which publishes"
    finally:
        up.end(signal.SIGINT)
    assert up.process.returncode == 0


@pytest.mark.timeout(200)
def test_the_demo_of_the_wheel_keeps_what_it_promises(installed: Path) -> None:
    home = installed / "demo"
    home.mkdir()
    said = run(
        installed / "venv" / "bin" / "pointsman", "demo", cwd=home, env={"PATH": os.environ["PATH"], "HOME": str(home)}
    )
    verdicts = re.findall(r"^ +(yes|no) +(.*)", said, flags=re.MULTILINE)
    assert len(verdicts) >= 7
    assert [what for verdict, what in verdicts if verdict == "no"] == []
