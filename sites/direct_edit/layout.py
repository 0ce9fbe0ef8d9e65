"""Rules for sections (move, swap, add, remove) and for the look of a site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sites.direct_edit.orders import Add, DirectEdit, Move, Put, Remove, Rules, Step, Swap, setting
from sites.direct_edit.request import VOCABULARY, Request, by_name, plain, words
from sites.direct_edit.targets import (
    Place,
    entry_name,
    find_items,
    find_lines,
    find_pages,
    find_sections,
    places,
    root_of,
    split_page,
)
from sites.direct_edit.text import is_only_text
from sites.spec.catalog import Business, Link, components
from sites.spec.expressions import SHARED_TYPE
from sites.spec.fonts.families import FONTS, NEAREST, shipped_name
from sites.spec.languages.versions import main_language, root_props
from sites.spec.model import INDEX, JsonObject, Site
from sites.spec.structure import children_of
from sites.spec.theme import COLOUR_NAMES, PRESETS


def business_of(site: Site) -> Business:
    """Return the business of a valid site; a fact that is written in two ways counts as unknown."""
    elements = [element for _, page in sorted(site.pages.items()) for element in page["elements"].values()]
    return Business(
        name=fact(elements, "brand") or str(root_props(site.pages[INDEX]).get("title", ""))[:60],
        tagline=fact(elements, "tagline"),
        email=fact(elements, "email"),
        phone=fact(elements, "phone"),
        address=fact(elements, "address"),
        links=tuple(_links(elements)),
        lang=main_language(site),
    )


def fact(elements: list[JsonObject], name: str) -> str | None:
    """Return a prop's value if it is the same wherever it is set."""
    found = {element.get("props", {}).get(name) for element in elements}
    values = [value for value in found if isinstance(value, str)]
    return values[0] if len(values) == 1 else None


def _links(elements: list[JsonObject]) -> Iterator[Link]:
    header: Any = next((element for element in elements if element["type"] == "Header"), {})
    for link in header.get("props", {}).get("links") or ():
        if isinstance(link, dict) and isinstance(link.get("label"), str) and isinstance(link.get("href"), str):
            yield Link(label=link["label"], href=link["href"])


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
    sections = []
    for key in root_of(site, place.page).element.get("children") or ():
        element = page[key]
        if element["type"] == SHARED_TYPE:
            element = site.pages[INDEX]["elements"].get(element.get("props", {}).get("of"), element)
        if components()[element["type"]].place == "main":
            sections.append(key)
    return sections


_NEW: Final = re.compile(
    r"(?:an? |the |new |a new )?(?P<what>[\w -]+?)(?: (?:to|on|in) (?:the |our |my )?(?P<page>[\w-]+) page"
    r"| to (?:the|our|my) (?:site|website|page)| (?:at|to) the (?:bottom|end)(?: of the page)?)?",
    re.I,
)


