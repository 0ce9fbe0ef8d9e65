"""Drawings as data: shapes in the tones of the stock drawings, written by a model and so hostile until checked.

A shape has numbers, a tone and nothing else: no text, colour, id or address can get into the page through one.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from sites.spec.html import Html, tag

WIDTH: Final = 600
HEIGHT: Final = 500
_MARGIN: Final = 600
"""How far a shape may reach out of the field."""
_MAX_PATH_CHARS: Final = 400
_STEP: Final = re.compile(r"([MLHVCSQTAZ])([-0-9., ]*)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"-?(?:\d{1,4}(?:\.\d{1,2})?|\.\d{1,2})(?!\d)")
_ARITY: Final = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "A": 7, "Z": 0}

Tone = Literal["ground", "fill", "soft", "faint", "accent", "deep", "paper", "light", "ink"]
_CLASSES: Final = {"soft": "art-fill art-soft", "faint": "art-fill art-faint"}

Place = Annotated[float, Field(ge=-_MARGIN, le=WIDTH + _MARGIN, allow_inf_nan=False)]
Size = Annotated[float, Field(gt=0, le=2 * WIDTH, allow_inf_nan=False)]


def _path(value: str) -> str:
    """Refuse what is not the plain path of numbers that the drawings use."""
    end = 0
    for step in _STEP.finditer(value):
        numbers = _NUMBER.findall(step[2])
        arity = _ARITY[step[1].upper()]
        is_whole = not _NUMBER.sub("", step[2]).strip(" ,")
        fits = len(numbers) % arity == 0 and len(numbers) > 0 if arity else not numbers
        if step.start() != end or not is_whole or not fits or (end == 0 and step[1] != "M"):
            break
        if any(abs(float(number)) > WIDTH + _MARGIN for number in numbers):
            raise PydanticCustomError("bad_path", "the numbers of a path are at most {most}", {"most": WIDTH + _MARGIN})
        end = step.end()
    if end != len(value) or not value:
        raise PydanticCustomError("bad_path", "a path starts with M and has the letters of SVG and their numbers only")
    return value


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tone: Tone


class Rect(_Shape):
    """A box, its corners rounded by r."""

    shape: Literal["rect"]
    x: Place
    y: Place
    width: Size
    height: Size
    r: Annotated[float, Field(ge=0, le=WIDTH / 2, allow_inf_nan=False)] = 0


class Circle(_Shape):
    """A circle around a point."""

    shape: Literal["circle"]
    x: Place
    y: Place
    r: Size


class Path(_Shape):
    """A filled outline."""

    shape: Literal["path"]
    d: Annotated[str, Field(max_length=_MAX_PATH_CHARS), AfterValidator(_path)]


Shape = Annotated[Rect | Circle | Path, Field(discriminator="shape")]
Drawing = Annotated[tuple[Shape, ...], Field(min_length=8, max_length=60, strict=False)]
"""Shapes from the back to the front."""


def drawn(shapes: tuple[Rect | Circle | Path, ...]) -> Html:
    """Return a drawing that fills the box it stands in, as the stock drawings do."""
    return tag(
        "svg",
        *map(_element, shapes),
        class_="art",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="xMidYMid slice",
        aria_hidden="true",
        focusable="false",
    )


def _element(shape: Rect | Circle | Path) -> Html:
    tone = _CLASSES.get(shape.tone, f"art-{shape.tone}")
    if isinstance(shape, Path):
        return tag("path", d=shape.d, class_=tone)
    x, y = _text(shape.x), _text(shape.y)
    if isinstance(shape, Circle):
        return tag("circle", cx=x, cy=y, r=_text(shape.r), class_=tone)
    size = {"width": _text(shape.width), "height": _text(shape.height)}
    return tag("rect", x=x, y=y, **size, rx=_text(shape.r) if shape.r else None, class_=tone)


def _text(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
