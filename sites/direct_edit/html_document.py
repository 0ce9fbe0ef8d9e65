"""A page of plain HTML as the browser's tree, with the place of each part in its source.

The tree comes from an HTML5 parser. A part has a place only if its source, parsed by itself, gives exactly that part;
what the parser had to repair has none.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import unescape
from typing import Any, Final, NamedTuple

from justhtml import JustHTML

from sites.errors import SiteError


class NotEditableError(SiteError, ValueError):
    """A page, or a part of it, cannot be changed without touching anything else (nobody's fault)."""


MAX_PAGE_BYTES: Final = 512 * 1024
"""The largest page to edit; the parser reads about 200 KiB a second."""
MAX_NODES: Final = 30_000
MAX_DEPTH: Final = 150
"""Nested elements."""
_REFERENCE: Final = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[A-Za-z][A-Za-z0-9]*;?)|.", re.DOTALL)
_MARKUP: Final = re.compile(r"<(?=[A-Za-z/!?])")
_RAW_TEXT: Final = frozenset({"script", "style", "noscript", "iframe", "noembed", "noframes", "xmp", "plaintext"})
_ESCAPABLE: Final = frozenset({"title", "textarea"})
_TAG_NAME: Final = re.compile(r"<(?P<name>[A-Za-z][^\t\n\f\r />]*)")
_ATTRIBUTE: Final = re.compile(
    r"[\t\n\f\r /]*(?P<name>[^\t\n\f\r />=]+)"
    r"(?:[\t\n\f\r ]*=[\t\n\f\r ]*(?P<value>\"[^\"]*\"|'[^']*'|[^\t\n\f\r >\"'=<`]+))?"
)
_TAG_END: Final = re.compile(r"[\t\n\f\r ]*/?>")
_DECLARED_UTF8: Final = re.compile(r"<meta[^>]+charset\s*=\s*[\"']?\s*utf-?8\b", re.I)


class Span(NamedTuple):
    """A range of the file's text."""

    start: int
    end: int


@dataclass(frozen=True)
class Attribute:
    """One attribute of a start tag in the source."""

    name: str
    value: str
    span: Span
    """From the name to the closing quotation mark."""
    written: str
    """The name as spelled in the source."""
    quote: str
    """The quotation mark of the value; empty if there is none."""


@dataclass(frozen=True, eq=False)
class Node:
    """An element or a text of the tree."""

    index: int
    """The number in document order, counting elements and texts."""
    name: str
    """The element's name in lower case; `#text` for a text."""
    parent: Node | None
    attributes: Mapping[str, str]
    text: str
    """The content of a text, with character references resolved."""
    offset: int | None
    """Where the source begins, if the parser reports it."""
    children: list[Node] = field(default_factory=list, repr=False)

    def walk(self) -> Iterator[Node]:
        """Yield the node and all below it, in document order."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def ancestors(self) -> Iterator[Node]:
        """Yield the ancestors from the inside out."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def content(self) -> str:
        """All text below the node with white space collapsed."""
        parts = [node.text for node in self.walk() if node.name == "#text"]
        return re.sub(r"\s+", " ", "".join(parts)).strip()


