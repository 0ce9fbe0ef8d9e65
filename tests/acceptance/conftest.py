import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from gateway.fake_provider.config import FakeProviderConfig
from producers.local.embedded import Embedded, Options
from tests.acceptance.installation import Installation
from tests.policies import impatient_policy, write_policy
from tests.services import memory

SCENARIOS = Path(__file__).with_name("scenarios.yaml")
NO_ENGINE = {"POINTSMAN_BOX__ENGINE": "unix:///nonexistent.sock"}
"""Boxes have tests of their own (tests/box); here no tier 3 is installed, whatever the machine has."""

QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which does nothing of its own accord."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(QUIET))
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def installation() -> Iterator[Installation]:
    """Everything that `pointsman up` starts, with a fake provider that does not pause and obeys fault tags.

    It ends with the tests of this package: a dozen programs cost something even when they idle.
    """
    with tempfile.TemporaryDirectory(prefix="pointsman-test-", dir=memory()) as home:
        fake_provider = FakeProviderConfig(speed="max", faults=True, scenarios=(SCENARIOS,))
        policy = write_policy(Path(home) / "policy.yaml", impatient_policy())
        options = Options(
            home=Path(home), fake_provider=fake_provider, policy=policy, api_port=0, environment=NO_ENGINE
        )
        with Embedded(options, base_environment=os.environ) as embedded:
            running = Installation(embedded)
            yield running
            running.http.close()
