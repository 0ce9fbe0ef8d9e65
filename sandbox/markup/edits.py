"""Changes of one page: a few places of its text are rewritten, and a second reading must find exactly that.

An edit is refused unless the tree of the new page equals the old tree with the wanted change made in it: no text that
becomes markup, no attribute that moves, no element that closes elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sandbox.markup.document import Attribute, Document, Node, NotEditableError, Span

_BARE_VALUE: Final = re.compile(r"[\w.:#?&;,%+-][\w./:#?&;,%+-]*(?<!/)", re.ASCII)


class Splice(NamedTuple):
    """New text for a range of the file's text."""

    span: Span
    text: str


@dataclass(frozen=True)
class Change:
    """One structured change: where the file is rewritten, and what the tree must be afterwards."""

    splice: Splice
    node: int
    """Index of the node that changes."""
    text: str | None = None
    """Its new text."""
    attribute: tuple[str, str] | None = None
    """Its new attribute."""
    is_removal: bool = False


class Reading(NamedTuple):
    """One way to understand a request."""

    summary: str
    changes: tuple[tuple[str, Change], ...]
    """Each with the path of its page."""


def set_text(document: Document, node: Node, new: str, *, start: int = 0, end: int | None = None) -> Change:
    """Return the change of one run of text, or of the characters from `start` to `end` of it.

    Raises:
        NotEditableError: the source does not spell the text out.
    """
    places = document.characters(node)
    if places is None or not new.strip():
        raise NotEditableError("the text does not stand in the page's source in one piece")
    end = len(places) if end is None else end
    span = Span(places[start].start, places[end - 1].end)
    return Change(Splice(span, _escaped(new, document)), node.index, text=node.text[:start] + new + node.text[end:])


def set_attribute(document: Document, node: Node, name: str, value: str) -> Change:
    """Return the change of one attribute, which is added when the element has none of this name.

    Raises:
        NotEditableError: the start tag is not plain enough to know its attributes' places.
    """
    tag = document.attributes(node)
    if tag is None:
        raise NotEditableError(f"the <{node.name}> tag is not written plainly enough")
    attributes, span = tag
    old = next((attribute for attribute in attributes if attribute.name == name), None)
    after_name = span.start + 1 + len(node.name)
    place = old.span if old else Span(after_name, after_name)
    written = f"{name if old is None else old.written}={_quoted(_escaped(value, document), old)}"
    return Change(Splice(place, written if old else f" {written}"), node.index, attribute=(name, value))


def _quoted(written: str, old: Attribute | None) -> str:
    """Return an attribute's value in the quotation marks of the old one, without any if that is safe."""
    if old is not None and old.quote == "'":
        return "'" + written.replace("'", "&#39;") + "'"
    if old is not None and not old.quote and _BARE_VALUE.fullmatch(written):
        return written
    return '"' + written.replace('"', "&quot;") + '"'


def remove_element(document: Document, node: Node) -> Change:
    """Return the removal of one element with all that stands in it.

    Raises:
        NotEditableError: the element is not closed by its own end tag, or not well nested.
    """
    span = document.element_span(node)
    if span is None:
        raise NotEditableError(f"the <{node.name}> element is not written plainly enough")
    return Change(Splice(span, ""), node.index, is_removal=True)


def apply_changes(document: Document, changes: Sequence[Change]) -> bytes:
    """Return the page after some changes; all bytes outside of their places are those of the page as it was.

    Raises:
        NotEditableError: two changes overlap, or a second reading finds anything but the wanted changes.
    """
    pieces: list[str] = []
    position = 0
    for (start, end), text in sorted(change.splice for change in changes):
        if start < position:
            raise NotEditableError("two changes meet in one place")
        pieces += [document.source[position:start], text]
        position = end
    data = "".join([*pieces, document.source[position:]]).encode("utf-8")
    wanted = list(_events(document.root, {change.node: change for change in changes}))
    if list(_events(Document(data).root, {})) != wanted:
        raise NotEditableError("the page would change in other places too")
    return data


Event = tuple[str, str, tuple[tuple[str, str], ...]]


def _events(root: Node, changes: Mapping[int, Change]) -> Iterator[Event]:
    """Yield a tree as a flat list, with some changes made; texts that touch are one."""
    text = ""
    stack: list[Node | str] = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            if text:
                yield "text", text, ()
            text = ""
            yield "end", node, ()
            continue
        change = changes.get(node.index)
        if change is not None and change.is_removal:
            continue
        if node.name == "#text":
            text += node.text if change is None or change.text is None else change.text
            continue
        if text:
            yield "text", text, ()
        text = ""
        attributes = dict(node.attributes) | (dict([change.attribute]) if change and change.attribute else {})
        yield "start", node.name, tuple(sorted((name, value or "") for name, value in attributes.items()))
        stack.append(node.name)
        stack.extend(reversed(node.children))


def _escaped(text: str, document: Document) -> str:
    """Return text as the page's source writes it."""
    written = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if document.is_declared_utf8:
        return written
    return "".join(character if character.isascii() else f"&#{ord(character)};" for character in written)
