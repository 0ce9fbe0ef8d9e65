import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from typer.testing import CliRunner

from gateway.fake_provider.config import FakeProviderConfig
from producers.chromium import LEAN
from producers.cli import app
from producers.local.embedded import Embedded, Options
from tests.acceptance.installation import Installation
from tests.policies import impatient_policy, write_policy
from tests.services import memory

SCENARIOS = Path(__file__).with_name("scenarios.yaml")
NO_ENGINE = {"POINTSMAN_BOX__ENGINE": "unix:///nonexistent.sock"}
"""Boxes have tests of their own (tests/box); here no tier 3 is installed, whatever the machine has."""


def pointsman(*arguments: str, environment: Mapping[str, str] = NO_ENGINE) -> tuple[int, dict[str, Any], str]:
    """Run a command here, which saves the seconds that imports take; return its exit code, its JSON and its errors."""
    done = CliRunner().invoke(app, [*arguments, "--json"], env={**environment}, prog_name="pointsman")
    return done.exit_code, json.loads(done.stdout or "{}"), done.stderr


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, which does nothing of its own accord."""
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", LEAN])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One for all, whose colours change at once: a tab of its own costs a test more than what it looks at."""
    opened = browser.new_page(reduced_motion="reduce")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The checker's source, of the version that `pointsman eval` runs."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


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
