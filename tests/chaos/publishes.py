"""Five hundred publishes under readers, and kills at each step of a publish."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.suites import run_tests


def run(_: Options, say: Callable[[str], None]) -> Report:
    """Run the tests of publishing, many times over."""
    say("500 publishes under readers, with kills at each step")
    return run_tests(
        "publishing under readers", "tests/integration/jobs/test_publish.py", environment={"PUBLISHES": "500"}
    )
