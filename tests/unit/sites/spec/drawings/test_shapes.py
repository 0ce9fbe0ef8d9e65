from __future__ import annotations

import pytest
from pydantic import ValidationError

from sites.spec.drawings.shapes import Drawing
from sites.spec.html import art


def _drawn(*shapes: str) -> str:
    return Drawing(of="goats", shapes=shapes).html()


def test_a_drawing_is_a_stock_one_of_other_shapes() -> None:
    assert _drawn("ink circle 1 2 3").partition(">")[0] == art("hills").partition(">")[0]
    assert "\n" not in _drawn("ink circle 1 2 3", "fill ellipse 1 2 3 4")


@pytest.mark.parametrize(
    ("shape", "element"),
    [
        ("ground rect 0 0 600 500", '<rect x="0" y="0" width="600" height="500" fill="var(--tint)">'),
        ("deep rect -5 0.5 60 50 8", '<rect x="-5" y="0.5" width="60" height="50" rx="8" fill="var(--deep)">'),
        ("brown circle 430 140 78", '<circle cx="430" cy="140" r="78" fill="#8a5f3f">'),
        ("accent circle 430 140 78", '<circle cx="430" cy="140" r="78" fill="var(--accent)">'),
        ("ink/5 ellipse 9 9 2 3", '<ellipse cx="9" cy="9" rx="2" ry="3" fill="var(--ink)" fill-opacity=".05">'),
        (
            "fill/40 path M6 50V29a15 15 0 0 1 30 0V50z",
            '<path d="M6 50V29a15 15 0 0 1 30 0V50z" fill="var(--fill)" fill-',
        ),
        (
            "light line 6 M0 0l-.5-9Q1,2 3,4",
            '<path d="M0 0l-.5-9Q1,2 3,4" fill="none" stroke="var(--on-deep)" stroke-w',
        ),
        ("ink line 1.5 M0 0L9 9", 'stroke="var(--ink)" stroke-width="1.5"'),
        ("fill line 118 M0 0L9 9", 'stroke-width="118"'),
    ],
)
def test_a_shape_is_an_element_of_numbers_in_a_tone_of_the_palette(shape: str, element: str) -> None:
    assert element in _drawn(shape)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ("crimson circle 1 2 3", "a shape is TONE"),
        ("accent/0 circle 1 2 3", "a shape is TONE"),
        ("accent text 1 2 hello", "a shape is TONE"),
        ('accent circle 1 2 3" onload="x()', "numbers are plain"),
        ("accent circle 1 2 1e9", "numbers are plain"),
        ("accent circle 1 2 1201", "numbers are plain"),
        ("accent circle 1 2 12345", "numbers are plain"),
        ("accent circle 1 2 ３", "numbers are plain"),
        ("accent circle 1 2", "circle has the numbers cx, cy, r"),
        ("accent circle 1 2 0", "the sizes above 0"),
        ("accent rect 1 2 3 4 5 6", "rect has the numbers x, y, width, height"),
        ("accent path L0 0", "a shape is TONE"),
        ("accent path M0 0L5", "a path has letters"),
        ("accent path M0 0B5 5", "a path has letters"),
        ("accent path M0 0Z5", "a path has letters"),
        ("accent path M0 0url(#x)", "a path has letters"),
        ('accent path M0 0"/><script>', "a path has letters"),
        ("accent line 1000 M0 0L9 9", "a shape is TONE"),
        ("accent path M0 0" + "L1 1" * 300, "at most 1200 characters"),
    ],
)
def test_what_is_no_shape_is_refused_with_the_rule(shape: str, rule: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _drawn("ground rect 0 0 600 500", shape)
    (error,) = refused.value.errors()
    assert error["loc"] == ("shapes", 1)
    assert rule in error["msg"]
