"""`make demo` where an engine is: its ticket ends as a branch, and all that it prints as checked is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine import TestEngine

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.mark.long
def test_the_demo_shows_a_ticket_that_becomes_a_branch(daemon: TestEngine, tmp_path: Path) -> None:
    environment = {**os.environ, "POINTSMAN_BOX__ENGINE": daemon.url, "HOME": str(tmp_path)}
    with daemon.network():
        done = subprocess.run(
            [sys.executable, "-m", "producers.cli", "demo"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"^ticket +http +control +published ", done.stdout, re.MULTILINE)
    assert re.search(r"yes +branch pointsman/\S+ has one commit more, of src/cents\.js", done.stdout)
