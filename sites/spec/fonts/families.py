"""The fonts of a theme: looks that a visitor's system has, and families whose files come with the builder.

In a document the name of any other family means the look that is nearest to it. So the families that are shipped have
names of their own (`fraunces-1`), which `shipped_name` puts in place of what people say.
"""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import BeforeValidator

from routing.yaml_data import load_yaml

_DATA: Final[dict[str, Any]] = load_yaml(pkgutil.get_data(__name__, "families.yaml") or b"")

Look = Literal["sans", "serif", "humanist", "geometric", "classical", "slab", "rounded", "condensed", "mono"]
Shipped = Literal[
    "fraunces-1",
    "playfair-display-1",
    "eb-garamond-1",
    "bitter-1",
    "inter-1",
    "figtree-1",
    "nunito-1",
    "oswald-1",
    "bricolage-grotesque-1",
]


class Font(NamedTuple):
    """A font family and how its headings are set: light if elegant, heavy and tight if plain."""

    stack: str
    weight: int
    tracking: str
    scale: str
    """A factor of the size that evens out wide and narrow families."""
    family: str = ""
    """The name of a family that is shipped."""
    fallback: str = ""
    """Its stand-in until it is loaded: kind, size, ascent and descent."""


def _shipped_font(entry: dict[str, Any]) -> Font:
    family, look = entry["family"], _DATA["looks"][entry["look"]]
    stack = f'"{family}", "{family} fallback", {look["stack"]}'
    return Font(stack, entry["weight"], entry["tracking"], entry["scale"], family, entry["fallback"])


FONTS: Final = {
    **{name: Font(**look) for name, look in _DATA["looks"].items()},
    **{name: _shipped_font(entry) for name, entry in _DATA["shipped"].items()},
}
NEAREST: Final = {family: look for look, families in _DATA["families"].items() for family in families}
"""The look that is nearest, by the lower-case name of a family that people ask for."""
_OF_LOOK: Final[dict[str, str]] = _DATA["of_look"]
_NAMES: Final = {
    called.casefold(): name
    for name, entry in _DATA["shipped"].items()
    for called in (entry["family"], *entry.get("names", ()))
}


def called() -> list[str]:
    """Return what people call the families that are shipped, in a word each."""
    return [entry.get("names", [entry["family"]])[0] for entry in _DATA["shipped"].values()]


def _nearest(value: object) -> object:
    return NEAREST.get(value.casefold(), value) if isinstance(value, str) else value


def shipped_name(value: Any) -> Any:
    """Return the name that a theme has for a family as people call it; whatever else a theme may hold as it is."""
    return _NAMES.get(value.casefold(), value) if isinstance(value, str) else value


def _on_new_site(value: object) -> object:
    font = _nearest(shipped_name(value))
    return _OF_LOOK.get(font, font) if isinstance(font, str) else font


FontChoice = Annotated[Literal[Look, Shipped], BeforeValidator(_nearest)]
"""A font of a theme, also by the name of a family that looks like it."""
NewFont = Annotated[Literal[Shipped, "mono"], BeforeValidator(_on_new_site)]
"""A font of a new site: a family that is shipped, also by a look or the name of another family that is like it."""

_FOLDER: Final = "fonts/"
_PARTS: Final = {
    "": "U+0000-00FF, U+0131, U+0152-0153, U+02BB-02BC, U+02C6, U+02DA, U+02DC, U+0304, U+0308, U+0329, U+2000-206F, "
    "U+20AC, U+2122, U+2191, U+2193, U+2212, U+2215, U+FEFF, U+FFFD",
    "-ext": "U+0100-0130, U+0132-0151, U+0154-017F, U+0218-021B, U+1E9E",
}
"""The letters of the two files of a family; a browser loads the second only for a page that has any of them."""
_SYSTEM: Final = {
    "sans": ("Arial", "ArialMT", "Liberation Sans", "Arimo"),
    "serif": ("Times New Roman", "TimesNewRomanPSMT", "Liberation Serif", "Tinos"),
}
"""Fonts of the same widths on different systems."""


def path_of(font: str) -> str | None:
    """Return the path of a shipped family's first file in a site; None for a look."""
    return f"{_FOLDER}{font}.woff2" if FONTS[font].family else None


def is_shipped(path: str) -> bool:
    """Whether a path of a site is that of a file of a shipped family."""
    return path in _paths()


def is_original(path: str, sha256: str) -> bool:
    """Whether a file of a site is one of a shipped family, byte for byte: anybody may write to its path."""
    return _digests().get(path) == sha256


@cache
def _digests() -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in font_files(FONTS).items()}


def font_files(fonts: Iterable[str]) -> dict[str, bytes]:
    """Return the files of the shipped families among some fonts, each with its licence."""
    return {f"{_FOLDER}{name}": _read(name) for font in fonts for name in _file_names(font)}


@cache
def _paths() -> frozenset[str]:
    return frozenset(f"{_FOLDER}{name}" for font in FONTS for name in _file_names(font))


def _file_names(font: str) -> tuple[str, ...]:
    return (*(f"{font}{part}.woff2" for part in _PARTS), f"{font}-LICENSE.txt") if FONTS[font].family else ()


@cache
def _read(name: str) -> bytes:
    return pkgutil.get_data(__name__, f"files/{name}") or b""


def font_faces(fonts: Iterable[str]) -> list[str]:
    """Return the rules that load the shipped families among some fonts, each with a stand-in of its size.

    While a file is on its way, the text stands where it will stand, in lines as long and as high.
    """
    return [rule for font in dict.fromkeys(fonts) if FONTS[font].family for rule in _faces(font)]


def _faces(font: str) -> Iterable[str]:
    family = FONTS[font].family
    for part, letters in _PARTS.items():
        yield (
            f'@font-face {{ font-family: "{family}"; src: url("{_FOLDER}{font}{part}.woff2") format("woff2"); '
            f"font-weight: 100 900; font-display: swap; unicode-range: {letters}; }}"
        )
    kind, size, ascent, descent = FONTS[font].fallback.split()
    local = ", ".join(f'local("{name}")' for name in _SYSTEM[kind])
    yield (
        f'@font-face {{ font-family: "{family} fallback"; src: {local}; size-adjust: {size}; '
        f"ascent-override: {ascent}; descent-override: {descent}; line-gap-override: 0%; }}"
    )
