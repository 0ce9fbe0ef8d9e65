"""`pointsman eval --set reviews` on an engine's host: QA works in a real box, and its verdicts are judged."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.box.fleet import program
from tests.engine import TestEngine

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.environ.get("RUNS") != "1", reason="`make runs` asks for it"),
]


def test_qa_reviews_a_wrong_and_a_right_fix_in_boxes(daemon: TestEngine, tmp_path: Path) -> None:
    argv = ("eval", "--set", "reviews", "--only", "page-border", "--out", str(tmp_path / "runs"), "--json")
    done = subprocess.run(program(daemon, tmp_path, *argv), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads(done.stdout)
    qa = summary["by_agent"]["qa"]
    assert (qa["recall"], qa["false_alarms"], qa["without_result"], summary["skipped"]) == (1.0, 0, 0, {})
    assert qa["calls"] >= 4, "a session in a box each"
