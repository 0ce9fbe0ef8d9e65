"""Tiers 1 and 2 never execute user-influenced code: neither engine holds anything that could."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import combinations
from pathlib import Path
from urllib.parse import urljoin

import pytest
from lxml import html

import sites.diff
import sites.spec
from docs.pictures import BAKERY, SITES, WIDTHS, build
from routing.policy.platform import platform_policy
from sites.directories import read_directory
from sites.files import DEFAULT_MAX_TREE_BYTES
from sites.scan.engine import scan
from sites.spec.catalog import components
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.render import STYLESHEET, referenced_assets, render
from sites.spec.validate import validate

RUNNING = {"eval", "exec", "compile", "open", "__import__"}
SPAWNING = {"system", "popen", "Popen", "fork", "execv", "read_text", "write_text", "read_bytes", "write_bytes"}
PURE = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "colorsys",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "html",
    "io",
    "itertools",
    "json",
    "jsonpatch",
    "math",
    "pkgutil",
    "pydantic",
    "pydantic_core",
    "re",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "yaml",
}
"""All that these modules may import beside our own: nothing of it starts a program or opens a connection."""
OWN = ("sites.", "routing.model_call", "routing.policy.", "routing.yaml_data")
LOADER = {"catalog.py": {"importlib"}}
"""Imports the modules of components, which lie in the package."""


def imported_by(tree: ast.Module) -> set[str]:
    """Return the modules that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            is_whole = node.module in PURE or node.module.startswith(OWN)
            found |= {node.module} if is_whole else {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules(folder: Traversable) -> list[Traversable]:
    found = []
    for entry in folder.iterdir():
        found += modules(entry) if entry.is_dir() else [entry] if entry.name.endswith(".py") else []
    return found


YAML = resources.files("routing") / "yaml_data.py"
MODULES = [*modules(resources.files(sites.spec)), *modules(resources.files(sites.diff)), YAML]


@pytest.mark.req("H-091", "H-108")
def test_no_module_of_the_spec_or_the_diff_engine_can_run_code_or_leave_the_process() -> None:
    for module in MODULES:
        tree = ast.parse(module.read_text(encoding="utf-8"))
        calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {call.id for call in calls if isinstance(call, ast.Name)} & RUNNING
        called |= {call.attr for call in calls if isinstance(call, ast.Attribute)} & SPAWNING
        assert not called, module.name
        strangers = imported_by(tree) - PURE - LOADER.get(module.name, set())
        assert not {name for name in strangers if not name.startswith(OWN)}, module.name


@pytest.mark.req("H-108")
def test_no_code_of_tiers_1_and_2_runs_what_a_model_wrote() -> None:
    own = ["spec.py", "spec_edit.py", "new_site.py", "translation.py", "candidate.py", "model_task.py", "patch.py"]
    handlers = [resources.files("workers") / "handlers" / name for name in own]
    for module in (*handlers, *modules(resources.files("sites.direct_edit"))):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not named & (RUNNING - {"open"}), module.name
        imported = {name.partition(".")[0] for name in imported_by(tree)}
        assert not imported & {"subprocess", "os", "runpy", "importlib", "ctypes"}, module.name


@pytest.mark.req("H-013")
def test_a_site_is_edited_and_built_where_no_container_client_is_installed() -> None:
    program = (
        "import sys\n"
        "for name in ('docker', 'anthropic', 'celery', 'httpx2'): sys.modules[name] = None\n"
        "from sites.direct_edit.direct import apply_direct, parse_direct\n"
        "from sites.spec.outline import expand_outline\n"
        "from sites.spec.render import render\n"
        "site = expand_outline({'name': 'Holm', 'sections': [{'kind': 'Hero', 'heading': 'Hello'}]})\n"
        "edit = parse_direct(\"Change the hero heading to 'Fresh bread'\", site)\n"
        "print(b'Fresh bread' in render(apply_direct(site, edit))['index.html'])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "True"


# The eight sites of docs/sites: what a designer is shown is made of data alone, and passes every gate.

PICTURES = Path(__file__).parents[4] / "docs" / "pictures"


def site_of(folder: Path) -> Site:
    return parse_site((folder / "site.json").read_bytes())


def kinds_of(site: Site) -> set[str]:
    return {element["type"] for page in site.pages.values() for element in page["elements"].values()}


@pytest.mark.parametrize("folder", SITES, ids=lambda folder: folder.name)
def test_an_example_is_valid_without_a_warning(folder: Path) -> None:
    assert validate(site_of(folder)) == []


@pytest.mark.parametrize("folder", SITES, ids=lambda folder: folder.name)
def test_an_example_brings_exactly_the_files_that_it_shows(folder: Path) -> None:
    brought = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert brought - {"site.json"} == referenced_assets(site_of(folder))


@pytest.mark.parametrize("folder", SITES, ids=lambda folder: folder.name)
def test_an_example_passes_the_scan_of_what_is_published(folder: Path, tmp_path: Path) -> None:
    build(folder, tmp_path / "built")
    files = read_directory(tmp_path / "built", max_bytes=DEFAULT_MAX_TREE_BYTES, max_files=200)
    report = scan(files, platform_policy().profiles["default"], profile_name="default")
    assert report.findings == ()


@pytest.mark.parametrize("folder", SITES, ids=lambda folder: folder.name)
def test_every_page_of_an_example_marks_itself_in_the_shared_navigation(folder: Path) -> None:
    files = render(site_of(folder))
    pages = [path for path in files if path.endswith(".html")]
    menus = {}
    for path in pages:
        document = html.document_fromstring(files[path], parser=html.HTMLParser(encoding="utf-8"))
        menus[path] = [urljoin(f"/{path}", link).lstrip("/") for link in document.xpath("//header//nav//a/@href")]
        if path in menus[path]:
            assert document.xpath("//header//nav//a[@aria-current='page']/@href") == [path]
    assert all(menu == menus[INDEX] for menu in menus.values())


def test_no_two_examples_look_or_are_built_alike() -> None:
    for one, other in combinations(SITES, 2):
        assert render(site_of(one))[STYLESHEET] != render(site_of(other))[STYLESHEET]
        assert kinds_of(site_of(one)) != kinds_of(site_of(other))


def test_together_they_show_the_whole_catalog_but_the_smallest_pieces() -> None:
    shown = set().union(*(kinds_of(site_of(folder)) for folder in (*SITES, BAKERY)))
    assert set(components()) - shown <= {"Button", "Embed", "Card", "Grid", "Heading", "Image", "Link", "Stack"}


def test_the_kept_pictures_show_each_of_them_at_both_widths_and_stay_small() -> None:
    names = [folder.name for folder in SITES] + ["bakery"]
    wanted = {f"{name}-{width}.webp" for name in names for width in WIDTHS}
    kept = {path.name: path.stat().st_size for path in PICTURES.iterdir() if path.is_file()}
    assert set(kept) == wanted
    assert sum(kept.values()) < 1_500_000
