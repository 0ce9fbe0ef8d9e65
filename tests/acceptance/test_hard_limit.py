"""A task that ignores its soft limit is ended at the hard limit with its children, and the next job runs."""

import re
from pathlib import Path

import psutil
import pytest

from producers.local.supervisor import Program, python_module
from tests.acceptance.installation import Installation, log_of
from tests.policies import impatient_policy, write_policy
from tests.services import wait_until

QUICK = "worker-quick"


@pytest.mark.timeout(180)
def test_the_hard_limit_kills_a_stubborn_task_with_its_children_and_the_next_job_runs(
    installation: Installation, tmp_path: Path
) -> None:
    policy = impatient_policy()
    policy["queues"]["tools"] |= {"soft_seconds": 1, "hard_seconds": 2}
    mine = {"POINTSMAN_POLICY__PATH": str(write_policy(tmp_path / "policy.yaml", policy))}
    stubborn = Program("stubborn", python_module("tests.acceptance.stubborn_worker"), environment=mine)
    supervisor = installation.embedded.supervisor
    assert supervisor is not None
    installation.kill_workers(QUICK)
    supervisor.start(stubborn)
    try:
        job = installation.wait_for(installation.submit("echo stubborn"), "timed_out", seconds=120)
        assert job["reason"] == "time_limit"
        assert "hard time limit" in job["detail"]

        child = re.search(r"child (\d+)", log_of(installation.embedded.home, "stubborn"))
        assert child is not None
        pid = int(child[1])
        wait_until(lambda: not psutil.pid_exists(pid), seconds=30, what="the grandchild is dead")
        assert installation.wait_for(installation.submit("echo next"), "answered")["answer"] == "next"
    finally:
        supervisor.kill("stubborn")
        installation.start_workers(QUICK)
