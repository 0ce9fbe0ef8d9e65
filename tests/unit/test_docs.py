"""What the repository's pages claim, and what they must not say."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate_cli import cli_page
from docs.generate_http import http_page

ROOT = Path(__file__).parents[2]
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)")


def test_the_configuration_page_is_what_the_models_say() -> None:
    made = subprocess.run(
        [sys.executable, "docs/generate.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert made == (ROOT / "docs" / "configuration.md").read_text(), "run `make docs`"


@pytest.mark.parametrize(("page", "made"), [("http", http_page), ("cli", cli_page)], ids=["http", "cli"])
def test_the_references_are_what_the_code_says(page: str, made: Callable[[], str]) -> None:
    assert made() == (ROOT / "docs" / "reference" / f"{page}.md").read_text(), "run `make docs`"


def test_every_link_between_the_pages_leads_to_a_file_and_a_heading_of_it() -> None:
    headings = {page: set(map(anchor, re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE))) for page in PAGES}
    dead = [
        (page.name, target, section)
        for page in PAGES
        for target, section in _LINK.findall(page.read_text())
        if not (page.parent / target).exists()
        or (section and section not in headings.get((page.parent / target).resolve() if target else page, {section}))
    ]

    assert dead == []


def anchor(heading: str) -> str:
    """Return the fragment by which GitHub finds a heading."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_").replace(" ", "-")


_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ |ID=\$\(|export [A-Z_]+=\$\()*(?:\S+/)?pointsman +([a-z-].*)$")
_OLD = {"CHANGELOG.md"}
"""Tells what once was."""


def shown_commands() -> Iterator[tuple[str, str]]:
    """Every command line of ours that a page shows in a block of code, with the page's name."""
    for page in PAGES:
        is_code = False
        for line in page.read_text().splitlines():
            is_code = not is_code if line.startswith("```") else is_code
            found = re.match(
                r"(?:[A-Z_]+=\S+ |ID=\$\(|export [A-Z_]+=\$\()*(?:\S+/)?pointsman +([a-z-].*)$", line.strip()
            )
            if found and page.name not in _OLD and (is_code or line.startswith("    ")):
                yield page.name, found[1]


def test_every_command_line_that_a_page_shows_is_one_with_these_options() -> None:
    from typer.main import get_command

    from producers.cli import app

    root = get_command(app)
    wrong = [(page, line) for page, line in shown_commands() for part in _parts(line) if not _is_known(part, root)]

    assert wrong == []


def _parts(line: str) -> list[str]:
    """Return the command lines of a shown line: it may name several, and say something after them."""
    said = re.split(r"\s+#|\s{3,}", line)[0]
    return re.split(r" ; pointsman ", said)


def _is_known(line: str, command: Any) -> bool:
    words = re.findall(r"\"[^\"]*\"|'[^']*'|[^\s|()<>]+", line)
    options = set()
    for word in words:
        below = getattr(command, "commands", None)
        if below is not None and word in below:
            command = below[word]
        elif below is not None and not word.startswith("-") and command.name != "route":
            return False
        elif word.startswith("--"):
            options.add(word.strip("[]"))
    known = {
        name for each in (command, *getattr(command, "commands", {}).values()) for p in each.params for name in p.opts
    }
    return options <= known | {"--help"}


def test_every_command_and_make_target_that_the_readme_names_exists() -> None:
    from typer.main import get_command

    from producers.cli import app

    readme = (ROOT / "README.md").read_text()
    known = set(getattr(get_command(app), "commands", {}))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"(?:^ +|`)(?:\S+/)?pointsman ([a-z]+)", readme, re.MULTILINE)) <= known
    assert set(re.findall(r"(?:^ +|`)make ([a-z]+)", readme, re.MULTILINE)) <= targets
