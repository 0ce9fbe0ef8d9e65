"""The targets of direct edits: the pages, sections, entries and texts that a noun phrase can mean.

All candidates are returned, as rules act only if there is exactly one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any, Final, NamedTuple

from sites.direct_edit.request import VOCABULARY, Request, is_said, plain, typed, words
from sites.spec.catalog import components
from sites.spec.expressions import SHARED_TYPE
from sites.spec.model import INDEX, JsonObject, Site, pointer
from sites.spec.quality import texts
from sites.spec.structure import PAGE_TYPE

_PAGE_SUFFIX: Final = re.compile(
    r"^(?P<rest>.+) (?:on|of|in|from|to|at) (?:the |our )?(?P<page>[\w &'-]+?) page$", re.I
)
_HOMEPAGE_SUFFIX: Final = re.compile(
    r"^(?P<rest>.+?) (?:on|of|in|from|to|at) (?:the |our )?(?P<page>homepage|home page)$", re.I
)
_SECTION_SUFFIX: Final = re.compile(r" (?:section|block|part|area|panel)$")
_SECTION_PREFIX: Final = re.compile(r"^(?:section|block|part|area) ")
_ENTRY_NOUN: Final = words(
    sorted(
        {noun for nouns in VOCABULARY.entry_nouns.values() for noun in nouns} | {"course", "picture", "photo", "image"}
    )
)
_ENTRY_SUFFIX: Final = re.compile(rf" {_ENTRY_NOUN}$")
_ENTRY_PREFIX: Final = re.compile(rf"^{_ENTRY_NOUN}(?: (?:by|from|of|called|named|for))? ")


class Place(NamedTuple):
    """One element of a site."""

    page: str
    key: str
    element: JsonObject

    @property
    def type(self) -> str:
        """The component's name."""
        return str(self.element["type"])

    @property
    def props(self) -> JsonObject:
        """The props as written, expressions included."""
        props = self.element.get("props", {})
        return props if isinstance(props, dict) else {}

    @property
    def path(self) -> str:
        """Its JSON pointer."""
        return pointer("pages", self.page, "elements", self.key)

    def title(self) -> str:
        """Return what a person would call the element."""
        heading = self.props.get("heading")
        return f"the section “{heading}”" if isinstance(heading, str) else f"the {spoken(self.type)}"


class Spot(NamedTuple):
    """One prop value of one element."""

    place: Place
    steps: tuple[str | int, ...]
    value: Any

    @property
    def path(self) -> str:
        """Its JSON pointer."""
        return self.place.path + pointer("props", *self.steps)

    @property
    def holder(self) -> Any:
        """The object or list that holds the value."""
        return reduce(getitem, self.steps[:-1], self.place.props)  # type: ignore[arg-type]


def places(site: Site) -> Iterator[Place]:
    """Yield all elements but the roots and those shared from the index page."""
    for path, page in sorted(site.pages.items()):
        for key, element in page["elements"].items():
            if element["type"] not in (PAGE_TYPE, SHARED_TYPE):
                yield Place(path, key, element)


def root_of(site: Site, page: str) -> Place:
    """Return a page's root element."""
    key = site.pages[page]["root"]
    return Place(page, key, site.pages[page]["elements"][key])


def split_page(phrase: str, site: Site) -> tuple[str, tuple[str, ...]]:
    """Split a page's name off the end of a phrase; return the rest and the pages it can mean."""
    match = _HOMEPAGE_SUFFIX.match(phrase) or _PAGE_SUFFIX.match(phrase)
    if match is None:
        return phrase, tuple(sorted(site.pages))
    return match["rest"], find_pages(match["page"], site)


def find_pages(name: str, site: Site) -> tuple[str, ...]:
    """Return the pages with a name: that of the file, or of a link to it."""
    wanted = re.sub(r" page$", "", plain(name))
    if wanted in VOCABULARY.home_page:
        return (INDEX,)
    found = {path for path in site.pages if re.sub(r"[-_/]", " ", path.removesuffix(".html")) == wanted}
    for place in places(site):
        for link in place.props.get("links") or ():
            if isinstance(link, dict) and typed(str(link.get("label", ""))).lower() == wanted:
                target = str(link.get("href", "")).removeprefix("/")
                found |= {target} & set(site.pages)
    return tuple(sorted(found))


def find_sections(phrase: str, site: Site, request: Request) -> tuple[Place, ...]:
    """Return the elements that a phrase can mean: by kind, by key, or by heading."""
    rest, pages = split_page(phrase.strip(), site)
    quoted = request.quoted(_SECTION_PREFIX.sub("", _SECTION_SUFFIX.sub("", plain(rest))))
    wanted = plain(quoted if quoted is not None else rest)
    names = {wanted, _SECTION_SUFFIX.sub("", wanted)}
    return tuple(
        place for place in places(site) if place.page in pages and _is_called(place, names, by_name=quoted is None)
    )


