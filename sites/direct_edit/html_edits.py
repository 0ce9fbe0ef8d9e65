"""Edits of plain HTML that change one text, attribute or element and leave every other byte alone.

The page is parsed again afterwards: unless its tree equals the old one with exactly the wanted change, the edit is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from sites.direct_edit.html_document import Attribute, Document, Node, NotEditableError, Span
from sites.direct_edit.request import VOCABULARY, plain, typed, whole_words
from sites.files import INDEX

_BARE_VALUE: Final = re.compile(r"[\w.:#?&;,%+-][\w./:#?&;,%+-]*(?<!/)", re.ASCII)


@dataclass(frozen=True)
class Change:
    """One change: where the file is rewritten, and how the tree must differ afterwards."""

    span: Span
    """The range of the file's text that is rewritten."""
    written: str
    """The new text of that range."""
    node: int
    """Index of the node that changes."""
    text: str | None = None
    attribute: tuple[str, str] | None = None
    is_removal: bool = False


class ProposedEdit(NamedTuple):
    """One way to carry out a request."""

    summary: str
    changes: tuple[tuple[str, Change], ...]
    """Each with the path of its page."""


def set_text(document: Document, node: Node, new: str, *, start: int = 0, end: int | None = None) -> Change:
    """Return the change of a text node, or of its characters from `start` to `end`.

    Raises:
        NotEditableError: the source does not spell the text out.
    """
    places = document.characters(node)
    if places is None or not new.strip():
        raise NotEditableError("the page's source does not have the text in one piece")
    end = len(places) if end is None else end
    span = Span(places[start].start, places[end - 1].end)
    return Change(span, _escaped(new, document), node.index, text=node.text[:start] + new + node.text[end:])


def set_attribute(document: Document, node: Node, name: str, value: str) -> Change:
    """Return the change of one attribute, which is added if missing.

    Raises:
        NotEditableError: the start tag is not plain enough to locate its attributes.
    """
    tag = document.attributes(node)
    if tag is None:
        raise NotEditableError(f"the <{node.name}> tag is not written plainly enough")
    attributes, span = tag
    old = next((attribute for attribute in attributes if attribute.name == name), None)
    after_name = span.start + 1 + len(node.name)
    place = old.span if old else Span(after_name, after_name)
    written = f"{name if old is None else old.written}={_quoted(_escaped(value, document), old)}"
    return Change(place, written if old else f" {written}", node.index, attribute=(name, value))


def _quoted(written: str, old: Attribute | None) -> str:
    """Return an attribute's value quoted like the old one, unquoted only if that is safe."""
    if old is not None and old.quote == "'":
        return "'" + written.replace("'", "&#39;") + "'"
    if old is not None and not old.quote and _BARE_VALUE.fullmatch(written):
        return written
    return '"' + written.replace('"', "&quot;") + '"'


def remove_element(document: Document, node: Node) -> Change:
    """Return the removal of one element with its content.

    Raises:
        NotEditableError: the element is not closed by its own end tag, or not well nested.
    """
    span = document.element_span(node)
    if span is None:
        raise NotEditableError(f"the <{node.name}> element is not written plainly enough")
    return Change(span, "", node.index, is_removal=True)


def apply_changes(document: Document, changes: Sequence[Change]) -> bytes:
    """Return the page after some changes, with all other bytes as they were.

    Raises:
        NotEditableError: two changes overlap, or the new tree has other changes too.
    """
    pieces: list[str] = []
    position = 0
    for (start, end), text in sorted((change.span, change.written) for change in changes):
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
    """Yield a tree as a flat list with some changes made and adjacent texts joined."""
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
    """Return text escaped for the page's source."""
    written = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if document.is_declared_utf8:
        return written
    return "".join(character if character.isascii() else f"&#{ord(character)};" for character in written)


MAX_SITE_BYTES: Final = 1024 * 1024
"""Of all pages together; more cannot be parsed within a job's time."""
_PAGE: Final = re.compile(r"\.html?$", re.I)
_TEXT_FILE: Final = re.compile(r"\.(?:html?|css|m?js|json|xml|txt|svg|webmanifest|md)$", re.I)
_INLINE_NAMES: Final = (
    "a abbr b bdi bdo cite code data del dfn em font i ins kbd label mark q s samp small span strike strong sub sup "
    "time tt u var wbr"
)
_INLINE: Final = frozenset(_INLINE_NAMES.split())
_UNSEEN_NAMES: Final = (
    "head script style template noscript title textarea iframe object svg math select datalist noembed noframes"
)
_UNSEEN: Final = frozenset(_UNSEEN_NAMES.split())


