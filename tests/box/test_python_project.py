"""A Python project in a real box: its packages come through the real mirror, and its own tests run."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledger.store import Ledger, create_ledger_engine
from sites.content_store import ContentStore
from tests.engine import TestEngine
from tests.factories import Shop
from tests.integration.step_world import StepYard, policy_with_file_remotes
from tests.outside_mirror import python_file_hosts
from tests.services import Postgres, wait_until
from workers.boxes import open_engine_pool
from workers.lifecycle import Resources

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

MIRROR_PORT = 8113
SETTINGS = """
stack: {language: python}
commands:
  setup: python -m venv .venv && .venv/bin/pip install --quiet pytest
  test: .venv/bin/python -m pytest -q
"""
FILES = {
    "pyproject.toml": b"[project]\nname = 'shop'\nversion = '1'\n",
    "shop.py": b"def cents(price):\n    return int(price * 100)\n",
    "tests/test_shop.py": b"""from shop import cents


def test_whole_euros():
    assert cents(3) == 300


def test_fractions():
    assert cents(1.15) == 115
""",
}


def test_a_python_project_is_set_up_from_the_mirror_and_its_failing_test_is_a_finding_with_its_place(
    daemon: TestEngine, postgres: Postgres, tmp_path: Path
) -> None:
    hosts = python_file_hosts("pytest")
    if not hosts:
        assert not os.environ.get("CI"), "pip names no index of packages"
        pytest.skip("pip names no index of packages")
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database())
        daemon.serve_mirror(stack, MIRROR_PORT, ledger_url=url, cache=tmp_path / "packages", python_files=hosts)
        wait_until(lambda: daemon.listens(MIRROR_PORT), seconds=60, what="the mirror listens")
        ledger = Ledger(create_ledger_engine(url, pool_size=2))
        stack.callback(ledger.close)
        size = {"memory_mib": 1024, "workspace_mib": 256, "workspace_files": 20_000, "processes": 128}
        pool = open_engine_pool(daemon.config(mirror_port=MIRROR_PORT, warm=0, **size))
        stack.callback(pool.close)
        shop = Shop(ledger, url=url, policy=policy_with_file_remotes())
        shop.tenant(provider="fake")
        resources = Resources(
            ledger=ledger,
            content_store=ContentStore(tmp_path / "content-store"),
            policy=shop.policy,
            gateway_url="",
            worker="w1",
            boxes=pool,
            environment={"PATH": os.defpath},
            runs=StepYard.runs_config(tmp_path),
        )

        done = StepYard(shop, resources, tmp_path, files=FILES, settings=SETTINGS).do(None, "Check it")

    (found,) = done.result["issues"]
    assert (found.get("file"), found.get("line")) == ("tests/test_shop.py", 9), found
    assert "1 failed, 1 passed" in found["detail"]
    assert done.changes() == {}, "neither packages nor caches are part of the project"
