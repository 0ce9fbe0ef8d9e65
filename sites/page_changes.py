"""What a person would see change between two releases: which pages, and which elements of them.

Computed from the stored files: a page's own scripts have no say in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from lxml import html

from sites.diff.canonical import changes
from sites.files import INDEX, media_type_of
from sites.links import path_of, read_page

Status = Literal["changed", "added", "removed", "restyled"]

_UNSEEN = frozenset({"script", "style", "template", "noscript", "link", "meta", "title"})
_MOST_ELEMENTS = 4_000
"""A larger page is compared as a whole."""
_MOST_MARKED = 40
_URL = re.compile(rb"""(?:url\(\s*|@import\s+)["']?([^"')\s;]+)""")
_LOADS = ("src", "href", "srcset", "poster", "data-src")


class PageChange(NamedTuple):
    """A page that looks different."""

    path: str
    title: str
    status: Status
    """`restyled`: its words and elements are the same, but its styles or scripts, or what it loads, are not."""
    before: tuple[str, ...]
    """CSS selectors of the elements that are gone or were different."""
    after: tuple[str, ...]
    """CSS selectors of the elements that are new or different."""

    @property
    def is_visible(self) -> bool:
        """Whether anything that a visitor sees differs."""
        return self.status != "changed" or bool(self.before or self.after)


def changed_pages(
    before: Mapping[str, str], after: Mapping[str, str], read: Callable[[str], bytes]
) -> list[PageChange]:
    """Return the pages that differ, the most changed first.

    `before` and `after` are the digests of what is served, by path; `read` returns the content with a digest.
    """
    differing = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assets = _loaded_changes({path for path in differing if not _is_page(path)}, after, read)
    found = []
    for path in filter(_is_page, sorted(before.keys() | after.keys())):
        if path not in before or path not in after:
            status: Status = "removed" if path in before else "added"
            page = _parse(read((before if path in before else after)[path]))
            found.append(PageChange(path, _title(page, path), status, (), ()))
        elif path in differing or assets:
            change = _compare(path, read(before[path]), read(after[path]), assets)
            if path in differing or change.status == "restyled":
                found.append(change)
    return sorted(found, key=lambda one: (not one.is_visible, one.status == "restyled", one.path != INDEX))


def _is_page(path: str) -> bool:
    return media_type_of(path) == "text/html"


def _loaded_changes(differing: set[str], after: Mapping[str, str], read: Callable[[str], bytes]) -> set[str]:
    """Return the assets that changed, with the style sheets that load them."""
    loading = {
        path: {path_of(target.decode("utf-8", "replace"), path) for target in _URL.findall(read(digest))}
        for path, digest in after.items()
        if differing and media_type_of(path) == "text/css"
    }
    found = set(differing)
    for _ in loading:  # a sheet may import another one
        found |= {path for path, targets in loading.items() if targets & found}
    return found


def _compare(path: str, old: bytes, new: bytes, assets: set[str]) -> PageChange:
    now = _parse(new)
    was = now if old == new else _parse(old)
    new_elements = [*_seen(now)]
    old_elements = new_elements if old == new else [*_seen(was)]
    title = _title(now, path)
    if old != new and max(len(old_elements), len(new_elements)) > _MOST_ELEMENTS:
        return PageChange(path, title, "changed", ("body",), ("body",))
    differing = changes([*map(_key, old_elements)], [*map(_key, new_elements)]) if old != new else []
    gone = [place for each in differing for place in range(each.start, each.end)]
    come = [place for each in differing for place in range(each.new_start, each.new_end)]
    loading = [place for place, each in enumerate(new_elements) if _loads(each, path) & assets]
    looks_other = bool(loading) or bool(_loads_of_head(now, path) & assets) or _own_looks(was) != _own_looks(now)
    is_restyled = looks_other and not (gone or come)
    before = _selectors(old_elements, gone)
    after = _selectors(new_elements, [*come, *loading])
    return PageChange(path, title, "restyled" if is_restyled else "changed", before, after)


def _parse(data: bytes) -> Any:
    page = read_page(data)
    return html.document_fromstring("<body></body>") if page is None else page


def _seen(page: Any) -> Iterator[Any]:
    """Yield the elements of the body that visitors may see, in document order."""
    body = page.find("body")
    stack = [] if body is None else [body]
    while stack:
        element = stack.pop()
        if isinstance(element.tag, str) and element.tag not in _UNSEEN:
            yield element
            stack.extend(reversed(element))


def _key(element: Any) -> tuple[Any, ...]:
    """Return what an element is by itself: its tag, its attributes, and the words that stand directly in it."""
    own = [element.text or "", *((child.tail or "") for child in element)]
    words = " ".join(" ".join(own).split())
    return element.tag, words, tuple(sorted(element.attrib.items()))


def _selectors(elements: Sequence[Any], places: Iterable[int]) -> tuple[str, ...]:
    """Return selectors of the outermost of these elements."""
    chosen = {elements[place] for place in places}
    outermost = [each for each in elements if each in chosen and chosen.isdisjoint(each.iterancestors())]
    return tuple(_selector(each) for each in outermost[:_MOST_MARKED])


def _selector(element: Any) -> str:
    parts: list[str] = []
    while element.tag != "body":
        above = element.getparent()
        place = 1 + sum(isinstance(each.tag, str) for each in element.itersiblings(preceding=True))
        # A browser adds the `tbody` that a table's rows lack.
        parts.append(f"{' ' if above.tag == 'table' else '>'}:nth-child({place})")
        element = above
    return "body" + "".join(reversed(parts))


def _loads(element: Any, path: str) -> set[str | None]:
    found = [value for name in _LOADS if (value := element.get(name))]
    return {path_of(part.split()[0], path) for value in found for part in value.split(",") if part.strip()}


def _loads_of_head(page: Any, path: str) -> set[str | None]:
    loaded = page.xpath("//link[@href] | //script[@src]")
    return {target for each in loaded for target in _loads(each, path)}


def _own_looks(page: Any) -> list[tuple[Any, ...]]:
    """Return a page's styles, scripts and style sheets; a script that is data is none."""
    found = page.xpath("//style | //script[not(contains(@type, 'json'))] | //link[contains(@rel, 'stylesheet')]")
    return [(each.tag, each.text, sorted(each.attrib.items())) for each in found]


def _title(page: Any, path: str) -> str:
    found = page.find(".//title")
    return " ".join((found.text or "").split()) if found is not None and found.text else path
