"""Tests shared out to forked processes: what fails in one, or ends it, is seen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("pass", 0, "2 passed"),
        ("assert 'one' == 'two'", 1, "assert 'one' == 'two'"),
        ("os._exit(0)", 2, "the process that ran test_first.py::test_it died"),
    ],
)
def test_what_becomes_of_each_process_is_the_run_s_result(tmp_path: Path, body: str, status: int, said: str) -> None:
    (tmp_path / "test_first.py").write_text(f"import os\n\ndef test_it() -> None:\n    {body}\n")
    (tmp_path / "test_second.py").write_text("def test_it() -> None:\n    pass\n")
    argv = [sys.executable, "-m", "pytest", "-p", "tests.processes", "--processes=2", "-c", os.devnull, "--rootdir=."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*argv, "."], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stdout) == (status, True), done.stdout + done.stderr
