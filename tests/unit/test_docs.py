"""What the repository's pages claim, and what they must not say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize(
    ("program", "page"),
    [
        ("generate.py", "configuration.md"),
        ("generate_http.py", "reference/http.md"),
        ("generate_cli.py", "reference/cli.md"),
    ],
)
def test_a_page_that_is_made_from_the_code_is_what_the_code_says(program: str, page: str) -> None:
    made = subprocess.run(
        [sys.executable, f"docs/{program}"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert made == (ROOT / "docs" / page).read_text(), "run `make docs`"


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
