"""Parts that are tests of their own with more of what they do: their report is whether they passed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.engine import missing

_TAIL = 25


@dataclass(frozen=True)
class Suite:
    """Files of tests, and the variables that make more of them."""

    title: str
    paths: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    needs_engine: bool = False

    def run(self, _: Options, say: Callable[[str], None]) -> Report:
        """Run the tests, and report."""
        report = Report(self.title)
        if self.needs_engine and (why := missing()):
            report.notes.append(f"not done: {why}")
            return report
        say(self.title)
        began = time.monotonic()
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *self.paths]
        done = subprocess.run(
            argv, env=os.environ | dict(self.environment), capture_output=True, text=True, check=False
        )
        said = done.stdout.strip().splitlines()
        report.figures |= {"seconds": time.monotonic() - began, "verdict": said[-1] if said else "nothing was said"}
        report.promise(f"{', '.join(self.paths)} passes", [] if done.returncode == 0 else said[-_TAIL:])
        return report


SUITES = {
    "intake": Suite(
        "720 messages at the Celery intake, whose process is killed 60 times",
        ["tests/integration/intake/test_celery_intake.py"],
        {"INTAKE_KILLS": "60"},
    ),
    "publish": Suite(
        "500 publishes under readers, with kills at each step",
        ["tests/integration/jobs/test_publish.py"],
        {"PUBLISHES": "500"},
    ),
    "boxes": Suite(
        "ten kills at random moments of a code agent's session in a box",
        ["tests/box/test_fleet.py"],
        {"KILLS": "10"},
        needs_engine=True,
    ),
    "long": Suite(
        "what takes minutes: pitfalls, stops, a rolling restart under load, and a backup at work",
        [
            "tests/integration/workers/test_pitfalls.py",
            "tests/integration/workers/test_stopping.py",
            "tests/integration/monitoring/test_alerts.py",
            "tests/integration/monitoring/test_panels_of_history.py",
            "tests/integration/monitoring/test_scrape_cost.py",
            "tests/integration/workers/test_worker_registry.py",
            "tests/integration/ledger/test_partitions.py",
            "tests/acceptance/test_eval.py",
            "tests/acceptance/test_tracing.py",
            "tests/acceptance/test_rolling_restart.py",
            "tests/acceptance/test_backup.py",
            "tests/acceptance/test_console_browser.py",
            "tests/acceptance/test_scan_in_browser.py",
            "tests/chaos/test_hosts.py",
            "tests/chaos/test_leaks.py",
            "tests/box/test_demo.py",
        ],
        {"LONG": "1", "PAGES": "3000"},
    ),
}
