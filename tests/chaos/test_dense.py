"""What `make chaos ONLY=dense` shows of a thousand waiting jobs is shown here of forty."""

from pathlib import Path

import pytest

from tests.chaos.dense import run
from tests.chaos.options import Options


@pytest.mark.slow
def test_jobs_that_wait_in_threads_of_a_killed_worker_end_once(tmp_path: Path) -> None:
    report = run(Options(jobs=40, is_short=True, out=tmp_path), print)
    assert report.is_good, report.text()
