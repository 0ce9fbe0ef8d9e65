"""Icons and drawings as inline SVG: a page needs no icon font, no photograph and no request.

Their shapes only name classes, so they follow the theme and its dark scheme. All are hidden from assistive technology.
"""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from typing import Final, Literal, get_args

from sites.spec.html import Html, tag

ArtName = Literal["tiles", "orbit", "hills", "waves", "rays", "arches", "dashboard"]
ART_NAMES: Final[tuple[str, ...]] = get_args(ArtName)


def art(name: ArtName) -> Html:
    """Return a drawing that fills the box it stands in."""
    return _drawing(name)


def street_map() -> Html:
    """Return a drawing of streets around a pin."""
    return _drawing("street-map")


@cache
def icon(name: str) -> Html:
    """Return a line icon of 24 by 24, coloured by its surroundings."""
    path = tag("path", d=_icon_paths()[name])
    return tag("svg", path, class_="icon", viewBox="0 0 24 24", aria_hidden="true", focusable="false")


@cache
def _drawing(name: str) -> Html:
    return Html("".join(line.strip() for line in _read(f"{name}.svg").splitlines()))


@cache
def _icon_paths() -> dict[str, str]:
    paths: dict[str, str] = json.loads(_read("icons.json"))
    return paths


def _read(name: str) -> str:
    return (pkgutil.get_data(__name__, f"drawings/{name}") or b"").decode()