class Hit(NamedTuple):
    """One place of a text on a page."""

    page: str
    node: Node | None
    """The text node that contains all of it; None if it is spread over several."""
    start: int
    end: int


class PlainSite:
    """The files of a site, with its pages as trees."""

    def __init__(self, files: Mapping[str, bytes], *, only: frozenset[str] | None = None) -> None:
        """Parse the pages of a site, or `only` some of them.

        Raises:
            NotEditableError: a page cannot be read exactly, so what it shows is not known.
        """
        paths = sorted(path for path in files if _PAGE.search(path) and (only is None or path in only))
        if sum(len(files[path]) for path in paths) > MAX_SITE_BYTES:
            raise NotEditableError(f"the site's pages have more than {MAX_SITE_BYTES} bytes")
        self.files = files
        self.pages: dict[str, Document] = {}
        for path in paths:
            try:
                self.pages[path] = Document(files[path])
            except NotEditableError as error:
                raise NotEditableError(f"{path}: {error}") from None

    def find_pages(self, name: str) -> tuple[str, ...]:
        """Return the pages with a name: that of the file, or of a link to it."""
        wanted = re.sub(r" page$", "", plain(name))
        if wanted in VOCABULARY.home_page:
            return tuple(path for path in self.pages if path == INDEX)
        found = {path for path in self.pages if wanted in (path.lower(), _PAGE.sub("", path.lower()))}
        for path, document in self.pages.items():
            for link in document.elements("a"):
                target = link.attributes.get("href", "")
                if typed(link.content).lower() == wanted and "/" not in path + target and target in self.pages:
                    found.add(target)
        return tuple(sorted(found))

    def find_text(self, wanted: str, *, ignore_case: bool = False) -> list[Hit]:
        """Return every place where words occur in the visible text, but not as part of a longer word."""
        collapsed = re.sub(r"\s+", " ", wanted).strip()
        if not collapsed:
            return []
        pattern = whole_words(collapsed, ignore_case=ignore_case)
        found: list[Hit] = []
        for path, blocks in self._blocks.items():
            for runs in blocks:
                read_as_one = list(_hits(path, runs, pattern))
                alone = [hit for run in runs for hit in _hits(path, [run], pattern) if hit not in read_as_one]
                found += read_as_one
                found += [hit if _is_whole(hit) else hit._replace(node=None) for hit in alone]
        return found

    def mentions(self, text: str) -> int:
        """Count a text in all text files of the site, visible or not."""
        wanted = text.encode()
        return sum(data.lower().count(wanted.lower()) for path, data in self.files.items() if _TEXT_FILE.search(path))

    def visible_texts(self) -> Iterator[tuple[str, str]]:
        """Yield each page's visible blocks of text."""
        for path, blocks in self._blocks.items():
            for block in blocks:
                yield path, re.sub(r"\s+", " ", "".join(run.text for run in block)).strip()

    @cached_property
    def _blocks(self) -> dict[str, list[list[Node]]]:
        return {path: list(_blocks(document.root)) for path, document in self.pages.items()}


def _blocks(root: Node) -> Iterator[list[Node]]:
    """Yield the text nodes of each block; inline elements do not divide it."""
    runs: list[Node] = []
    stack: list[Node | None] = [root]
    while stack:
        node = stack.pop()
        if node is not None and node.name == "#text":
            runs.append(node)
            continue
        if node is None or node.name not in _INLINE:
            if runs:
                yield runs
            runs = []
        if node is None or node.name in _UNSEEN:
            continue
        if node.name not in _INLINE:
            stack.append(None)
        stack.extend(reversed(node.children))
    if runs:
        yield runs


def _is_whole(hit: Hit) -> bool:
    """Whether a place is all of its text node, and so whole words even if other text touches it in the source.

    Adjacent links are apart on the screen, while a part of a node may end in the middle of a word.
    """
    return hit.node is not None and hit.node.text[hit.start : hit.end].strip() == hit.node.text.strip()


def _hits(page: str, runs: list[Node], pattern: re.Pattern[str]) -> Iterator[Hit]:
    shown: list[str] = []
    origin: list[tuple[Node, int]] = []
    for run in runs:
        for at, character in enumerate(run.text):
            is_blank = character.isspace() and character != "\xa0"
            if is_blank and (not shown or shown[-1] == " "):
                continue
            shown.append(" " if is_blank else character)
            origin.append((run, at))
    for match in pattern.finditer("".join(shown)):
        (first, start), (last, end) = origin[match.start()], origin[match.end() - 1]
        yield Hit(page, first if first is last else None, start, end + 1)
