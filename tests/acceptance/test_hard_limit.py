"""A task that ignores its soft limit is ended at the hard limit with its children, and the next job runs."""

import os
import re
import tempfile
from pathlib import Path

import psutil
import pytest
import yaml

from producers.embedded import Embedded, Options
from producers.supervisor import Program, python_module
from routing.policy import platform_policy
from sandbox.rehearsal.config import RehearsalConfig
from tests.acceptance.installation import Installation, log_of
from tests.services import wait_until


@pytest.mark.timeout(120)
def test_the_hard_limit_kills_a_stubborn_task_with_its_children_and_the_next_job_runs() -> None:
    with tempfile.TemporaryDirectory(prefix="pointsman-test-") as scratch:
        home = Path(scratch)
        policy = platform_policy().model_dump(mode="json")
        policy["queues"]["tools"] |= {"soft_seconds": 1, "hard_seconds": 2}
        path = home / "policy.yaml"
        path.write_text(yaml.safe_dump(policy))
        options = Options(home=home / "up", rehearsal=RehearsalConfig(speed="max"), api_port=0, policy=path)
        with Embedded(options, base_environment=os.environ) as embedded:
            assert embedded.supervisor is not None
            embedded.supervisor.kill("worker-quick")
            embedded.supervisor.start(Program("stubborn", python_module("tests.acceptance.stubborn_worker")))
            installation = Installation(embedded)

            stubborn = installation.submit("echo stubborn")
            job = installation.wait_for(stubborn, "timed_out", seconds=120)
            assert job["reason"] == "time_limit"
            assert "hard time limit" in job["detail"]

            child = re.search(r"child (\d+)", log_of(home / "up", "stubborn"))
            assert child is not None
            pid = int(child[1])
            wait_until(lambda: not psutil.pid_exists(pid), seconds=5, what="the grandchild is dead")
            assert installation.wait_for(installation.submit("echo next"), "answered")["answer"] == "next"
            installation.http.close()