class Document:
    """A page as a browser's tree, with the place of each part in the source."""

    def __init__(self, data: bytes) -> None:
        """Parse a page.

        Raises:
            NotEditableError: the page is too large, not UTF-8, or holds characters that parsers replace.
        """
        if len(data) > MAX_PAGE_BYTES:
            raise NotEditableError(f"the page has more than {MAX_PAGE_BYTES} bytes")
        try:
            self.source = data.decode("utf-8")
        except UnicodeDecodeError:
            raise NotEditableError("the page is not UTF-8") from None
        if "\x00" in self.source or "\ufeff" in self.source[1:]:
            raise NotEditableError("the page holds characters that browsers replace")
        self._bom = 1 if self.source.startswith("\ufeff") else 0
        self._normal = re.sub(r"\r\n?", "\n", self.source[self._bom :])
        self._pairs = [match.start() - at for at, match in enumerate(re.finditer("\r\n", self.source[self._bom :]))]
        self.root = self._read()

    @property
    def is_declared_utf8(self) -> bool:
        """Whether the page itself declares UTF-8."""
        return bool(self._bom or _DECLARED_UTF8.search(self.source[:1024]))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All elements and texts in document order."""
        return tuple(self.root.walk())

    def elements(self, *names: str) -> list[Node]:
        """Return the elements with these names in document order."""
        return [node for node in self.nodes if node.name in names]

    def text_span(self, node: Node) -> Span | None:
        """Return the source range of a text; None if the source does not have it in one piece."""
        if node.offset is None or node.parent is None or node.parent.name in _RAW_TEXT:
            return None
        if node.parent.name in _ESCAPABLE:
            found = re.compile(rf"</{node.parent.name}(?=[\t\n\f\r />])", re.I).search(self._normal, node.offset)
        else:
            found = _MARKUP.search(self._normal, node.offset)
        end = found.start() if found else len(self._normal)
        return self._placed(node.offset, end) if unescape(self._normal[node.offset : end]) == node.text else None

    def characters(self, node: Node) -> list[Span] | None:
        """Return the source range of every character of a text; None if the text has none."""
        span = self.text_span(node)
        if span is None:
            return None
        spans: list[Span] = []
        shown: list[str] = []
        for match in _REFERENCE.finditer(self.source, span.start, span.end):
            if match[0] == "\r":
                continue  # the line feed behind it stands for both, and a lone one is refused below
            characters = unescape(match[0])
            shown.append(characters)
            spans += [Span(*match.span())] * len(characters)
        return spans if "".join(shown) == node.text else None

    def attributes(self, node: Node) -> tuple[tuple[Attribute, ...], Span] | None:
        """Return an element's attributes and the range of its start tag; None if it has no tag of its own."""
        start = node.offset
        opening = _TAG_NAME.match(self._normal, start) if start is not None else None
        if start is None or opening is None or opening["name"].lower() != node.name:
            return None
        position = opening.end()
        found: list[Attribute] = []
        while not (closing := _TAG_END.match(self._normal, position)):
            match = _ATTRIBUTE.match(self._normal, position)
            if match is None:
                return None
            found.append(self._attribute(match))
            position = match.end()
        first = {attribute.name: attribute.value for attribute in reversed(found)}
        is_plain = first == dict(node.attributes) and len(first) == len(found)
        return (tuple(found), self._placed(start, closing.end())) if is_plain else None

    def _attribute(self, match: re.Match[str]) -> Attribute:
        raw = match["value"] or ""
        quote = (raw[0] if raw[0] in ("'", '"') else "") if raw else '"'
        place = self._placed(match.start("name"), match.end())
        return Attribute(
            match["name"].lower(), unescape(raw[1:-1] if quote and raw else raw), place, match["name"], quote
        )

    def element_span(self, node: Node) -> Span | None:
        """Return the range of a whole element; None unless it is well nested and closed by its own end tag."""
        tag = self.attributes(node)
        if tag is None:
            return None
        pieces = [piece for child in node.children for piece in [self._extent(child)]]
        position = tag[1].end
        for piece in pieces:
            if piece is None or not self._only_comments(position, piece.start):
                return None
            position = piece.end
        closing = re.compile(rf"</{re.escape(node.name)}[\t\n\f\r ]*>", re.I).search(self.source, position)
        if closing is None or not self._only_comments(position, closing.start()):
            return None
        return Span(tag[1].start, closing.end())

    def _extent(self, node: Node) -> Span | None:
        if node.name == "#text":
            return self.text_span(node)
        if node.name in _VOID:
            tag = self.attributes(node)
            return tag[1] if tag else None
        return self.element_span(node)

    def _only_comments(self, start: int, end: int) -> bool:
        return end >= start and not re.sub(r"<!--(?:(?!-->).)*-->", "", self.source[start:end], flags=re.DOTALL)

    def _placed(self, start: int, end: int) -> Span:
        """Map a range of the normalized text to the file."""
        return Span(*(self._bom + at + bisect_left(self._pairs, at) for at in (start, end)))

    def _read(self) -> Node:
        tree = JustHTML(self._normal, track_node_locations=True, sanitize=False).root
        root = Node(0, "#document", None, {}, "", None)
        count = 1
        stack: list[tuple[Any, Node, int]] = [(child, root, 1) for child in reversed(_children(tree))]
        while stack:
            item, parent, depth = stack.pop()
            if item.name.startswith(("!", "#comment")):
                continue
            is_text = item.name == "#text"
            attributes, text = ({}, item.data) if is_text else (dict(item.attrs or {}), "")
            node = Node(count, item.name, parent, attributes, text, item.origin_offset)
            parent.children.append(node)
            count += 1
            if count > MAX_NODES or depth > MAX_DEPTH:
                raise NotEditableError(f"the page has more than {MAX_NODES} parts, or nests deeper than {MAX_DEPTH}")
            stack.extend((child, node, depth + 1) for child in reversed(_children(item)))
        return root


_VOID: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)


def _children(item: Any) -> list[Any]:
    """Return the children of a parser's node, including a template's content."""
    content = getattr(item, "template_content", None)
    return [*(item.children or ()), *([content] if content is not None else ())]
