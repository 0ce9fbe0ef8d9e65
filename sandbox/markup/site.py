"""A site of plain files as its reader sees it: pages by name, and where on them a text stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from sandbox.markup.document import Document, Node, NotEditableError
from sandbox.spec.rules.request import plain
from sandbox.spec.rules.vocabulary import VOCABULARY

MAX_SITE_BYTES: Final = 1024 * 1024
"""Of all pages together; more is not read within a job's time."""
INDEX: Final = "index.html"
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
    """One place where a text is read on a page."""

    page: str
    node: Node | None
    """The run of text that holds all of it; None when it is spread over several."""
    start: int
    end: int


class PlainSite:
    """The files of a site and its pages as trees."""

    def __init__(self, files: Mapping[str, bytes], *, only: frozenset[str] | None = None) -> None:
        """Read the pages of a site.

        Args:
            files: the site's files by path.
            only: the pages to read; None for all.

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
        """Return the pages that are called by a name: of the file, or of a link that leads there."""
        wanted = re.sub(r" page$", "", plain(name))
        if wanted in VOCABULARY.home_page:
            return tuple(path for path in self.pages if path == INDEX)
        found = {path for path in self.pages if wanted in (path.lower(), _PAGE.sub("", path.lower()))}
        for path, document in self.pages.items():
            for link in document.elements("a"):
                target = link.attributes.get("href", "")
                if link.content.lower() == wanted and "/" not in path + target and target in self.pages:
                    found.add(target)
        return tuple(sorted(found))

    def find_text(self, wanted: str, *, ignore_case: bool = False) -> list[Hit]:
        """Return every place of the visible text where some words stand, not as part of a longer word."""
        collapsed = re.sub(r"\s+", " ", wanted).strip()
        if not collapsed:
            return []
        start = r"(?<!\w)" if collapsed[0].isalnum() else ""
        end = r"(?!\w)" if collapsed[-1].isalnum() else ""
        pattern = re.compile(start + re.escape(collapsed) + end, re.I if ignore_case else 0)
        found: list[Hit] = []
        for path, blocks in self._blocks.items():
            for runs in blocks:
                read_as_one = list(_hits(path, runs, pattern))
                alone = [hit for run in runs for hit in _hits(path, [run], pattern) if hit not in read_as_one]
                found += read_as_one
                found += [hit if _is_whole(hit) else hit._replace(node=None) for hit in alone]
        return found

    def mentions(self, text: str) -> int:
        """Return how often any text file of the site holds some characters, seen or unseen."""
        wanted = text.encode()
        return sum(data.lower().count(wanted.lower()) for path, data in self.files.items() if _TEXT_FILE.search(path))

    def visible_texts(self) -> Iterator[tuple[str, str]]:
        """Yield each page's blocks of text as a reader sees them."""
        for path, blocks in self._blocks.items():
            for block in blocks:
                yield path, re.sub(r"\s+", " ", "".join(run.text for run in block)).strip()

    @cached_property
    def _blocks(self) -> dict[str, list[list[Node]]]:
        return {path: list(_blocks(document.root)) for path, document in self.pages.items()}


def _blocks(root: Node) -> Iterator[list[Node]]:
    """Yield the runs of text that are read as one line: inline elements do not divide them."""
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
    """Whether a place is all of its run: then it is whole words even if other text touches it in the source.

    Links that touch there stand apart on the screen; a part of a run may as well end in the middle of a word.
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
