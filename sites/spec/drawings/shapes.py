"""The drawing of an opening as data: flat shapes in the site's own colours, which a model writes after the words.

A shape is a line of text, as `accent circle 430 140 78`. It is hostile until read: it has numbers and a tone of the
palette and nothing else, so that no text, colour, id or address gets into a page through one.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import PydanticCustomError

from sites.spec.html import Html, tag

MAX_SHAPES: Final = 60
MAX_LETTERS: Final = 1200
"""Of a shape; the florets of a clover took 1,063."""
_FURTHEST: Final = 1200
"""The largest number of a shape on the field of 600 by 500, as one may reach out of it."""

TONES: Final = {
    "ground": "tint",
    "fill": "fill",
    "accent": "accent",
    "deep": "deep",
    "light": "on-deep",
    "ink": "ink",
}
"""The CSS variable of each tone."""
NATURAL: Final = {
    "brown": "#8a5f3f",
    "sand": "#d8bb8d",
    "grey": "#8f9190",
    "red": "#bf4337",
    "yellow": "#e5b23c",
    "leaf": "#6a8a4c",
    "sky": "#8cb4cc",
    "blue": "#2c55a6",
    "rose": "#dfa59b",
}
"""The colours by which things are known, whatever the site's are: a brown goat is no black one."""
_COLOURS: Final = {tone: f"var(--{name})" for tone, name in TONES.items()} | NATURAL
_SIZES: Final = {"rect": ("width", "height"), "circle": ("r",), "ellipse": ("rx", "ry")}
_STEPS: Final = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "A": 7, "Z": 0}
"""How many numbers each letter of a path takes at a time."""
_NUMBER: Final = re.compile(r"-?(?:\d{1,4}(?:\.\d{1,3})?|\.\d{1,3})(?!\d)", re.ASCII)
_STEP: Final = re.compile(r"([A-Za-z])([-0-9., ]*)")
_SHAPE: Final = re.compile(
    rf"(?P<tone>{'|'.join(_COLOURS)})(?:/(?P<share>[1-9]\d?))? "
    rf"((?P<form>{'|'.join(_SIZES)}) (?P<rest>.+)|path (?P<filled>M.+)|line (?P<width>\d\d?\d?(\.\d)?) (?P<drawn>M.+))",
    re.ASCII,
)


def _element(line: str) -> Html:
    """Return the element of a shape, or refuse it with the rule that it breaks."""
    if (shape := _SHAPE.fullmatch(line)) is None:
        raise _bad("a shape is TONE or TONE/PERCENT, then rect, circle, ellipse, path M... or line 0-999.9 M...")
    tone = _COLOURS[shape["tone"]]
    share = f".{int(shape['share']):02}" if shape["share"] else None
    if d := shape["drawn"]:
        ends = {"stroke_linecap": "round", "stroke_linejoin": "round"}
        width = shape["width"]
        return tag("path", d=_path(d), fill="none", stroke=tone, stroke_width=width, stroke_opacity=share, **ends)
    if d := shape["filled"]:
        return tag("path", d=_path(d), fill=tone, fill_opacity=share)
    form, numbers = shape["form"], _numbers(shape["rest"])
    place = ("x", "y") if form == "rect" else ("cx", "cy")
    names = (*place, *_SIZES[form])
    rounded = {"rx": numbers.pop()} if form == "rect" and len(numbers) > len(names) else {}
    if len(numbers) != len(names) or any(float(size) <= 0 for size in numbers[2:]):
        raise _bad(f"{form} has the numbers {', '.join(names)}, the sizes above 0")
    return tag(form, **dict(zip(names, numbers, strict=True)), **rounded, fill=tone, fill_opacity=share)


def _path(d: str) -> str:
    end = 0
    for step in _STEP.finditer(d):
        takes, given = _STEPS.get(step[1].upper()), len(_numbers(step[2]))
        if step.start() != end or takes is None or (given % takes or not given if takes else given):
            break
        end = step.end()
    if end != len(d):
        raise _bad("a path has letters of SVG, each with its numbers")
    return d


def _numbers(text: str) -> list[str]:
    numbers = _NUMBER.findall(text)
    if _NUMBER.sub("", text).strip(" ,") or any(abs(float(number)) > _FURTHEST for number in numbers):
        raise _bad(f"numbers are plain and from -{_FURTHEST} to {_FURTHEST}")
    return numbers


def _bad(rule: str) -> PydanticCustomError:
    return PydanticCustomError("bad_shape", "{rule}", {"rule": rule})


def _checked(line: str) -> str:
    _element(line)
    return line


Shape = Annotated[str, Field(max_length=MAX_LETTERS), AfterValidator(_checked)]


WIDE: Final = "0 0 1000 360"
"""The field of a drawing across a page, which its first shape covers."""


class Drawing(BaseModel, frozen=True, extra="forbid"):
    """What a drawing shows, and its shapes from the back to the front; none until a model has drawn it."""

    of: Annotated[str, Field(min_length=1, max_length=200)]
    shapes: Annotated[tuple[Shape, ...], Field(max_length=MAX_SHAPES)] = ()

    @property
    def box(self) -> str:
        """Its field as a viewBox."""
        return WIDE if self.shapes[:1] == (f"ground rect {WIDE}",) else "0 0 600 500"

    def html(self, *, box: str | None = None, class_: str = "art") -> Html:
        """Return the drawing, which fills the box it stands in, as the stock ones do."""
        return tag(
            "svg",
            *map(_element, self.shapes),
            class_=class_,
            viewBox=box or self.box,
            preserveAspectRatio="xMidYMid slice",
            aria_hidden="true",
            focusable="false",
        )


def mark_of(drawing: Drawing | None) -> Html | None:
    """Return a site's mark, which is square, once it is drawn."""
    return drawing.html(box="50 0 500 500", class_="art mark") if drawing and drawing.shapes else None
