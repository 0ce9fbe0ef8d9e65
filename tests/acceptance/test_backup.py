"""An installation is backed up at work, and goes on from there in another directory."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.fake_provider.config import FakeProviderConfig
from ledger.store import Ledger, create_ledger_engine
from producers.backup import counts
from producers.local.embedded import Embedded, Options
from producers.local.preparation import TENANT, open_offline
from tests.acceptance.installation import Installation

PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("POINTSMAN_")}


def command(*arguments: str, environment: dict[str, str]) -> Any:
    argv = [sys.executable, "-m", "producers.cli", *arguments]
    done = subprocess.run(argv, env=PLAIN | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@contextmanager
def at_work(installation: Installation) -> Iterator[None]:
    stopping = threading.Event()

    def submit() -> None:
        number = 0
        while not stopping.wait(0.1):
            installation.submit(f"echo {number}")
            number += 1

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(20)


def live_page(embedded: Embedded, site: str) -> bytes:
    answer = httpx2.get(f"{embedded.pages_url}/live/{TENANT}/{site}/", trust_env=False, verify=False, timeout=20)
    assert answer.status_code == httpx2.codes.OK, answer.text
    return answer.content


def held_by(home: Path) -> dict[str, int]:
    """What the ledger in a directory holds, while nothing but its database runs."""
    with open_offline(home) as (url, *_):
        ledger = Ledger(create_ledger_engine(url, pool_size=1))
        try:
            with ledger.begin() as session:
                return counts(session)
        finally:
            ledger.close()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_restored_installation_serves_the_same_bytes_and_works_on(installation: Installation) -> None:
    installation.embedded.import_site("restored")
    job_id = installation.submit("Change the hero heading to 'Bread since 1932'", site="restored")
    installation.wait_for(job_id, "awaiting_approval", seconds=90)
    installation.http.post(f"/v1/jobs/{job_id}/approve")
    installation.wait_for(job_id, "published", seconds=90)
    installation.submit("Explain how bread rises [rehearse:linger]")
    # Not below pytest's own directory: as root the database runs as another user, who has no way in there.
    with tempfile.TemporaryDirectory(prefix="pointsman-restored-", ignore_cleanup_errors=True) as scratch:
        home, backup = Path(scratch) / "home", Path(scratch) / "backup"
        with at_work(installation):
            made = command("backup", str(backup), "--json", environment=installation.embedded.environment)
        home.mkdir(mode=0o700)
        shutil.copy(installation.embedded.home / "secrets.json", home)
        done = command("restore", str(backup), "--home", str(home), "--json", environment={})
        assert (done["audit_problems"], done["lagging"]) == ([], 0)
        assert held_by(home) == made["counts"]
        assert made["counts"]["jobs"] > 2
        options = Options(home=home, fake_provider=FakeProviderConfig(speed="max"), api_port=0)
        with Embedded(options, base_environment=os.environ) as embedded:
            assert live_page(embedded, "restored") == live_page(installation.embedded, "restored")
            restored = Installation(embedded)
            assert restored.wait_for(restored.submit("echo again"), "answered", seconds=90)["answer"] == "again"
            assert restored.job(job_id)["state"] == "published"
            restored.http.close()
