"""Runs the code of a page as it stands there: blocks of code that name a file, extracted and executed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

from producers.local.embedded import Embedded
from producers.local.supervisor import free_port
from tests.services import wait_until

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "integration"
_AWAY = re.compile(r"\b(EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH)\b")
_BLOCK = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def environment_of(embedded: Embedded) -> dict[str, str]:
    """Return what a reader's shell has while `pointsman up` runs beside it."""
    return {
        **{name: value for name, value in os.environ.items() if name != "ANTHROPIC_API_KEY"},
        **{name: value for name, value in embedded.environment.items() if name.startswith("POINTSMAN_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PM_URL": embedded.api_url,
        "PM_BROKER": embedded.broker_url,
        "PM_CHECKOUT": str(ROOT),
    }


def is_registry_away(said: str) -> bool:
    """Tell whether npm says that it could not reach its registry; any other failure is the guide's own."""
    return _AWAY.search(said) is not None


class Guide:
    """A page whose files lie in a directory, beside a running fleet."""

    def __init__(self, page: Path, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        self.blocks = {name: code for name, code in _BLOCK.findall(page.read_text())}
        for name, code in self.blocks.items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(code)
        self.environment = environment

    def run(self, name: str, *, seconds: float = 60, **environment: str) -> str:
        """Run a script of the page; returns what it printed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", name],
            cwd=self.directory,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{name} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def set_up(self) -> None:
        """Do what setup.sh says, and keep the variables that it sets, as a shell would."""
        script = ["bash", "-c", "set -eu; source setup.sh; env -0"]
        done = subprocess.run(
            script, cwd=self.directory, env=self.environment, capture_output=True, check=True, timeout=60
        )
        self.environment = dict(item.split("=", 1) for item in done.stdout.decode().split("\0") if item)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Run serve.sh; gives the URL of what it serves."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        environment = {**self.environment, "PORT": str(port), "OWN_URL": url}
        log = (self.directory / "serve.log").open("w")
        with (
            log,
            subprocess.Popen(
                ["bash", "-c", f"exec {self.blocks['serve.sh']}"],
                cwd=self.directory,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            ) as server,
        ):
            try:
                wait_until(lambda: _answers(url), seconds=20, what="the guide's service answers")
                yield url
            finally:
                server.terminate()
                server.wait(10)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, trust_env=False, verify=False, timeout=2).status_code < 500
    except httpx2.TransportError:
        return False
