from __future__ import annotations

import hashlib
import re
from importlib import resources
from typing import get_args

import pytest

from sites.files import media_type_of
from sites.spec.fonts.families import (
    FONTS,
    NEAREST,
    Look,
    Shipped,
    called,
    font_faces,
    font_files,
    is_shipped,
    path_of,
    shipped_name,
)

SHIPPED = get_args(Shipped)
FILES = {
    "bitter-1": "0efe0fbe",
    "bitter-1-ext": "b3daa14b",
    "bricolage-grotesque-1": "473f84ea",
    "bricolage-grotesque-1-ext": "c48a2b22",
    "eb-garamond-1": "88603384",
    "eb-garamond-1-ext": "3c6dd865",
    "figtree-1": "4ba7d3d0",
    "figtree-1-ext": "41979509",
    "fraunces-1": "ff9a27f8",
    "fraunces-1-ext": "c6e68c63",
    "inter-1": "3100e775",
    "inter-1-ext": "e575a7cb",
    "nunito-1": "ba344451",
    "nunito-1-ext": "a1b206e1",
    "oswald-1": "bd73278e",
    "oswald-1-ext": "3faf2ee6",
    "playfair-display-1": "e0c764a8",
    "playfair-display-1-ext": "42898ad4",
}
"""The first digits of each file's digest: browsers keep a file for a year, so another cut gets another name."""


def test_looks_and_shipped_families_are_those_that_a_theme_may_name() -> None:
    assert [*FONTS] == [*get_args(Look), *SHIPPED]
    assert {name for name, font in FONTS.items() if font.family} == {*SHIPPED}
    assert not {*SHIPPED} & {*NEAREST}, "a document from before there were files goes on to mean a look"


def test_a_font_file_never_changes_and_all_of_them_are_small() -> None:
    files = {path: data for path, data in font_files(SHIPPED).items() if path.endswith(".woff2")}
    digests = {path[6:-6]: hashlib.sha256(data).hexdigest()[:8] for path, data in files.items()}
    assert digests == FILES
    assert sum(map(len, files.values())) < 500_000
    kept = {each.name for each in (resources.files("sites.spec.fonts") / "files").iterdir()}
    assert kept == {path[6:] for path in font_files(SHIPPED)}, "nothing lies there that no theme names"


@pytest.mark.parametrize("font", SHIPPED)
def test_a_family_comes_with_its_licence_and_is_loaded_by_rules_that_name_its_files_alone(font: str) -> None:
    files = font_files([font])
    assert all(is_shipped(path) for path in files)
    (licence,) = [data.decode() for path, data in files.items() if path.endswith("-LICENSE.txt")]
    assert licence.startswith(("Copyright", "©"))
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    rules = font_faces([font, font])
    loaded = re.findall(r'url\("([^"]+)"\)', "\n".join(rules))
    assert [path for path in files if path.endswith(".woff2")] == loaded
    assert loaded[0] == path_of(font)
    assert all("font-display: swap" in rule for rule in rules if "url(" in rule)
    assert [rule for rule in rules if "size-adjust" in rule] == [rules[-1]]
    assert {media_type_of(path) for path in loaded} == {"font/woff2"}
    assert FONTS[font].stack.startswith(f'"{FONTS[font].family}", "{FONTS[font].family} fallback", ')


def test_a_look_has_no_file() -> None:
    assert font_files(get_args(Look)) == {}
    assert font_faces(get_args(Look)) == []
    assert path_of("serif") is None
    assert not is_shipped("fonts/mine.woff2")


def test_people_call_a_family_as_they_like() -> None:
    assert [shipped_name(name) for name in ("Playfair", "playfair DISPLAY", "Garamond", "Lato", "serif", None)] == [
        "playfair-display-1",
        "playfair-display-1",
        "eb-garamond-1",
        "Lato",
        "serif",
        None,
    ]
    assert [shipped_name(name) for name in called()] == [*SHIPPED]


def test_no_letter_is_in_both_files_of_a_family_and_every_language_of_the_builder_has_all_of_its_letters() -> None:
    ranges = [rule.partition("unicode-range: ")[2] for rule in font_faces(["inter-1"])[:2]]
    first, second = ({*_letters(each)} for each in ranges)
    assert not first & second
    words = (resources.files("sites.spec") / "words.yaml").read_text(encoding="utf-8")
    assert {*map(ord, words)} - {*map(ord, "\n→←↑↓")} <= first | second


def _letters(ranges: str) -> list[int]:
    found: list[int] = []
    for start, end in re.findall(r"U\+([0-9A-F]+)(?:-([0-9A-F]+))?", ranges):
        found += range(int(start, 16), int(end or start, 16) + 1)
    return found
