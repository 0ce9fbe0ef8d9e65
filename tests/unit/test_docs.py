"""What the repository's pages claim, and what they must not say."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


def test_the_configuration_page_is_what_the_models_say() -> None:
    made = subprocess.run(
        [sys.executable, "docs/generate.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert made == (ROOT / "docs" / "configuration.md").read_text(), "run `make docs`"


def test_every_link_between_the_pages_leads_somewhere() -> None:
    dead = [
        (page.name, target)
        for page in PAGES
        for target in _LINK.findall(page.read_text())
        if not (page.parent / target).exists()
    ]

    assert dead == []


def test_every_command_and_make_target_that_the_readme_names_exists() -> None:
    from typer.main import get_command

    from producers.cli import app

    readme = (ROOT / "README.md").read_text()
    known = set(getattr(get_command(app), "commands", {}))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^ +|`)(?:\S+/)?pointsman ([a-z]+)", readme, re.MULTILINE)) <= known
    assert set(re.findall(r"(?:^ +|`)make ([a-z]+)", readme, re.MULTILINE)) <= targets
