"""The eight sites of docs/sites: what a designer is shown is made of data alone, and passes every gate."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from lxml import html

from docs.pictures import BAKERY, SITES, WIDTHS, build
from routing.policy.platform import platform_policy
from sites.directories import read_directory
from sites.files import DEFAULT_MAX_TREE_BYTES
from sites.scan.engine import scan
from sites.spec.catalog import components
from sites.spec.model import INDEX, Site, parse_site
from sites.spec.render import STYLESHEET, referenced_assets, render
from sites.spec.validate import validate

PICTURES = Path(__file__).parents[4] / "docs" / "pictures"


def site_of(folder: Path) -> Site:
    return parse_site((folder / "site.json").read_bytes())


def kinds_of(site: Site) -> set[str]:
    return {element["type"] for page in site.pages.values() for element in page["elements"].values()}


def test_there_are_eight_of_them() -> None:
    assert len(SITES) == 8


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
        menus[path] = document.xpath("//header//nav//a/@href")
        if path in menus[path]:
            assert document.xpath("//header//nav//a[@aria-current='page']/@href") == [path]
    assert all(menu == menus[INDEX] for menu in menus.values())


def test_no_two_examples_look_or_are_built_alike() -> None:
    for one, other in combinations(SITES, 2):
        assert render(site_of(one))[STYLESHEET] != render(site_of(other))[STYLESHEET]
        assert kinds_of(site_of(one)) != kinds_of(site_of(other))


def test_together_they_show_the_whole_catalog_but_the_smallest_pieces() -> None:
    shown = set().union(*(kinds_of(site_of(folder)) for folder in (*SITES, BAKERY)))
    assert set(components()) - shown <= {"Button", "Card", "Grid", "Heading", "Image", "Link", "Stack"}


def test_the_kept_pictures_show_each_of_them_at_both_widths_and_stay_small() -> None:
    names = [folder.name for folder in SITES] + ["bakery"]
    wanted = {f"{name}-{width}.webp" for name in names for width in WIDTHS}
    kept = {path.name: path.stat().st_size for path in PICTURES.iterdir() if path.is_file()}
    assert set(kept) == wanted
    assert sum(kept.values()) < 1_500_000
