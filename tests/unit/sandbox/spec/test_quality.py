from __future__ import annotations

from sandbox.spec.edit import apply_edit
from sandbox.spec.model import INDEX, parse_site
from sandbox.spec.quality import copy_of, is_unchanged, loses_copy
from tests.unit.sandbox.spec.samples import demo_site, element, page, reordered


def test_an_edit_that_drops_most_of_the_words_loses_copy() -> None:
    assert loses_copy(demo_site(), parse_site(page(hero=element("Hero", heading="Bread"))))


def test_a_usual_edit_loses_none() -> None:
    site = demo_site()
    path = f"/pages/{INDEX}/elements/hero/props/heading"
    assert not loses_copy(site, apply_edit(site, [{"op": "replace", "path": path, "value": "New"}]))


def test_exactly_half_is_not_more_than_half() -> None:
    def text(words: int) -> dict[str, object]:
        return page(text=element("Text", text=" ".join(f"w{number}" for number in range(words))))

    assert not loses_copy(parse_site(text(98)), parse_site(text(48)))
    assert loses_copy(parse_site(text(98)), parse_site(text(40)))


def test_a_tiny_site_is_not_judged_by_its_number_of_words() -> None:
    before = parse_site(page(hero=element("Hero", heading="Hello there")))
    assert not loses_copy(before, parse_site(page(hero=element("Hero", heading="Bye"))))


def test_addresses_icons_and_colours_are_no_copy() -> None:
    copy = " ".join(copy_of(demo_site()))
    assert "Butter croissant" in copy
    assert "assets/" not in copy
    assert ".html" not in copy


def test_only_a_real_difference_is_a_change() -> None:
    assert is_unchanged(demo_site(), parse_site(reordered(demo_site().to_dict())))
    assert not is_unchanged(demo_site(), parse_site(page()))