def _add_section(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
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


_IMPOSSIBLE: Final = DirectEdit("remove", "", ())
"""An interpretation that cannot be carried out; it counts, so that a second-best one never wins."""


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
        if spot.place.page not in pages or (named is not None and spot.place[:2] not in named):
            continue
        if len(spot.holder) < 2:
            yield _IMPOSSIBLE
            continue
        name = entry_name(spot.value) if isinstance(spot.value, dict) else spot.value
        summary = f"Removed “{name}” from {spot.place.title()}."
        yield DirectEdit("remove", summary, ({"op": "remove", "path": spot.path},))


def _is_vague(order: Remove, request: Request, site: Site) -> bool:
    """Whether only a quotation names what to remove, and it occurs in more than one place."""
    quoted = request.quoted(plain(order.what)) if order.where is None else None
    return quoted is not None and not is_only_text(quoted, site)


def _remove_section(place: Place, site: Site) -> DirectEdit | None:
    """Return the removal of a section with its content, its navigation links and its copies on other pages."""
    elements = site.pages[place.page]["elements"].values()
    is_child = any(place.key in (element.get("children") or ()) for element in elements)
    if not is_child or _is_button_target(place, site):
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
    children = [child for child in elements[parent]["children"] if child != key]
    base = Place(page, parent, elements[parent]).path
    yield {"op": "replace", "path": f"{base}/children", "value": children}
    doomed = [key]
    for name in doomed:
        doomed += [child for child, _ in children_of(elements[name])]
        yield {"op": "remove", "path": Place(page, name, elements[name]).path}


def _unlinked(target: Place, site: Site) -> Iterator[dict[str, Any]]:
    """Yield the operations that remove links to a section from headers and footers."""
    for place in places(site):
        links = place.props.get("links")
        if isinstance(links, list) and place[:2] != target[:2]:
            others = [link for link in links if not _leads_to(link, target, place.page)]
            if len(others) < len(links):
                yield {"op": "replace", "path": f"{place.path}/props/links", "value": others}


def _is_button_target(target: Place, site: Site) -> bool:
    """Whether a button leads to a section, so that removing it needs a judgement."""
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


_SITE: Final = r"(?: (?:of|on|for|in|across) (?:the |our )?(?:whole |entire )?(?:site|website|page)| everywhere)?"
_ROLES: Final = by_name(VOCABULARY.colour_roles)
_COLOUR: Final = re.compile(
    rf"(?:new )?(?:(?P<role>{words(_ROLES)}) colou?r|(?P<ground>(?:page |site )?background)){_SITE}"
)
_FONT_OF: Final = r"site|website|main|whole site|body|body text|text|paragraphs?|headings?|titles?|headlines?"
_FONT: Final = re.compile(
    rf"(?:(?P<role>{_FONT_OF}) )?(?:fonts?|typeface)(?: family)?"
    rf"(?: (?:of|on|for|in) (?:the |all )?(?:the )?(?P<of>{_FONT_OF}))?{_SITE}"
    r"|(?:all )?(?P<words>headings?|titles?|body text)"
)
_THEME: Final = re.compile(rf"(?:theme|palette|preset|colou?rs|colou?r scheme|look){_SITE}")
_MODE: Final = re.compile(r"(?:site|website|page|whole site|mode|theme|scheme|colou?r scheme)")
_CORNERS: Final = re.compile(rf"corners?(?: radius)?{_SITE}")
_SPACING: Final = re.compile(rf"(?:spacing|layout){_SITE}")
_MORE_SPACE: Final = re.compile(
    rf"(?:spacing|space|white ?space|layout)(?: between (?:the |our )?(?:\w+ )?sections)?{_SITE}"
)
_TONE_OF: Final = re.compile(
    r"(?:background|tone|background colou?r) (?:of|on|in|for) (?P<section>.+)|(?P<named>.+?)(?:'s)? (?:background|tone)"
)
_STEPS: Final = ("compact", "regular", "airy")


def _set(site: Site, changes: Mapping[str, Any], kind: str, summary: str) -> Iterator[DirectEdit]:
    root = root_of(site, INDEX)
    theme = root.props.get("theme")
    if theme is not None and not isinstance(theme, dict):
        return
    if any(isinstance(root_of(site, page).props.get("theme"), dict) for page in site.pages if page != INDEX):
        return
    theme_props = {key: value for key, value in {**(theme or {}), **changes}.items() if value is not None}
    yield setting(kind, summary, path=f"{root.path}/props/theme", value=theme_props, is_new="theme" not in root.props)


def _put(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    if order.old is not None:
        return
    target = plain(order.target)
    bare = re.sub(r" (?:font|typeface|one)$", "", order.value, flags=re.I)
    word = _word(order.value, request)
    yield from _colour(target, word, site)
    yield from _font(target, _word(bare, request), site)
    yield from _choice(target, word, site)


def _word(token: str, request: Request) -> str:
    return request.literal(re.sub(r"^(?:an?|the) ", "", token, flags=re.I)).lower()


def parse_colour_word(word: str) -> str | None:
    """Return a named or hex colour as written in a spec, or None."""
    colour = re.sub(r" (?:colou?r|one)$", "", word.lower()).replace(" ", "")
    is_colour = colour in COLOUR_NAMES or re.fullmatch(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", colour)
    return colour if is_colour else None


def _colour(target: str, word: str, site: Site) -> Iterator[DirectEdit]:
    match, colour = _COLOUR.fullmatch(target), parse_colour_word(word)
    if match and colour:
        role = _ROLES[match["role"]] if match["role"] else "background"
        yield from _set(site, {role: colour}, "colour", f"Set the {role} colour to {colour}.")


def _font(target: str, word: str, site: Site) -> Iterator[DirectEdit]:
    match, font = _FONT.fullmatch(target), by_name(VOCABULARY.fonts).get(word) or shipped_name(word)
    if not match or not {font} & {*FONTS, *NEAREST} or (match["role"] and match["of"]):
        return
    name = (FONTS[font].family if font in FONTS else "") or font
    role = match["role"] or match["of"] or match["words"] or ""
    if role.startswith(("head", "title")):
        yield from _set(site, {"headings": font}, "font", f"Set the font of the headings to {name}.")
    elif role.startswith(("body", "text", "paragraph")):
        yield from _set(site, {"text": font}, "font", f"Set the font of the body text to {name}.")
    else:
        changes = {"font": font, "headings": None, "text": None}
        yield from _set(site, changes, "font", f"Set the font of the whole site to {name}.")


def _choice(target: str, word: str, site: Site) -> Iterator[DirectEdit]:
    if _CORNERS.fullmatch(target) and (radius := by_name(VOCABULARY.radii).get(word)):
        yield from _set(site, {"radius": radius}, "corners", f"Set the corner radius to {radius}.")
    if _SPACING.fullmatch(target) and (spacing := by_name(VOCABULARY.spacings).get(word)):
        yield from _set(site, {"spacing": spacing}, "spacing", f"Set the spacing to {spacing}.")
    mode = re.sub(r" (?:mode|theme)$", "", word)
    if _MODE.fullmatch(target) and mode in ("dark", "light"):
        yield from _set(site, {"mode": mode}, "mode", f"The site is now always {mode}.")
    preset = re.sub(r" (?:theme|palette|preset|colou?rs|colou?r scheme|look)$", "", word)
    if _THEME.fullmatch(target) and preset in PRESETS:
        own = dict.fromkeys(("primary", "accent", "background"))
        yield from _set(site, {"preset": preset, **own}, "theme", f"Switched to the {preset} colours.")


def _tone(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    """Set a section's background to one of the theme's three."""
    tone = by_name(VOCABULARY.tones).get(_word(order.value, request))
    if tone is None or order.old is not None:
        return
    match = _TONE_OF.fullmatch(plain(order.target))
    phrase = (match["section"] or match["named"]) if match else order.target
    for place in find_sections(phrase, site, request):
        if "tone" in components()[place.type].props.model_fields:
            summary = f"Gave {place.title()} a {tone} background."
            is_new = "tone" not in place.props
            yield setting("colour", summary, path=f"{place.path}/props/tone", value=tone, is_new=is_new)


def _step(order: Step, request: Request, site: Site) -> Iterator[DirectEdit]:
    current = (root_of(site, INDEX).props.get("theme") or {}).get("spacing") or "regular"
    if not _MORE_SPACE.fullmatch(plain(order.what)) or current not in _STEPS:
        return
    wanted = _STEPS.index(current) + (1 if order.is_more else -1)
    if 0 <= wanted < len(_STEPS):
        yield from _set(site, {"spacing": _STEPS[wanted]}, "spacing", f"Set the spacing to {_STEPS[wanted]}.")


RULES: Final[Rules] = {
    Move: (_move,),
    Swap: (_swap,),
    Add: (_add_section,),
    Remove: (_remove, _remove_entry),
    Put: (_put, _tone),
    Step: (_step,),
}
