"""A real Prometheus for tests: it scrapes every other second, and is asked as Grafana asks it."""

from __future__ import annotations

import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
import pytest
import yaml

from gateway.network import authorities
from producers.local.supervisor import free_port
from tests.services import wait_until

JOB = "pointsman"
_COMMON = frozenset({"__name__", "job", "instance"})
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="no prometheus here; `make test SYSTEM=1` installs it"
)
Samples = dict[tuple[str, ...], float]
"""Values by those of their labels, in the order of the labels' names."""


@dataclass
class Prometheus:
    """One server, with the data of one test."""

    directory: Path
    target: str
    """The exporter's URL."""
    rules: str = ""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    _ahead: float = 0.0
    """The most that the clock was ahead of the monotonic one."""

    def now(self) -> float:
        """Return Unix seconds that never go back: else earlier samples pass for new ones once the clock is set back."""
        self._ahead = max(self._ahead, time.time() - time.monotonic())
        return self._ahead + time.monotonic()

    def __enter__(self) -> Self:
        config = self.directory / "prometheus.yml"
        rules = self.directory / "rules.yaml"
        rules.write_text(self.rules or "groups: []")
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [
                        {
                            "job_name": JOB,
                            "static_configs": [{"targets": [self.target.removeprefix("http://")]}],
                        }
                    ],
                }
            )
        )
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={self.directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=error",
            ],
        )
        try:
            wait_until(self._is_ready, seconds=60, what="Prometheus is ready")
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def ask(self, path: str, **parameters: Any) -> Any:
        answer = httpx2.get(
            f"http://127.0.0.1:{self.port}/api/v1/{path}",
            params=parameters,
            trust_env=False,
            timeout=20,
            verify=authorities(),
        )
        told = answer.json()
        assert told["status"] == "success", f"{parameters}: {told.get('error')}"
        return told["data"]

    def query(self, expression: str, *, at: float | None = None) -> Samples:
        """Return what an expression is at a moment: now, or Unix seconds."""
        found = self.ask("query", query=expression, **({} if at is None else {"time": f"{at:.3f}"}))
        assert found["resultType"] == "vector", expression
        samples: Samples = {}
        for each in found["result"]:
            labels = {name: value for name, value in each["metric"].items() if name not in _COMMON}
            samples[tuple(labels[name] for name in sorted(labels))] = float(each["value"][1])
        return samples

    def last_scrape(self) -> float | None:
        """Return when the exporter was read last, in Unix seconds; None before the first time."""
        times = self.query("timestamp(pointsman_build_info)")
        return max(times.values()) if times else None

    def scraped_after(self, moment: float) -> float:
        """Wait for a scrape that began after a moment (Unix seconds), and return when it was."""
        found = wait_until(
            lambda: (last := self.last_scrape()) is not None and last > moment and last,
            seconds=30,
            what="a new scrape",
        )
        assert isinstance(found, float)
        return found

    def caught_up(self) -> float:
        """Wait for a scrape that shows all that has happened by now, and return when it was.

        One that met another process's fold does not wait for it: what it shows may be late. One that was stamped while
        the clock was ahead passes for new once it is not any more, so it is the next one that counts.
        """
        at = self.scraped_after(self.scraped_after(self.now()))
        while any(self.query("pointsman_fold_lag_seconds", at=at).values()):
            at = self.scraped_after(at)
        return at

    def alerts(self) -> set[str]:
        """Return the alerts whose condition holds now, whether or not their time window is over."""
        found = self.ask("query", query="ALERTS")
        return {each["metric"]["alertname"] for each in found["result"]}

    def _kill(self) -> None:
        assert self.process is not None
        self.process.kill()  # its data is a test's: there is nothing to write down
        self.process.wait(20)

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "Prometheus ended"
        try:
            answer = httpx2.get(f"http://127.0.0.1:{self.port}/-/ready", trust_env=False, verify=authorities())
            return answer.status_code == httpx2.codes.OK
        except httpx2.HTTPError:
            return False
