"""Is an edited site still the site, and does it have the change?

DESIGN.md section 4 counts a valid spec that lost either as failed. Judged is what visitors see: the resolved pages,
without what is hidden or can no longer be reached.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.spec.catalog import components
from sandbox.spec.colours import COLOUR_NAMES
from sandbox.spec.errors import shown
from sandbox.spec.expectations import plain, read_expectations
from sandbox.spec.model import Site
from sandbox.spec.resolve import Node, resolve_site, walk
from sandbox.spec.structure import reachable

_NOT_COPY: Final = frozenset(
    {
        "href",
        "src",
        "icon",
        "theme",
        "tone",
        "layout",
        "lang",
        "of",
        "variant",
        "width",
        "action",
        "art",
        "captions",
        "cards",
        "align",
    }
)
_MIN_WORDS: Final = 12
"""A site shorter than this is too small to judge by its number of words."""
_LONG_TEXT_WORDS: Final = 9
"""From this many words on, a text may be set in several props, so its words are looked for one by one."""
_OTHER_WORDS: Final = re.compile(
    r"\b(?:translate|rewrite|reword|rephrase|paraphrase|simplify|proofread|formal|informal|tone|wording|copy|"
    r"in(?:to)? (?:english|german|french|spanish|italian|dutch|portuguese|polish))\b",
    re.I,
)


def copy_of(site: Site) -> tuple[str, ...]:
    """Return every text of a valid site that people read, page by page in document order; shared elements once."""
    return tuple(text for node in _nodes(site) for text in texts(node.props))


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


def loses_copy(before: Site, after: Site, *, request: str = "") -> bool:
    """Whether an edit drops more than half of the words that the site had.

    Args:
        before: the site as it was, valid.
        after: the edited site, valid.
        request: what was asked. One that asks for other words (a translation) is judged by how much is said, not by
            which words say it.
    """
    old, new = _words(before), _words(after)
    had = sum(old.values())
    kept = sum(new.values()) if _OTHER_WORDS.search(request) else sum((old & new).values())
    return had >= _MIN_WORDS and kept * 2 < had


def is_unchanged(before: Site, after: Site) -> bool:
    """Whether an edit did nothing that can be seen."""
    return before.canonical() == after.canonical() or resolve_site(before) == resolve_site(after)


def lost_change(request: str, before: Site, after: Site) -> str | None:
    """Return why an edit cannot be what was asked for, in words for the model's second try; None in any doubt.

    Args:
        request: what was asked, in the owner's words.
        before: the site as it was, valid.
        after: the edited site, valid.
    """
    if lost := _unreachable(before, after):
        return f"the new element {lost} is in no list of children, so it is not shown"
    expected = read_expectations(request)
    new, old = _Seen(after), _Seen(before)
    for text in expected.shown:
        if not new.shows(text):
            return f"the request asks for the text {shown(text)}, which is nowhere on the pages"
    for text in expected.gone:
        if old.count(text) and new.count(text) >= old.count(text) and not _is_part_of_any(text, expected.shown):
            return f"the request asks for {shown(text)} to go, and the pages still show it as often as before"
    for value in expected.values:
        if not new.holds(value):
            return f"the request gives the value {value}, which the site does not have"
    return _wrong_component(old, new, fewer=expected.fewer, touched=expected.touched)


class _Seen:
    """What visitors see of a site, ready for comparing."""

    def __init__(self, site: Site) -> None:
        self.nodes = tuple(_nodes(site))
        self._texts = [plain(text) for node in self.nodes for text in texts(node.props)]
        self._all = " ".join(self._texts)
        self._strings = [text.casefold() for node in self.nodes for text in _strings(node.props)]

    def count(self, text: str) -> int:
        wanted = plain(text)
        return sum(len(_whole_words(wanted).findall(held)) for held in self._texts) if wanted else 0

    def shows(self, text: str) -> bool:
        wanted = plain(text)
        if wanted in self._all or any(wanted in held for held in self._strings):
            return True
        words = re.findall(r"\w+", wanted)
        seen = set(re.findall(r"\w+", self._all))
        return len(words) >= _LONG_TEXT_WORDS and sum(word in seen for word in words) * 10 >= len(words) * 9

    def holds(self, value: str) -> bool:
        forms = _forms_of(value)
        digits = re.sub(r"\D", "", value) if len(value) > 8 and "@" not in value and value[0] != "#" else ""
        return any(
            any(form in held for form in forms) or (digits and digits in re.sub(r"\D", "", held))
            for held in self._strings
        )  # fmt: skip

    def of(self, component: str) -> list[Node]:
        return [node for node in self.nodes if node.type == component]

    def calls_another(self, component: str) -> bool:
        """Whether an element of another kind is headed by the name of this one."""
        name = components()[component].words[0]
        return any(name in plain(str(node.props.get("heading"))) for node in self.nodes if node.type != component)


def _nodes(site: Site) -> Iterator[Node]:
    """Yield what is shown, each element once however many pages share it."""
    seen: set[tuple[str, str]] = set()
    for tree in resolve_site(site).values():
        for node in walk(tree):
            if (node.path, node.id) not in seen:
                seen.add((node.path, node.id))
                yield node


def _unreachable(before: Site, after: Site) -> str | None:
    for path, page in sorted(after.pages.items()):
        known = before.pages.get(path, {}).get("elements", {})
        for key in sorted(set(page["elements"]) - set(known) - reachable(page)):
            return f"{key} of {path}"
    return None


def _wrong_component(old: _Seen, new: _Seen, *, fewer: str | None, touched: str | None) -> str | None:
    name = fewer or touched
    if name is None or not old.of(name) or old.calls_another(name):
        return None
    if fewer and len(new.of(name)) >= len(old.of(name)):
        return f"the request asks for {name} to go, and it is still there"
    if touched and new.of(name) == old.of(name):
        return f"the request is about {name}, which the patch leaves as it is"
    return None


def _is_part_of_any(text: str, others: tuple[str, ...]) -> bool:
    return any(plain(text) in plain(other) for other in others)


def _whole_words(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")


def _forms_of(value: str) -> set[str]:
    """Return the ways in which a spec may write a value."""
    value = value.casefold().strip()
    if value.startswith("#"):
        digits = value[1:] if len(value) == 7 else "".join(digit * 2 for digit in value[1:])
        names = {name for name, hex_digits in COLOUR_NAMES.items() if hex_digits == f"#{digits}"}
        return {value, f"#{digits}", *names}
    if value[0] in "$€£":
        number = value[1:].strip().replace(",", ".")
        return {number, number.replace(".", ","), re.sub(r"\.?0+$", "", number) if "." in number else number}
    return {value}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(item)


def _words(site: Site) -> Counter[str]:
    return Counter(word for text in copy_of(site) for word in text.lower().split())
