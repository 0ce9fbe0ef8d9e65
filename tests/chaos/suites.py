"""Parts that are tests of their own with more of what they do: their report is whether they passed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from tests.chaos.report import Report

_TAIL = 25


def run_tests(title: str, path: str, *, environment: Mapping[str, str]) -> Report:
    """Run a file of tests, and report."""
    began = time.monotonic()
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path]
    done = subprocess.run(argv, env=os.environ | dict(environment), capture_output=True, text=True, check=False)
    said = done.stdout.strip().splitlines()
    report = Report(title)
    report.figures |= {"seconds": time.monotonic() - began, "verdict": said[-1] if said else "nothing was said"}
    report.promise(f"{path} passes", [] if done.returncode == 0 else said[-_TAIL:])
    return report
