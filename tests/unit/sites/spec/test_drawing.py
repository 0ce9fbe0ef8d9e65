from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sites.spec.drawing import Drawing, drawn
from sites.spec.html import art
from sites.spec.model import INDEX, parse_site
from sites.spec.quality import copy_of
from sites.spec.render import render
from sites.spec.validate import accept

_DRAWING: TypeAdapter[Any] = TypeAdapter(Drawing)
_GROUND = {"shape": "rect", "x": 0, "y": 0, "width": 600, "height": 500, "tone": "ground"}
_SUN = {"shape": "circle", "x": 300, "y": 200.5, "r": 80, "tone": "accent"}
_HILL = {"shape": "path", "d": "M60 500V290a150 150 0 0 1 300 0V500z", "tone": "soft"}


def _read(*shapes: dict[str, Any]) -> Any:
    return _DRAWING.validate_json(json.dumps([_GROUND, *shapes, *[_SUN] * 7]))


def test_a_drawing_is_rendered_as_the_stock_ones_are() -> None:
    page = drawn(_read(_HILL))
    assert page.partition(">")[0] == art("hills").partition(">")[0]
    assert '<path d="M60 500V290a150 150 0 0 1 300 0V500z" class="art-fill art-soft"></path>' in page
    assert '<circle cx="300" cy="200.5" r="80" class="art-accent"></circle>' in page
    assert '<rect x="0" y="0" width="600" height="500" class="art-ground"></rect>' in page


@pytest.mark.parametrize(
    ("shape", "field", "rule"),
    [
        (_SUN | {"x": 1e9}, "x", "less than or equal to 1200"),
        (_SUN | {"r": 0}, "r", "greater than 0"),
        (_SUN | {"r": "80"}, "r", "valid number"),
        (_SUN | {"tone": "#f00"}, "tone", "'ground', 'fill'"),
        (_SUN | {"tone": "accent hidden"}, "tone", "'ground', 'fill'"),
        (_SUN | {"id": "top"}, "id", "not permitted"),
        (_SUN | {"onclick": "x()"}, "onclick", "not permitted"),
        (_HILL | {"d": 'M0 0"/><script>'}, "d", "starts with M"),
        (_HILL | {"d": "url(#x)"}, "d", "starts with M"),
        (_HILL | {"d": "L0 0"}, "d", "starts with M"),
        (_HILL | {"d": "M0 0L5"}, "d", "starts with M"),
        (_HILL | {"d": "M0 0 1e9 1"}, "d", "starts with M"),
        (_HILL | {"d": "M0 0L9999 1"}, "d", "at most 1200"),
        (_HILL | {"d": "M0 0L12345 1 1"}, "d", "starts with M"),
        (_HILL | {"d": "M0 0" + "L1 1" * 200}, "d", "at most 400"),
        (_HILL | {"d": ""}, "d", "starts with M"),
        ({"shape": "text", "tone": "ink"}, "1", "does not match"),
    ],
)
def test_what_is_no_plain_shape_is_refused_with_its_field_and_rule(shape: Any, field: str, rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _read(shape)
    (error,) = refused.value.errors()
    assert str(error["loc"][-1]) == field
    assert rule in error["msg"]


@pytest.mark.parametrize("count", [7, 61])
def test_a_drawing_has_8_to_60_shapes(count: int) -> None:
    with pytest.raises(ValidationError, match=r"8 items|60 items"):
        _DRAWING.validate_json(json.dumps([_SUN] * count))


def test_an_opening_shows_the_drawing_of_its_own_instead_of_the_stock_one() -> None:
    shapes = [_GROUND, _HILL, *[_SUN] * 7]
    hero = {"type": "Hero", "props": {"heading": "Goats", "art": "hills", "drawing": shapes}}
    page = {"type": "Page", "props": {"title": "Goats", "lang": "en"}, "children": ["hero"]}
    site = parse_site({"root": "page", "elements": {"page": page, "hero": hero}})
    assert str(drawn(_read(_HILL))) in render(accept(site.to_dict()))[INDEX].decode()
    assert copy_of(accept(site.to_dict())) == ("Goats", "Goats")
