"""Icons and drawings as inline SVG: a page needs no icon font, no photograph and no request.

Their shapes only name classes, so they follow the theme and its dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal, get_args

from sandbox.spec.html import Html, join, tag

_PATHS: Final = {
    "bread": "M4 11a4 4 0 0 1 3-6.5h10A4 4 0 0 1 20 11v7.5a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1zM9 8.5v3M12.500 8.500v3"
    "M16 8.500v3",
    "calendar": "M4 6.500h16v13H4zM4 10.500h16M8.500 4v4M15.500 4v4M8 14h2M14 14h2",
    "chart": "M4 20h16M7 16.500v-4M12 16.500v-9M17 16.500v-6",
    "check": "M5 12.500l4.500 4.500L19 7.500",
    "clock": "M12 3.500a8.500 8.500 0 1 0 0 17a8.500 8.500 0 0 0 0-17zM12 7.500V12l3 2",
    "close": "M6 6l12 12M18 6L6 18",
    "cup": "M5 8.500h11v6a4.500 4.500 0 0 1-4.500 4.500h-2A4.500 4.500 0 0 1 5 14.500zM16 10h1.500"
    "a2.300 2.300 0 0 1 0 4.600H16M8 3.500v2M12 3.500v2",
    "gift": "M4 9.500h16v3.500H4zM5.500 13v7h13v-7M12 9.500V20M12 9.500"
    "C9 9.500 7.500 8 8 6.300S11.500 5 12 9.500C12.500 5 15.500 4.600 16 6.300S15 9.500 12 9.500z",
    "globe": "M12 3.500a8.500 8.500 0 1 0 0 17a8.500 8.500 0 0 0 0-17zM3.500 12h17M12 3.500"
    "c3 2.600 3 14.400 0 17c-3-2.600-3-14.400 0-17z",
    "hand": "M7 12V7a1.500 1.500 0 0 1 3 0V5a1.500 1.500 0 0 1 3 0v1.500a1.500 1.500 0 0 1 3 0V9"
    "a1.500 1.500 0 0 1 3 0v5.500a6 6 0 0 1-6 6h-1"
    "c-2.500 0-4-1.200-5.200-3.200L4.500 13.500A1.500 1.500 0 0 1 7 12z",
    "heart": "M12 20C6 15.500 3.500 12.500 3.500 9.200A4.300 4.300 0 0 1 12 7.500a4.300 4.300 0 0 1 8.500 1.700"
    "C20.500 12.500 18 15.500 12 20z",
    "home": "M4 11.500L12 4.500l8 7M6 10v9.500h12V10M10 19.500v-5h4v5",
    "leaf": "M5 19C4 10 9 4.500 19.500 4.500C20 14.500 15 20 8 18M5 19.500c1.500-5 4.500-8 9-10",
    "mail": "M3.500 6h17v12h-17zM3.500 7l8.500 6.500L20.500 7",
    "menu": "M4 7h16M4 12h16M4 17h16",
    "people": "M9 5a3 3 0 1 0 0 6a3 3 0 0 0 0-6zM3.500 19c0-3.500 2.300-5.500 5.500-5.500s5.500 2 5.500 5.500"
    "M15.500 5.300a3 3 0 0 1 0 5.400M17 13.800c2.200.6 3.500 2.400 3.500 5.200",
    "phone": "M6 4h3l1.500 4L8.500 9.500a12 12 0 0 0 6 6L16 13.500l4 1.500v3a2 2 0 0 1-2 2"
    "C10.500 20 4 13.500 4 6a2 2 0 0 1 2-2z",
    "pin": "M12 20.500c-4.500-4.500-6.500-7.700-6.500-10.500a6.500 6.500 0 0 1 13 0c0 2.800-2 6-6.500 10.500z"
    "M12 7.800a2.300 2.300 0 1 0 0 4.600a2.300 2.300 0 0 0 0-4.600z",
    "play": "M8 5.500v13l10.500-6.500z",
    "quote": "M10 7H5v5.500h5zM10 12.500c0 2.500-1.500 4-4 4.500M19 7h-5v5.500h5zM19 12.500c0 2.500-1.500 4-4 4.500",
    "shield": "M12 3.500l7.500 3v5c0 4.500-3 7.600-7.500 9c-4.500-1.400-7.500-4.500-7.500-9v-5zM8.500 12"
    "l2.500 2.500l4.500-5",
    "code": "M8.500 8L4.500 12l4 4M15.500 8l4 4l-4 4M13.300 5.500l-2.600 13",
    "spark": "M12 3.500l2 6.500l6.500 2l-6.500 2l-2 6.500l-2-6.500L3.500 12l6.500-2z",
    "star": "M12 4l2.500 5.200l5.500.8l-4 4l1 5.700l-5-2.700l-5 2.700l1-5.700l-4-4l5.500-.8z",
    "tools": "M14.500 6.500a4 4 0 0 1 5-2.500l-2.500 2.500l.5 2l2 .5L22 6.500a4 4 0 0 1-5.500 4.500L8 19.500"
    "a2 2 0 0 1-3-3L13.500 8zM4 4l4.500 4.500",
    "truck": "M3 6.500h11v10H3zM14 10h4l3 3v3.500h-7M7 15a2 2 0 1 0 0 4a2 2 0 0 0 0-4zM17.500 15a2 2 0 1 0 0 4"
    "a2 2 0 0 0 0-4z",
}  # fmt: skip


def icon(name: str) -> Html:
    """Return a decorative icon: hidden from assistive technology, coloured by its surroundings."""
    path = tag("path", d=_PATHS[name])
    return tag("svg", path, class_="icon", viewBox="0 0 24 24", aria_hidden="true", focusable="false")


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
