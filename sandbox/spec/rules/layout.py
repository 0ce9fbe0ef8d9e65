"""Rules for the order of a page: remove, move, swap and add sections and list entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.spec.business import business_of
from sandbox.spec.catalog import components
from sandbox.spec.model import INDEX, Site
from sandbox.spec.resolve import SHARED_TYPE
from sandbox.spec.rules.targets import (
    Place,
    entry_name,
    find_items,
    find_pages,
    find_sections,
    places,
    root_of,
    split_page,
)
from sandbox.spec.rules.wording import DirectEdit, Request, Rule, plain, rule
from sandbox.spec.upstream import children_of


def _remove(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    phrase = match["what"]
    for place in find_sections(phrase, site, request):
        if edit := _remove_section(place, site):
            yield edit
    rest, pages = split_page(phrase, site)
    bare, _, section = rest.partition(" from ")
    for spot in find_items(bare, site, request):
        named = {place[:2] for place in find_sections(section, site, request)} if section else None
        entries = spot.place.props[str(spot.steps[0])]
        if spot.place.page in pages and (named is None or spot.place[:2] in named) and len(entries) > 1:
            summary = f"Removed “{entry_name(spot.value)}” from {spot.place.title()}."
            yield DirectEdit("remove", summary, ({"op": "remove", "path": spot.path},))


def _remove_section(place: Place, site: Site) -> DirectEdit | None:
    """Return the removal of a section with what it holds, its links in navigation, and its copies on other pages."""
    home = _parent(place, site)
    if home is None or _is_button_target(place, site):
        return None
    operations: list[dict[str, Any]] = list(_unlinked(place, site))
    operations += _cut(place.page, place.key, site)
    if place.page == INDEX:
        for path, page in sorted(site.pages.items()):
            for key, element in sorted(page["elements"].items()):
                if element["type"] == SHARED_TYPE and element.get("props", {}).get("of") == place.key:
                    operations += _cut(path, key, site)
    return DirectEdit("remove", f"Removed {place.title()}.", tuple(operations))


def _cut(page: str, key: str, site: Site) -> Iterator[dict[str, Any]]:
    elements = site.pages[page]["elements"]
    parent = next(parent for parent, element in elements.items() if key in (element.get("children") or ()))
    kept = [child for child in elements[parent]["children"] if child != key]
    base = Place(page, parent, elements[parent]).path
    yield {"op": "replace", "path": f"{base}/children", "value": kept}
    doomed = [key]
    for name in doomed:
        doomed += [child for child, _ in children_of(elements[name])]
        yield {"op": "remove", "path": Place(page, name, elements[name]).path}


def _unlinked(target: Place, site: Site) -> Iterator[dict[str, Any]]:
    """Yield what takes the links to a section out of headers and footers."""
    for place in places(site):
        links = place.props.get("links")
        if isinstance(links, list) and place[:2] != target[:2]:
            kept = [link for link in links if not _leads_to(link, target, place.page)]
            if len(kept) < len(links):
                yield {"op": "replace", "path": f"{place.path}/props/links", "value": kept}


def _is_button_target(target: Place, site: Site) -> bool:
    """Whether a button leads to a section: to remove it then needs a judgement about the button."""
    for place in places(site):
        inside = {key: value for key, value in place.props.items() if key not in ("links", "social")}
        if place[:2] != target[:2] and any(_leads_to(link, target, place.page) for link in _link_objects(inside)):
            return True
    return False


def _link_objects(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if "href" in value:
            yield value
        for item in value.values():
            yield from _link_objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from _link_objects(item)


def _leads_to(link: Any, target: Place, page: str) -> bool:
    href = str(link.get("href", "")) if isinstance(link, dict) else ""
    path, _, fragment = href.removeprefix("/").partition("#")
    return fragment == target.key and (path or page) == target.page


def _move(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    after = match["way"].lower() in ("after", "below", "under", "beneath", "behind", "underneath", "following")
    for moved in find_sections(match["what"], site, request):
        for anchor in find_sections(match["anchor"], site, request):
            if moved.page == anchor.page and moved.key != anchor.key:
                yield from _moved(
                    moved, anchor.key, site, after=after, words=f"{'after' if after else 'before'} {anchor.title()}"
                )


def _move_to_end(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    at_end = match["end"].lower() in ("bottom", "end")
    for moved in find_sections(match["what"], site, request):
        order = [key for key in _main_order(moved, site) if key != moved.key]
        if order:
            anchor = order[-1] if at_end else order[0]
            yield from _moved(
                moved, anchor, site, after=at_end, words=f"to the {'end' if at_end else 'top'} of the page"
            )


def _move_by_one(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    down = match["way"].lower() in ("down", "lower")
    for moved in find_sections(match["what"], site, request):
        order = _main_order(moved, site)
        wanted = order.index(moved.key) + (1 if down else -1) if moved.key in order else -1
        if 0 <= wanted < len(order):
            yield from _moved(moved, order[wanted], site, after=down, words="down by one" if down else "up by one")


def _swap(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    for first in find_sections(match["what"], site, request):
        for second in find_sections(match["anchor"], site, request):
            root = root_of(site, first.page)
            order = list(root.element.get("children") or ())
            both = {first.key, second.key}
            if first.page == second.page and len(both) == 2 and both <= set(_main_order(first, site)):
                exchange = {first.key: second.key, second.key: first.key}
                value = [exchange.get(key, key) for key in order]
                operation = {"op": "replace", "path": f"{root.path}/children", "value": value}
                yield DirectEdit("move", f"Swapped {first.title()} and {second.title()}.", (operation,))


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


def _add(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    wanted = re.sub(r" (?:section|block)$", "", plain(match["what"]))
    pages = find_pages(match["page"], site) if match["page"] else (INDEX,)
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
    order = list(root.element.get("children") or ())
    order.insert(_slot_for(component.place, order, site, page), key)
    element = {"type": component.name, "props": props, "children": []}
    operations = (
        {"op": "add", "path": Place(page, key, element).path, "value": element},
        {"op": "replace", "path": f"{root.path}/children", "value": order},
    )
    yield DirectEdit("add", f"Added the {wanted} to {page}, with words that the site already has.", operations)


def _slot_for(place: str, order: list[str], site: Site, page: str) -> int:
    if place == "header":
        return 0
    main = _main_order(root_of(site, page), site)
    return order.index(main[-1]) + 1 if main and place == "main" else len(order)


def _parent(place: Place, site: Site) -> str | None:
    elements = site.pages[place.page]["elements"]
    return next((key for key, element in elements.items() if place.key in (element.get("children") or ())), None)


_BEFORE_AFTER: Final = (
    r"(?P<way>above|before|over|ahead of|on top of|after|below|under|beneath|behind|underneath|following)"
)
_MOVE: Final = r"(?:move|put|place|shift|bring|reorder|show)"

RULES: Final[tuple[Rule, ...]] = (
    rule(
        r"(?:remove|delete|drop|get rid of|take out|take away|cut|erase) <WHAT>(?: from (?:the "
        r")?(?:site|website|page))?",
        _remove,
    ),
    rule(rf"{_MOVE} <WHAT> (?:to )?(?:be )?(?:right |directly |just )?{_BEFORE_AFTER} (?P<anchor>.+)", _move),
    rule(
        rf"<WHAT> (?:should|must) (?:come|go|be|stand|appear) (?:right |directly |just )?{_BEFORE_AFTER} "
        rf"(?P<anchor>.+)",
        _move,
    ),
    rule(
        rf"{_MOVE} <WHAT> (?:to|at) the (?:very )?(?P<end>top|bottom|start|beginning|end)(?: of the page)?",
        _move_to_end,
    ),
    rule(
        rf"{_MOVE} <WHAT> (?P<way>up|down|higher|lower)(?: (?:by )?one(?: (?:place|position|spot|section))?| one "
        rf"(?:place|position))?",
        _move_by_one,
    ),
    rule(
        r"(?:swap|exchange|switch)(?: the (?:order|positions?|places) of)? <WHAT> (?:and|with) (?P<anchor>.+?)(?: "
        r"around)?",
        _swap,
    ),
    rule(
        r"(?:add|insert|include|create) (?:an? |the |new |a new )?(?P<what>[\w -]+?)(?: (?:to|on|in) "
        r"<THE>(?P<page>[\w-]+) page"
        r"| to (?:the|our|my) (?:site|website)| (?:at|to) the (?:bottom|end)(?: of the page)?)?",
        _add,
    ),
)
