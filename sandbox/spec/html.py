"""HTML that is escaped by construction: only this module turns text into markup.

Output has one element per line where elements are blocks, so that a later unified diff of a page has lines to work on.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Final

_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta", "source", "track"})
_INLINE: Final = frozenset(
    {
        "a",
        "b",
        "br",
        "code",
        "em",
        "i",
        "img",
        "span",
        "strong",
        "svg",
        "path",
        "circle",
        "rect",
        "line",
        "cite",
        "time",
    }
)
_ATTRIBUTE: Final = re.compile(r"[a-z][a-z0-9-]*", re.IGNORECASE)
_SPECIAL: Final = re.compile("[&<>\"'\r\n]")


class Html(str):
    """Markup that is already escaped. Only `escape`, `tag` and `join` make it."""

    __slots__ = ()


class _Block(Html):
    """Markup that starts with an element which stands on lines of its own."""

    __slots__ = ()


EMPTY: Final = Html("")


def escape(text: str) -> Html:
    """Return text as markup that shows exactly this text, in an element or in a quoted attribute.

    Line ends become references: the indentation of the output must not get into an attribute or into preformatted text.
    """
    return Html(_escaped(text))


def tag(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """Return one element.

    Args:
        name: the element's name.
        children: markup is kept, plain text is escaped, None and empty text are left out.
        attributes: `_` at the end of a name is dropped and every other one becomes a hyphen; None and False leave the
            attribute out, True writes it without a value.
    """
    opening = f"<{name}"
    for key, value in attributes.items():
        if value is True:
            opening += _attribute_name(key)
        elif value is not None and value is not False:
            opening += f'{_attribute_name(key)}="{_escaped(str(value))}"'
    kind = Html if name in _INLINE else _Block
    if name in _VOID:
        return kind(f"{opening}>")
    parts = _kept(children)
    if kind is _Block and _Block in map(type, parts):
        inner = "\n".join(parts).replace("\n", "\n  ")
        return _Block(f"{opening}>\n  {inner}\n</{name}>")
    return kind(f"{opening}>{''.join(parts)}</{name}>")


def join(*parts: str | None) -> Html:
    """Return pieces of markup one after the other, blocks on lines of their own; plain text is escaped."""
    kept = _kept(parts)
    if _Block not in map(type, kept):
        return Html("".join(kept))
    kind = _Block if isinstance(kept[0], _Block) else Html
    return kind("\n".join(kept))


def _kept(pieces: tuple[str | None, ...]) -> list[str]:
    return [piece if isinstance(piece, Html) else _escaped(piece) for piece in pieces if piece]


def _escaped(text: str) -> str:
    if _SPECIAL.search(text) is None:
        return text
    return html.escape(text, quote=True).replace("\r", "&#13;").replace("\n", "&#10;")


@cache  # the catalog's code names them, never a spec
def _attribute_name(key: str) -> str:
    """Return the name of an attribute with the space before it."""
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name):
        raise ValueError(f"{name!r} is no attribute name")
    return f" {name}"
