"""The site document that a request carries, and the request itself, told apart from one text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandbox.rehearsal.request import Request

_DOCUMENT = re.compile(r'\{\s*"pages"\s*:')
_ASK = re.compile(
    r"\b(?:asks|describes the site|request)\s*:\s*(.+?)(?=\n\nYour last reply was refused:|\Z)",
    re.IGNORECASE | re.DOTALL,
)
"""How the tiers' prompts introduce what a person asked, and what follows it on a retry."""
_DECODER = json.JSONDecoder()

Props = dict[str, Any]


@dataclass(frozen=True)
class Element:
    """One element of a page that was sent."""

    page: str
    key: str
    type: str
    props: Props
    parent: str | None
    """Key of the element that has it as a child."""
    index: int
    """Place among the parent's children."""

    @property
    def pointer(self) -> str:
        """JSON pointer of the element."""
        return f"/pages/{escape(self.page)}/elements/{escape(self.key)}"


@dataclass(frozen=True)
class Document:
    """The part of a site that was sent."""

    pages: dict[str, Any]

    def elements(self) -> Iterator[Element]:
        """Yield the elements of each page, parents before children."""
        for path, page in self.pages.items():
            yield from self._below(path, page, page.get("root"), None, 0, set())

    def _below(
        self, path: str, page: Props, key: Any, parent: str | None, index: int, seen: set[str]
    ) -> Iterator[Element]:
        element = page.get("elements", {}).get(key)
        if not isinstance(element, dict) or key in seen:
            return
        seen.add(key)
        props = element.get("props")
        yield Element(path, key, str(element.get("type")), props if isinstance(props, dict) else {}, parent, index)
        for place, child in enumerate(element.get("children") or ()):
            yield from self._below(path, page, child, key, place, seen)

    def children(self, page: str, key: str) -> list[str]:
        """Return the keys of an element's children."""
        return list(self.pages[page]["elements"].get(key, {}).get("children") or ())

    def free_key(self, page: str, wanted: str) -> str:
        """Return an element key that the page does not use, shown or not: it is made of `wanted` and a number."""
        listed = json.dumps(self.pages[page])
        numbers = (f"{wanted}{suffix}" for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
        return next(key for key in numbers if f'"{key}"' not in listed)


def find_document(request: Request) -> tuple[Document, str] | None:
    """Return the last site document of the conversation and the text around it; None when there is none."""
    for text in reversed((request.system, *request.user_texts)):
        for start in _DOCUMENT.finditer(text):
            try:
                value, end = _DECODER.raw_decode(text, start.start())
            except (ValueError, RecursionError):
                continue
            if _is_document(value):
                return Document(value["pages"]), text[: start.start()] + "\n" + text[end:]
    return None


def asked(text: str) -> str:
    """Return what a person asked, out of a prompt that says more; the whole text when nothing introduces it."""
    found = _ASK.search(text)
    return found[1].strip() if found else text.strip()


def escape(key: str) -> str:
    """Return a key as a segment of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def _is_document(value: Any) -> bool:
    pages = value.get("pages")
    return isinstance(pages, dict) and all(
        isinstance(page, dict) and isinstance(page.get("elements"), dict) for page in pages.values()
    )
