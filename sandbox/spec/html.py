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


EMPTY: Final = Html("")


def escape(text: str) -> Html:
    """Return text as markup that shows exactly this text, in an element or in a quoted attribute.

    Line ends become references: the indentation of the output must not get into an attribute or into preformatted text.
    """
    return Html(html.escape(text, quote=True).replace("\r", "&#13;").replace("\n", "&#10;"))


def tag(name: str, /, *children: str | None, **attributes: str | int | bool | None) -> Html:
    """Return one element.

    Args:
        name: the element's name.
        children: markup is kept, plain text is escaped, None and empty text are left out.
        attributes: `_` at the end of a name is dropped and every other one becomes a hyphen; None and False leave the
            attribute out, True writes it without a value.
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    if name in _VOID:
        return Html(opening)
    parts = [child if isinstance(child, Html) else escape(child) for child in children if child]
    if name not in _INLINE and any(_is_block(part) for part in parts):
        inner = "\n".join(parts).replace("\n", "\n  ")
        return Html(f"{opening}\n  {inner}\n</{name}>")
    return Html(f"{opening}{''.join(parts)}</{name}>")


def join(*parts: str | None) -> Html:
    """Return pieces of markup one after the other, blocks on lines of their own; plain text is escaped."""
    kept = [part if isinstance(part, Html) else escape(part) for part in parts if part]
    return Html(("\n" if any(_is_block(part) for part in kept) else "").join(kept))


def _attribute(key: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = _attribute_name(key)
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'


@cache  # the catalog's code names them, never a spec
def _attribute_name(key: str) -> str:
    name = key.rstrip("_").replace("_", "-")
    if not _ATTRIBUTE.fullmatch(name):
        raise ValueError(f"{name!r} is no attribute name")
    return name


def _is_block(part: str) -> bool:
    match = re.match(r"<([a-z0-9]+)", part)
    return match is not None and match[1] not in _INLINE