def find_items(phrase: str, site: Site, request: Request, *, by_first_name: bool = True) -> tuple[Spot, ...]:
    """Return the list entries (dishes, plans, questions, people) that a phrase of the request names.

    `by_first_name` says whether a person's first name is enough.
    """
    rest, pages = split_page(phrase.strip(), site)
    bare = _ENTRY_PREFIX.sub("", plain(rest))
    quoted = request.quoted(_ENTRY_SUFFIX.sub("", bare))
    wanted = plain(quoted if quoted is not None else bare).strip(" .!?")
    wanted_names = {wanted, _ENTRY_SUFFIX.sub("", wanted), plain(rest).strip(" .!?")}
    found = []
    for place in places(site):
        if place.page in pages:
            found += [spot for spot in _entries(place) if _names_of(spot, by_first_name) & wanted_names]
    return tuple(found)


def find_lines(phrase: str, site: Site, request: Request) -> tuple[Spot, ...]:
    """Return the plain lines in list entries and sections that equal a quotation (such as a plan's feature)."""
    quoted = request.quoted(plain(phrase))
    found = []
    for place in places(site) if quoted else ():
        for spot in _strings(place, (), place.props):
            if len(spot.steps) > 1 and isinstance(spot.steps[-1], int) and is_said(quoted, spot.value):
                found.append(spot)
    return tuple(found)


def opening_place(site: Site, pages: tuple[str, ...]) -> Place | None:
    """Return the first section with a heading, if exactly one page is meant."""
    if len(pages) != 1:
        return None
    by_key = {place.key: place for place in places(site) if place.page == pages[0]}
    order = [by_key[key] for key in root_of(site, pages[0]).element.get("children") or () if key in by_key]
    return next((place for place in order if isinstance(place.props.get("heading"), str)), None)


def matches(patterns: tuple[re.Pattern[str], ...], phrase: str) -> Iterator[dict[str, str]]:
    """Yield the groups of every pattern that a whole phrase matches, without its article."""
    bare = re.sub(r"^(?:the|our|my) ", "", phrase.strip(), flags=re.I)
    for pattern in patterns:
        if match := pattern.fullmatch(bare):
            yield {name: value or "" for name, value in match.groupdict().items()}


def find_actions(site: Site) -> Iterator[Spot]:
    """Yield every button of a site, as the object with its label."""
    for place in places(site):
        props = place.props
        for index, action in enumerate(props.get("actions") or ()):
            if isinstance(action, dict):
                yield Spot(place, ("actions", index), action)
        if isinstance(props.get("action"), dict):
            yield Spot(place, ("action",), props["action"])
        for index, plan in enumerate(props.get("plans") or ()):
            if isinstance(plan, dict) and isinstance(plan.get("action"), dict):
                yield Spot(place, ("plans", index, "action"), plan["action"])
        if place.type == "Button":
            yield Spot(place, (), props)


LINKED: Final = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
"""The address of a link in running text."""


def find_strings(site: Site) -> Iterator[Spot]:
    """Yield every string of a site with its place, including addresses and roots."""
    everything = [*places(site), *(root_of(site, page) for page in sorted(site.pages))]
    for place in everything:
        yield from _strings(place, (), place.props)


def is_copy(spot: Spot) -> bool:
    """Whether visitors read a text, on the page or in its title."""
    last = next((step for step in reversed(spot.steps) if isinstance(step, str)), "")
    return not {"theme", "drawing"}.intersection(spot.steps) and any(True for _ in texts({last: spot.value}))


def _strings(place: Place, steps: tuple[str | int, ...], value: Any) -> Iterator[Spot]:
    if isinstance(value, str):
        yield Spot(place, steps, value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(place, (*steps, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(place, (*steps, index), item)


def _is_called(place: Place, names: set[str], *, by_name: bool) -> bool:
    heading = place.props.get("heading")
    own = {typed(heading).lower().strip(" .!?")} if isinstance(heading, str) else set()
    if by_name:
        kinds = set(components()[place.type].words) - VOCABULARY.ambiguous_sections
        own |= {*kinds, place.key.lower().replace("-", " ").replace("_", " ")}
    return bool({name.strip(" .!?") for name in names} & own)


def _entries(place: Place) -> Iterator[Spot]:
    for name, value in place.props.items():
        if isinstance(value, list) and name not in ("links", "social", "actions"):
            for index, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield Spot(place, (name, index), entry)


def entry_name(entry: JsonObject) -> str | None:
    """Return a list entry's name as written."""
    names = (entry.get(key) for key in ("title", "name", "question", "label", "caption"))
    return next((name for name in names if isinstance(name, str)), None)


def _names_of(spot: Spot, by_first_name: bool) -> set[str]:
    """Return the names of a list entry in lower case; for a person also the first name."""
    name = typed(entry_name(spot.value) or "").lower().strip(" .!?")
    is_person = by_first_name and spot.place.type in ("Team", "Testimonials")
    return {name, name.split(" ")[0]} if is_person and name else {name} - {""}


def spoken(type_name: str) -> str:
    """Return a component's name in words."""
    return type_name if type_name.isupper() else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type_name).lower()
