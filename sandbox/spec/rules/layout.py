"""Rules for the order of a page: move, swap and add sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sandbox.spec.business import business_of
from sandbox.spec.catalog import components
from sandbox.spec.model import INDEX, Site
from sandbox.spec.resolve import SHARED_TYPE
from sandbox.spec.rules.edits import DirectEdit, Rule, setting
from sandbox.spec.rules.forms import Add, Move, Swap
from sandbox.spec.rules.targets import Place, find_pages, find_sections, root_of
from sandbox.spec.rules.wording import Request, plain


def _move(order: Move, request: Request, site: Site) -> Iterator[DirectEdit]:
    for moved in find_sections(order.what, site, request):
        if order.way in ("before", "after"):
            yield from _beside(moved, order, request, site)
            continue
        main = _main_order(moved, site)
        others = [key for key in main if key != moved.key]
        if order.way in ("top", "bottom"):
            at_end = order.way == "bottom"
            words = f"to the {'end' if at_end else 'top'} of the page"
            if others:
                yield from _moved(moved, others[-1] if at_end else others[0], site, after=at_end, words=words)
        elif moved.key in main:
            down = order.way == "down"
            wanted = main.index(moved.key) + (1 if down else -1)
            if 0 <= wanted < len(main):
                yield from _moved(moved, main[wanted], site, after=down, words=f"{order.way} by one")


def _beside(moved: Place, order: Move, request: Request, site: Site) -> Iterator[DirectEdit]:
    for anchor in find_sections(order.anchor or "", site, request):
        if moved.page == anchor.page and moved.key != anchor.key:
            words = f"{order.way} {anchor.title()}"
            yield from _moved(moved, anchor.key, site, after=order.way == "after", words=words)


def _swap(order: Swap, request: Request, site: Site) -> Iterator[DirectEdit]:
    for first in find_sections(order.first, site, request):
        for second in find_sections(order.second, site, request):
            root = root_of(site, first.page)
            keys = list(root.element.get("children") or ())
            both = {first.key, second.key}
            if first.page == second.page and len(both) == 2 and both <= set(_main_order(first, site)):
                exchange = {first.key: second.key, second.key: first.key}
                value = [exchange.get(key, key) for key in keys]
                summary = f"Swapped {first.title()} and {second.title()}."
                yield setting("move", summary, path=f"{root.path}/children", value=value)


def _moved(place: Place, anchor: str, site: Site, *, after: bool, words: str) -> Iterator[DirectEdit]:
    root = root_of(site, place.page)
    order = list(root.element.get("children") or ())
    main = _main_order(place, site)
    beyond = (anchor == order[-1] and not after) or (anchor == order[0] and after)
    if place.key not in main or not (anchor in main or beyond) or place.key not in order or anchor not in order:
        return
    order.remove(place.key)
    order.insert(order.index(anchor) + after, place.key)
    operation = {"op": "replace", "path": f"{root.path}/children", "value": order}
    yield DirectEdit("move", f"Moved {place.title()} {words}.", (operation,))


def _main_order(place: Place, site: Site) -> list[str]:
    """Return the keys of the page's sections in order, without header and footer."""
    page = site.pages[place.page]["elements"]
    kept = []
    for key in root_of(site, place.page).element.get("children") or ():
        element = page[key]
        if element["type"] == SHARED_TYPE:
            element = site.pages[INDEX]["elements"].get(element.get("props", {}).get("of"), element)
        if components()[element["type"]].place == "main":
            kept.append(key)
    return kept


_NEW: Final = re.compile(
    r"(?:an? |the |new |a new )?(?P<what>[\w -]+?)(?: (?:to|on|in) (?:the |our |my )?(?P<page>[\w-]+) page"
    r"| to (?:the|our|my) (?:site|website|page)| (?:at|to) the (?:bottom|end)(?: of the page)?)?",
    re.I,
)


def _add(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
    match = _NEW.fullmatch(order.rest)
    if match is None:
        return
    named = match["page"] or order.where
    wanted = re.sub(r" (?:section|block)$", "", plain(match["what"]))
    pages = find_pages(named, site) if named else (INDEX,)
    found = [component for component in components().values() if wanted in component.words and component.minimal]
    if len(found) != 1 or len(pages) != 1:
        return
    component, page = found[0], pages[0]
    props = component.minimal(business_of(site)) if component.minimal else None
    used = {element["type"] for element in site.pages[page]["elements"].values()}
    shared = [
        element["props"].get("of")
        for element in site.pages[page]["elements"].values()
        if element["type"] == SHARED_TYPE
    ]
    used |= {site.pages[INDEX]["elements"][key]["type"] for key in shared if key in site.pages[INDEX]["elements"]}
    if props is None or component.name in used:
        return
    root = root_of(site, page)
    key = next(
        name
        for number in range(1, 99)
        if (name := f"{wanted.split()[0]}{number if number > 1 else ''}") not in site.pages[page]["elements"]
    )
    keys = list(root.element.get("children") or ())
    keys.insert(_slot_for(component.place, keys, site, page), key)
    element = {"type": component.name, "props": props, "children": []}
    operations = (
        {"op": "add", "path": Place(page, key, element).path, "value": element},
        {"op": "replace", "path": f"{root.path}/children", "value": keys},
    )
    yield DirectEdit("add", f"Added the {wanted} to {page}, with words that the site already has.", operations)


def _slot_for(place: str, order: list[str], site: Site, page: str) -> int:
    if place == "header":
        return 0
    main = _main_order(root_of(site, page), site)
    return order.index(main[-1]) + 1 if main and place == "main" else len(order)


RULES: Final = (Rule(Move, _move), Rule(Swap, _swap), Rule(Add, _add))
