"""Is an edited site still the site? A valid spec that lost what it said counts as failed (DESIGN.md section 4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from sandbox.spec.model import Site

_NOT_COPY: Final = frozenset(
    {"href", "src", "icon", "theme", "tone", "layout", "lang", "of", "variant", "width", "action"}
)
_MIN_WORDS: Final = 12
"""A site shorter than this is too small to judge by its number of words."""


def copy_of(site: Site) -> tuple[str, ...]:
    """Return every text of a site that people read, in document order of its canonical form."""
    found: list[str] = []
    for _, page in sorted(site.pages.items()):
        elements = page.get("elements")
        for _, element in sorted(elements.items()) if isinstance(elements, dict) else ():
            found += texts(element.get("props", {}) if isinstance(element, dict) else {})
        found += texts(page.get("state", {}))
    return tuple(found)


def texts(value: object) -> Iterator[str]:
    """Yield the texts inside a prop value that people read: no addresses, no names of colours and icons."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not (key in _NOT_COPY and not isinstance(item, Mapping | list)) and key != "theme":
                yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)


def loses_copy(before: Site, after: Site) -> bool:
    """Whether an edit drops more than half of the words that the site had."""
    old = _words(before)
    kept = sum((old & _words(after)).values())
    return sum(old.values()) >= _MIN_WORDS and kept * 2 < sum(old.values())


def is_unchanged(before: Site, after: Site) -> bool:
    """Whether an edit did nothing."""
    return before.canonical() == after.canonical()


def _words(site: Site) -> Counter[str]:
    return Counter(word for text in copy_of(site) for word in text.lower().split())
