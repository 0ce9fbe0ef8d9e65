"""Rules for taking away: a section with all that belongs to it, an entry of a list, a line of an entry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sandbox.spec.model import INDEX, Site
from sandbox.spec.resolve import SHARED_TYPE
from sandbox.spec.rules.edits import DirectEdit, Rule
from sandbox.spec.rules.forms import Remove
from sandbox.spec.rules.targets import (
    Place,
    entry_name,
    find_items,
    find_lines,
    find_sections,
    places,
    split_page,
)
from sandbox.spec.rules.text import is_only_text
from sandbox.spec.rules.wording import Request, plain
from sandbox.spec.upstream import children_of

_IMPOSSIBLE: Final = DirectEdit("remove", "", ())
"""A reading that cannot be carried out: it takes part in the count, so that a second-best reading never wins by it."""


def _remove(order: Remove, request: Request, site: Site) -> Iterator[DirectEdit]:
    if _is_vague(order, request, site):
        return
    if order.where is None:
        for place in find_sections(order.what, site, request):
            yield _remove_section(place, site) or _IMPOSSIBLE
    elif order.where.lower().endswith("page") and len(split_page(f"x on {order.where}", site)[1]) == 1:
        yield from _remove(Remove(f"{order.what} on {order.where}"), request, site)


def _remove_entry(order: Remove, request: Request, site: Site) -> Iterator[DirectEdit]:
    if _is_vague(order, request, site):
        return
    named = None
    if order.where:
        named = {place[:2] for place in find_sections(order.where, site, request)}
        named |= {spot.place[:2] for spot in find_items(order.where, site, request)}
    rest, pages = split_page(order.what, site)
    for spot in (*find_items(rest, site, request, by_first_name=named is not None), *find_lines(rest, site, request)):
        holder = spot.place.props
        for step in spot.steps[:-1]:
            holder = holder[step]  # type: ignore[index]
        if spot.place.page not in pages or (named is not None and spot.place[:2] not in named):
            continue
        if len(holder) < 2:
            yield _IMPOSSIBLE
            continue
        name = entry_name(spot.value) if isinstance(spot.value, dict) else spot.value
        summary = f"Removed “{name}” from {spot.place.title()}."
        yield DirectEdit("remove", summary, ({"op": "remove", "path": spot.path},))


def _is_vague(order: Remove, request: Request, site: Site) -> bool:
    """Whether nothing but a quotation says what is to go, and the site says it in more than one place."""
    quoted = request.quoted(plain(order.what)) if order.where is None else None
    return quoted is not None and not is_only_text(quoted, site)


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


def _parent(place: Place, site: Site) -> str | None:
    elements = site.pages[place.page]["elements"]
    return next((key for key, element in elements.items() if place.key in (element.get("children") or ())), None)


RULES: Final = (Rule(Remove, _remove), Rule(Remove, _remove_entry))
