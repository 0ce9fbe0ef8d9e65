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
        if isinstance(value, str):
            opening += f'{_attribute_name(key)}="{_escaped(value)}"'
        elif value is True:
            opening += _attribute_name(key)
        elif value is not None and value is not False:
            opening += f'{_attribute_name(key)}="{value}"'
    kind = Html if name in _INLINE else _Block
    if name in _VOID:
        return kind(f"{opening}>")
    parts, has_block = _kept(children)
    if has_block and kind is _Block:
        inner = "\n".join(parts).replace("\n", "\n  ")
        return _Block(f"{opening}>\n  {inner}\n</{name}>")
    return kind(f"{opening}>{''.join(parts)}</{name}>")


def join(*parts: str | None) -> Html:
    """Return pieces of markup one after the other, blocks on lines of their own; plain text is escaped."""
    kept, has_block = _kept(parts)
    if not has_block:
        return Html("".join(kept))
    kind = _Block if isinstance(kept[0], _Block) else Html
    return kind("\n".join(kept))


def _kept(pieces: tuple[str | None, ...]) -> tuple[list[str], bool]:
    """Return the pieces that are not empty, plain text escaped, and whether one is a block."""
    kept: list[str] = []
    has_block = False
    for piece in pieces:
        if piece:
            if piece.__class__ is _Block:
                has_block = True
            elif piece.__class__ is not Html:
                piece = _escaped(piece)
            kept.append(piece)
    return kept, has_block


def _escaped(text: str) -> str:
    if "&" in text or "<" in text or ">" in text or '"' in text or "'" in text or "\n" in text or "\r" in text:
        return html.escape(text, quote=True).replace("\r", "&#13;").replace("\n", "&#10;")
    return text


@cache  # the catalog's code names them, never a spec
def _attribute_name(key: str) -> str:
    """Return the name of an attribute with the space before it."""
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name):
        raise ValueError(f"{name!r} is no attribute name")
    return f" {name}"
