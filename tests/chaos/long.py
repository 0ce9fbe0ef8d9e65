"""What takes minutes: worker pools that start, stop and are stopped, restarts of every program, backups at work."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.suites import run_tests

PATHS = (
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
)


def run(_: Options, say: Callable[[str], None]) -> Report:
    """Run the tests that are marked as long."""
    say("pitfalls, stops, a rolling restart under load, and a backup at work")
    return run_tests("what takes minutes", *PATHS, environment={"LONG": "1", "PAGES": "3000"})
