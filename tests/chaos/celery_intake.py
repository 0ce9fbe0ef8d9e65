"""The Celery intake's process killed sixty times while it takes in more than seven hundred messages."""

from __future__ import annotations

from collections.abc import Callable

from tests.chaos.options import Options
from tests.chaos.report import Report
from tests.chaos.suites import run_tests


def run(_: Options, say: Callable[[str], None]) -> Report:
    """Run the tests of the Celery intake, with many kills."""
    say("720 messages at the Celery intake, whose process is killed 60 times")
    return run_tests(
        "the Celery intake", "tests/integration/intake/test_celery_intake.py", environment={"INTAKE_KILLS": "60"}
    )
