"""Drawings made of shapes in the site's own colours: a new site has no photographs, and should not look empty.

They are inline SVG whose shapes only name classes, so they follow the theme, its dark scheme too, and need no request.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal, get_args

from sandbox.spec.html import Html, join, tag

ArtName = Literal["tiles", "orbit", "hills", "waves", "rays", "arches", "dashboard"]
ART_NAMES: Final[tuple[str, ...]] = get_args(ArtName)

_WIDTH: Final = 600
_HEIGHT: Final = 500
_CELL: Final = 100
_TILES: Final = "QcRt.T QbCqS. .TQcrb ScqT.R tQ.bCq"
"""One letter for each tile, row by row."""
_TILE_PATHS: Final = {
    "Q": ("h100a100 100 0 0 1-100 100z", "art-fill"),
    "q": ("m100 100h-100a100 100 0 0 1 100-100z", "art-deep"),
    "r": ("m100 0v100a100 100 0 0 1-100-100z", "art-fill art-soft"),
    "S": ("a50 50 0 0 1 0 100zm50 0a50 50 0 0 1 0 100z", "art-fill"),
    "T": ("m0 100l100-100v100z", "art-fill"),
    "t": ("h100l-100 100z", "art-accent art-soft"),
    "b": ("m0 10h100v12h-100zm0 34h100v12h-100zm0 34h100v12h-100z", "art-deep art-soft"),
}
"""Outlines from the upper left corner of a tile, with their classes."""


def art(name: ArtName) -> Html:
    """Return a drawing that fills the box it stands in, hidden from assistive technology."""
    shapes = _DRAWINGS[name]()
    view = f"0 0 {_WIDTH} {_HEIGHT}"
    return tag(
        "svg",
        _rect(0, 0, _WIDTH, _HEIGHT, "art-ground"),
        *shapes,
        class_="art",
        viewBox=view,
        preserveAspectRatio="xMidYMid slice",
        aria_hidden="true",
        focusable="false",
    )


def _tiles() -> Iterator[Html]:
    for row, line in enumerate(_TILES.split()):
        for column, letter in enumerate(line):
            yield _tile(letter, column * _CELL, row * _CELL)


def _tile(letter: str, x: int, y: int) -> Html:
    if letter in _TILE_PATHS:
        outline, style = _TILE_PATHS[letter]
        return _path(f"M{x} {y}{outline}", style)
    half = _CELL // 2
    ground = {"R": "art-fill art-faint", "C": "art-deep", ".": "art-paper"}.get(letter)
    radius = {"R": 22, "C": 34, "c": half}.get(letter)
    return join(
        _rect(x, y, _CELL, _CELL, ground) if ground else None,
        _circle(x + half, y + half, radius, "art-accent") if radius else None,
    )


def _orbit() -> Iterator[Html]:
    yield _circle(430, 270, 330, "art-fill art-faint")
    yield _circle(430, 270, 240, "art-fill art-faint")
    yield _circle(430, 270, 150, "art-fill")
    for radius in (195, 285, 375):
        yield _circle(430, 270, radius, "art-line art-soft")
    for angle, radius, size in ((200, 195, 16), (318, 285, 26), (152, 285, 12), (110, 195, 22), (186, 375, 30)):
        turn = math.radians(angle)
        x, y = 430 + radius * math.cos(turn), 270 + radius * math.sin(turn)
        yield _circle(round(x), round(y), size, "art-accent")
    yield _circle(385, 225, 60, "art-paper art-faint")


def _hills() -> Iterator[Html]:
    yield _circle(430, 150, 74, "art-accent")
    yield _circle(430, 150, 112, "art-accent art-faint")
    yield _path("M0 300C90 230 170 250 250 290S430 240 600 180V500H0z", "art-fill art-faint")
    yield _path("M0 350C120 290 220 330 320 350S500 320 600 260V500H0z", "art-fill art-soft")
    yield _path("M0 420C110 350 230 370 330 410S520 400 600 350V500H0z", "art-fill")
    yield _path("M0 470C140 430 260 450 380 470S540 470 600 440V500H0z", "art-deep")


def _waves() -> Iterator[Html]:
    styles = ("art-fill art-faint", "art-accent art-soft", "art-fill art-soft", "art-fill", "art-deep")
    for step, style in enumerate(styles):
        y = 130 + step * 78
        swing = 44 - step * 4
        curve = f"M0 {y}c100-{swing} 200-{swing} 300 0s200 {swing} 300 0V500H0z"
        yield _path(curve, style)


def _rays() -> Iterator[Html]:
    count = 18
    for step in range(count):
        start, end = (math.pi + math.pi * (step + edge) / count for edge in (0, 1))
        points = [(300 + 700 * math.cos(turn), 470 + 700 * math.sin(turn)) for turn in (start, end)]
        way = " ".join(f"L{x:.0f} {y:.0f}" for x, y in points)
        yield _path(f"M300 470{way}z", "art-fill" if step % 2 else "art-fill art-faint")
    yield _circle(300, 470, 190, "art-deep")
    yield _circle(300, 470, 130, "art-accent")


def _arches() -> Iterator[Html]:
    styles = ("art-fill art-faint", "art-fill art-soft", "art-fill", "art-accent", "art-paper")
    for x, top, outer in ((60, 140, 150), (330, 40, 120)):
        for step, style in enumerate(styles):
            radius = outer - step * outer // 5
            left = x + outer - radius
            yield _path(f"M{left} 500V{top + outer}a{radius} {radius} 0 0 1 {2 * radius} 0V500z", style)
    yield _circle(505, 96, 40, "art-accent")


def _dashboard() -> Iterator[Html]:
    yield _circle(520, 60, 170, "art-accent art-faint")
    yield _circle(70, 470, 190, "art-fill art-faint")
    yield _rect(70, 70, 460, 360, "art-fill art-faint", radius=22)
    yield _rect(62, 60, 460, 360, "art-paper", radius=20)
    yield from (_circle(92 + 22 * step, 90, 6, "art-fill art-soft") for step in range(3))
    yield _rect(92, 122, 120, 14, "art-deep", radius=7)
    yield _rect(92, 148, 76, 10, "art-fill art-faint", radius=5)
    yield _rect(410, 120, 82, 34, "art-fill", radius=10)
    for step, height in enumerate((54, 86, 68, 112, 96, 140, 124)):
        style = "art-fill" if step == 5 else "art-fill art-faint"
        yield _rect(96 + step * 58, 384 - height, 34, height, style, radius=8)
    yield _path("M113 300C150 262 180 286 229 272S300 214 345 226S420 176 461 190", "art-accent-line")
    yield _circle(461, 190, 9, "art-accent")
    yield _rect(372, 356, 190, 84, "art-deep", radius=16)
    yield _circle(408, 398, 18, "art-accent")
    yield _rect(438, 384, 96, 10, "art-ground", radius=5)
    yield _rect(438, 404, 62, 8, "art-ground art-soft", radius=4)


_DRAWINGS: Final = {
    "tiles": _tiles, "orbit": _orbit, "hills": _hills, "waves": _waves, "rays": _rays, "arches": _arches,
    "dashboard": _dashboard,
}  # fmt: skip


def _rect(x: int, y: int, width: int, height: int, style: str, *, radius: int | None = None) -> Html:
    return tag("rect", x=x, y=y, width=width, height=height, rx=radius, class_=style)


def _circle(x: int, y: int, radius: int, style: str) -> Html:
    return tag("circle", cx=x, cy=y, r=radius, class_=style)


def _path(outline: str, style: str) -> Html:
    return tag("path", d=outline, class_=style)
