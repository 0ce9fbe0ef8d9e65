"""Which pages a patch is written from (issue 20: prompts 0029, 0031, 0061 and 0066 of the second trial)."""

from __future__ import annotations

import pytest

from sites.excerpts import excerpts
from tests.unit.sites.test_style_excerpts import files_of

ALL = {"index.html", "notes.html", "notes/alders.html", "notes/concrete.html", "notes/kingfisher.html"}


def pages(request_: str) -> set[str]:
    files = {path: data for path, data in files_of("nonprofit").items() if path != "site.json"}
    shown = excerpts(files, request_, has_spec=True)
    return {part.path for part in shown if part.path.endswith(".html") and (part.first, part.last) == (1, part.of)}


@pytest.mark.parametrize(
    ("request_", "meant"),
    [
        ("Auf der Notes-Seite hätte ich gern oben drei kleine Knöpfe: Alle / 2026 / 2025", {"notes.html"}),
        ("kingfisher.html: a larger picture", {"notes/kingfisher.html"}),
        ("put 'Planting 2,400 alders' into italics", {"notes/alders.html"}),
        ("Sarebbe bello se i quattro numeri in alto contassero da zero", ALL),
        ("a strip on top of all pages in red, 'Every euro is doubled', leading to the donations, Where it goes", ALL),
        ("Kan er naast onze naam een merkje komen? En in de voettekst ook, en een stukje boven Fair questions", ALL),
        ("Auf jeder Seite unten die neue Nummer, und bei Join in die Termine vom Frühjahr", ALL),
    ],
)
def test_a_page_that_is_named_is_shown_without_the_others(request_: str, meant: set[str]) -> None:
    assert pages(request_) == meant


def test_what_stands_on_every_page_brings_them_all() -> None:
    shared = next(
        line.strip()
        for line in files_of("nonprofit")["notes.html"].decode().split("\n")
        if "footer" in line and "<p" in line
    )
    assert pages(shared) == ALL


def test_small_sites_are_shown_whole() -> None:
    site = {f"{name}.html": b"<h1>Page</h1>" for name in ("index", "team", "prices")}
    assert len(excerpts(site, "team.html: another name")) == 3
