"""Code agents in boxes on an engine of the suite's own, killed at random moments of their sessions."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.suites import run_tests
from tests.engine import missing


def run(_: Options, say: Callable[[str], None]) -> Report:
    """Run the tests of a fleet with boxes, with more kills."""
    if why := missing():
        report = Report("code agents in boxes")
        report.notes.append(f"not done: {why}")
        return report
    say("ten kills at random moments of a session in a box")
    return run_tests("code agents in boxes", "tests/box/test_fleet.py", environment={"KILLS": "10"})
