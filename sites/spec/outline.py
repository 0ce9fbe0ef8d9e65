"""Expand an outline into a new site: the model writes the words, the catalog does the rest deterministically.

An outline takes 1,500 tokens and the finished site six times as many, so two attempts fit the tier's limits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from routing.model_call import SUMMARY, WAYS_OUT
from sites.errors import refuse, shown
from sites.spec.catalog import Business, Component, Day, Link, OutlineSection, components, is_link
from sites.spec.components.page import LEGAL, footer_of, header_of
from sites.spec.components.posts import NEWS
from sites.spec.html import complaint_about_link, phone_url, rings, say
from sites.spec.languages.address import address_of
from sites.spec.languages.typography import typeset
from sites.spec.languages.versions import primary
from sites.spec.model import INDEX, JsonObject, Site, deepcopy_checked, parse_site, refused_by
from sites.spec.outlines.arrange import arranged, in_page_order, opening_of, repeats
from sites.spec.outlines.links import lead, lead_of, leads_of, menu_words, page_path, slug, way_of
from sites.spec.outlines.looks import look_of, plain_of, shape_of, style_of
from sites.spec.outlines.model import Outline, OutlinedItem, OutlinedSection
from sites.spec.theme import DARK, PAIRINGS, Theme, chosen_colours, luminance
from sites.spec.trades import TRADES, Trade, trade_of
from sites.spec.validate import require_valid

_Pages = dict[str, tuple[str, list[OutlinedSection]]]
"""The name and the sections of each page, by its path."""
_HOME: Final = frozenset({"", "home", "index", "start"})
_OPENINGS: Final = frozenset({"Hero", "PageIntro"})
_MAX_NAV_LINKS: Final = 5
_LABEL: Final = 60
"""Most characters of a link's label."""
_LATEST: Final = 3
"""Entries of the news on the front page, where another page has them all."""


def compose(outline: Outline) -> JsonObject:
    """Return the page specs of an outline by path.

    Raises:
        SpecError: a section has entries that its kind cannot use (the model's fault).
    """
    pages = _by_page(_with_links(_with_content(outline), outline.contact.phone), home=_front_name(outline))
    business = _business(outline, pages)
    made = {path: _page(path, pages, outline, business) for path in pages} | _post_pages(outline, pages)
    names = {name: path for path, (name, _) in pages.items()}
    called = [(each.menu, each.heading or each.kind) for each in outline.sections]
    times = Counter(name for _, name in called)
    menus = {menu: name for menu, name in called if menu and times[name] == 1}
    lead(made, names, menus, lang=outline.lang, otherwise=business.contact_href)
    return made


def _with_content(outline: Outline) -> tuple[OutlinedSection, ...]:
    """Leave out sections that have no entries, pictures or contact data to show."""
    contact = outline.contact.model_dump(exclude={"hours", "area", "ways"})
    bare = Business(name=outline.name, lang=outline.lang, **contact)
    reachable = replace(bare, email="a@b.example", phone="+1 23", address="Here")
    return tuple(
        section
        for section in outline.sections
        if _complaint(section, bare) is None
        or (_complaint(section, reachable) and any(item.detail or section.kind != "Gallery" for item in section.items))
    )


def _with_links(sections: tuple[OutlinedSection, ...], phone: str | None) -> Iterator[OutlinedSection]:
    """Let an entry of an opening that has the words of a heading lead to it, and one with the number ring it."""
    headings = ((each.heading, each.kind, each.page) for each in sections if each.heading and each.kind != "Hero")
    leads = leads_of(headings, phone)
    for each in sections:
        hrefs = [lead_of(item.detail or item.title or "", leads) or item.detail for item in each.items]
        items = (item.model_copy(update={"detail": href}) for item, href in zip(each.items, hrefs, strict=True))
        yield each.model_copy(update={"items": tuple(items)}) if each.kind == "Hero" else each


def _complaint(section: OutlinedSection, business: Business) -> str | None:
    try:
        components()[section.kind].props.model_validate(_props(section, business))
    except ValidationError as error:
        return str(error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"])
    return None


def _props(section: OutlinedSection, business: Business) -> JsonObject:
    component = components()[section.kind]
    assert component.outline is not None
    items = tuple(item.model_dump(exclude_none=True) for item in section.items)
    shown = OutlineSection(section.kind, section.heading, section.text, items, section.image, section.drawing)
    return component.outline(shown, business)


def _front_name(outline: Outline) -> str:
    """Return what the front page is called: as the first section names its page."""
    name = (outline.sections[0].page or "").strip()
    return say("Home", outline.lang) if name.lower() in _HOME else name


def _by_page(sections: Iterable[OutlinedSection], *, home: str) -> _Pages:
    pages: _Pages = {INDEX: (home, [])}
    for section in sections:
        name = (section.page or "").strip()
        path = INDEX if name.lower() in {*_HOME, home.lower()} else page_path(name, pages)
        pages.setdefault(path, (name, []))[1].append(section)
    return pages


def _business(outline: Outline, pages: _Pages) -> Business:
    contact = outline.contact
    having = (path for path, (_, held) in pages.items() if any(part.kind == "ContactForm" for part in held))
    where = next(having, None)
    phone = phone_url(contact.phone or "")
    all_ways = [way_of(way.title, way.detail) for way in contact.ways]
    ways = tuple(link for link in all_ways if link.href.startswith("sms:") or not rings(link.href, contact.phone or ""))
    addresses = [*([f"mailto:{contact.email}"] if contact.email else []), phone, *(way.href for way in ways)]
    direct = next((address for address in addresses if not complaint_about_link(address)), None)
    trade, chosen, words = _trade(outline), outline.theme.art, outline.model_dump(mode="json")
    hero = next((part for part in pages[INDEX][1] if part.kind == "Hero"), OutlinedSection(kind="Hero"))
    drawing = None if chosen == "none" or hero.image else hero.drawing or outline.drawing
    own = opening_of(
        _theme(outline),
        outline.name,
        hero.model_dump(exclude_none=True),
        trade=None if chosen or outline.drawing else trade,
        drawn=drawing is not None,
    )
    to_contact = f"{where}#contact" if where else direct
    is_quiet = outline.theme.ground == "none" and len(pages) == 1  # the opening's button is the one spark
    action = None if is_quiet else _first_action(pages, to_contact, outline.lang)
    links = [
        link
        for link in _navigation(pages, outline.lang)
        if not action or "#" not in link.href or link.label != action.label
    ]
    return Business(
        name=outline.name,
        tagline=outline.tagline,
        email=contact.email,
        phone=contact.phone,
        address=contact.address,
        area=contact.area,
        ways=ways,
        hours=tuple(line.model_dump() for line in contact.hours),
        links=tuple(links),
        contact_href=to_contact,
        action=action,
        lang=outline.lang,
        familiar=address_of(words, outline.lang),
        art=None if chosen == "none" else chosen or (trade.art if trade else None),
        drawing=None if chosen == "none" else outline.drawing,
        mark=outline.mark,
        opening="statement" if chosen == "none" else own,
    )


def _first_action(pages: _Pages, to_contact: str | None, lang: str) -> Link | None:
    """Return the header's button: the opening's telephone number, else its first link, else one to get in touch.

    On a site of several pages a link to a section is left to the menu, which names its page; only the one to the
    contact form is kept, such as `contact.html#contact`.
    """
    links: list[Link] = []
    for item in (item for section in pages[INDEX][1] if section.kind == "Hero" for item in section.items):
        href = to_contact if item.detail == "#contact" else item.detail
        if not href or (href.startswith("#") and len(pages) > 1):
            continue
        if item.title and is_link(item.model_dump(exclude_none=True)) and not complaint_about_link(href):
            links.append(Link(label=item.title[:_LABEL], href=href))
    if not links and to_contact:
        return Link(label=say("Get in touch", lang), href=to_contact)
    return next((link for link in links if link.href.startswith("tel:")), links[0] if links else None)


def _trade(outline: Outline) -> Trade | None:
    """Return the trade that the outline states, else the one that its words name."""
    return TRADES.get(outline.trade or "") or trade_of(outline.name, outline.tagline, outline.description)


_DAY: Final[TypeAdapter[str]] = TypeAdapter(Day)


def _post_pages(outline: Outline, pages: _Pages) -> JsonObject:
    """Return a page for each entry of the news, with the way back to all of them."""
    where = _news_page(pages)
    all_news = {"label": pages[where][0] if where != INDEX else say("News", outline.lang), "href": f"{where}#posts"}
    found: JsonObject = {}
    for at, section in enumerate(outline.sections):
        for number, item in enumerate(section.items if section.kind == "Posts" else ()):
            place = f"/outline/sections/{at}/items/{number}"
            if not item.title:
                raise refuse("bad_outline", f"{place}/title", "an entry of the news has a title")
            try:
                day = _DAY.validate_python(item.detail)
            except ValidationError:
                raise refuse("bad_outline", f"{place}/detail", "is the date of the entry, as 2026-05-31") from None
            path = base = NEWS + slug(item.title)
            copy = 2
            while f"{path}.html" in found:
                path, copy = f"{base}-{copy}", copy + 1
            found[f"{path}.html"] = _post_page(item, day, outline, all_news)
    return found


def _news_page(pages: _Pages) -> str:
    """Return the page of all news: the last that has a list, as the front page may show the latest."""
    having = [path for path, (_, held) in pages.items() if any(part.kind == "Posts" for part in held)]
    return having[-1] if having else INDEX


def _post_page(item: OutlinedItem, day: str, outline: Outline, all_news: Mapping[str, str]) -> JsonObject:
    text = item.text or ""
    description = {"description": text[:300]} if text else {}
    body = {"body": {"type": "RichText", "props": {"body": text}, "children": []}} if text else {}
    elements: JsonObject = {
        "header": {"type": "Shared", "props": {"of": "header"}, "children": []},
        "intro": {"type": "PageIntro", "props": {"heading": item.title, "tone": "tinted"}, "children": []},
        **body,
        "back": {"type": "Section", "props": {}, "children": ["all-news"]},
        "footer": {"type": "Shared", "props": {"of": "footer"}, "children": []},
    }
    props = {"title": f"{item.title} · {outline.name}"[:120], "lang": outline.lang, "date": day, **description}
    page = {"type": "Page", "props": props, "children": list(elements)}
    link = {"type": "Button", "props": {**all_news, "variant": "quiet"}, "children": []}
    return {"root": "page", "elements": {"page": page, **elements, "all-news": link}}


def _theme(outline: Outline) -> JsonObject:
    """Return the theme: the trade's palette and fonts, unless the outline chooses a preset, which has its own."""
    chosen = outline.theme.model_dump(exclude_none=True, exclude={"art", "ground"})
    trade = _trade(outline) if "preset" not in chosen else None
    preset = trade.preset if trade else chosen.get("preset", "slate")
    pairing = trade.fonts if trade else PAIRINGS[preset]
    fonts = {} if "font" in chosen else pairing._asdict()
    theme = Theme(**(settings := {"preset": preset, "align": "left", **fonts, **chosen}))
    is_dark = (trade and trade.mode == "dark") or luminance(chosen_colours(theme).background) < DARK
    settings["mode"] = "dark" if is_dark else "light"  # what the owner sees is what each visitor gets
    style = theme.style or style_of(theme)
    return {**shape_of(theme, style), **settings, **plain_of(theme, outline.theme.ground), "style": style}


def _navigation(pages: _Pages, lang: str) -> list[Link]:
    """Return the links of the menu: to the pages, or to the sections of the only one."""
    links = [Link(label=name, href=path) for path, (name, _) in pages.items()]
    legal = [link for link in links if LEGAL.fullmatch(link.label)]
    if len(links) - len(legal) > 1:
        return links[:12]
    home = pages[INDEX][1]
    kinds: Counter[str] = Counter()
    found: list[Link] = []
    first: dict[str, Link] = {}
    for section in (home[at] for at in in_page_order([part.kind for part in home])):
        component = components()[section.kind]
        kinds[section.kind] += 1
        label = menu_words(section.menu) or menu_words(section.heading)
        if not label and section.kind != "RichText" and kinds[section.kind] == 1:  # a text can be about anything
            label = say(component.nav_label, lang) if component.nav_label else ""
        if label and (component.nav_label or (section.menu and section.kind not in _OPENINGS)):
            found.append(Link(label=label, href=f"{INDEX}#{_key(component, kinds[section.kind])}"))
            first.setdefault(section.kind, found[-1])
    by_label: dict[str, Link] = {}
    for link in (*first.values(), *found):  # a further list of a kind takes no other kind's place
        by_label.setdefault(link.label.casefold(), link)
    shown = [*by_label.values()][:_MAX_NAV_LINKS]
    return [*(link for link in found if link in shown), *legal]


def _page(path: str, pages: _Pages, outline: Outline, business: Business) -> JsonObject:
    elements: JsonObject = {}
    for kind, props in _contents(path, pages, outline, business):
        number = 1
        while (key := _key(components()[kind], number)) in elements:
            number += 1
        elements[key] = {"type": kind, "props": props, "children": []}
    title = outline.name if path == INDEX else f"{pages[path][0]} · {outline.name}"
    root: JsonObject = {"title": title[:120], "lang": outline.lang}
    if path == INDEX:
        root |= {"description": outline.description} if outline.description else {}
        title_page = {"align": "center"} if business.opening == "masthead" else {}
        root |= {"theme": _theme(outline) | title_page} | ({"url": outline.url} if outline.url else {})
    page = {"type": "Page", "props": root, "children": list(elements)}
    return {"root": "page", "elements": {"page": page, **elements}}


def _contents(path: str, pages: _Pages, outline: Outline, business: Business) -> list[tuple[str, JsonObject]]:
    """Return the sections of a page in order, with header, opening, contact and footer."""
    is_home = path == INDEX
    name, sections = pages[path]
    wanted = list(sections)
    if outline.theme.art == "none":
        wanted = [
            part.model_copy(update={"drawing": None}) if part.kind in _OPENINGS and part.drawing else part
            for part in wanted
        ]
    if not wanted or wanted[0].kind not in _OPENINGS:
        opening = OutlinedSection(kind="Hero" if is_home else "PageIntro", heading=None if is_home else name)
        wanted.insert(0, opening)
    if not is_home and wanted[1:] and repeats(wanted[1].heading or "", name):
        wanted[1] = wanted[1].model_copy(update={"heading": None})
    look = look_of(Theme(**_theme(outline)), page=list(pages).index(path), ground=outline.theme.ground)
    if LEGAL.fullmatch(name):
        look = look._replace(band="plain")
    parts = [(part.kind, _expand(part, outline, business)) for part in wanted]
    body = arranged([*parts[:1], *_ways_in(pages, business), *parts[1:]] if is_home else parts, business, look)
    where = _news_page(pages)
    for kind, props in body if is_home else ():
        if kind == "Posts" and where != INDEX:
            props |= {"limit": _LATEST, "action": {"label": pages[where][0], "href": where}}
        if kind == "Features":
            props["items"] = [_leading_on(item, pages) for item in props["items"]]
    if not is_home:
        return [("Shared", {"of": "header"}), *body, ("Shared", {"of": "footer"})]
    footer = footer_of(business)
    if len(pages) == 1 and any(kind == "MapLink" for kind, _ in body):  # where hours and further ways stand just above
        footer = {name: value for name, value in footer.items() if name not in ("hours", "social")}
    return [("Header", header_of(business)), *body, ("Footer", footer)]


def _ways_in(pages: _Pages, business: Business) -> list[tuple[str, JsonObject]]:
    """Return a list of links from the front page to the others, by their opening words, if it has no offers itself."""
    items = [
        {"title": opening.heading[:_LABEL], "link": {"label": name, "href": path}}
        | ({"text": opening.text} if opening.text else {})
        for path, (name, held) in pages.items()
        for opening in held[:1]
        if opening.kind == "PageIntro" and opening.heading
        if not LEGAL.fullmatch(name) and not (business.contact_href or "").startswith(path)
    ][:12]
    is_bare = items[1:] and all(part.kind != "Features" for part in pages[INDEX][1])
    return [("Features", {"items": items})] if is_bare else []


def _leading_on(item: JsonObject, pages: _Pages) -> JsonObject:
    """Return an offer of the front page with a link to the page of its name, by that page's opening words."""
    for path, (name, held) in pages.items():
        if path != INDEX and "link" not in item and repeats(item["title"], name):
            heading = (held[0].heading if held and held[0].kind in _OPENINGS else None) or name
            return item | {"link": {"label": heading if len(heading) <= _LABEL else name, "href": path}}
    return item


def _expand(section: OutlinedSection, outline: Outline, business: Business) -> JsonObject:
    if complaint := _complaint(section, business):
        place = f"/outline/sections/{outline.sections.index(section)}" if section in outline.sections else "/outline"
        rule = f"{section.kind} ({components()[section.kind].outline_hint}): {complaint[:200]}"
        raise refuse("bad_outline", place, rule)
    return _props(section, business)


def _key(component: Component, number: int) -> str:
    """Return the key of a page's section, which is the first or a later one of its kind."""
    name = "contact" if component.name == "ContactForm" else re.sub(r"(?<=[a-z])(?=[A-Z])", "-", component.name).lower()
    return name if number == 1 else f"{name}-{number}"


def outline_schema() -> JsonObject:
    """Return the JSON schema of an outline, without references and titles, as a tool's input schema."""
    schema = Outline.model_json_schema()
    inlined: JsonObject = _inline(schema, schema.get("$defs", {}))
    inlined["properties"]["sections"]["items"]["properties"]["kind"] = {"type": "string", "enum": outline_kinds()}
    del inlined["properties"]["sections"]["minItems"]  # with `ask` or `cannot` there may be none
    inlined["properties"]["trade"] = {"type": "string", "enum": list(TRADES)}
    return inlined


def outline_kinds() -> list[str]:
    """Return the names of the components that outlines offer."""
    return [component.name for component in components().values() if component.outline]


_SUMMARY: Final = {
    "summary": {
        **SUMMARY,
        "description": "one plain sentence to the owner, in the owner's language: what the site has, what of the "
        "request it cannot have, and what it says that the request does not give",
    }
}


def outline_tool() -> JsonObject:
    """Return the tool that a model is forced to call for a new site."""
    schema = outline_schema()
    ways = {name: way for name, way in WAYS_OUT.items() if name != "answer"}
    ways["cannot"] = ways["cannot"] | {"description": "only if no website can be it: why, in one sentence to the owner"}
    return {
        "name": "write_outline",
        "description": "Hand over the outline of the new site.",
        "input_schema": schema | {"properties": {**schema["properties"], **_SUMMARY, **ways}},
    }


def expand_outline(outline: object) -> Site:
    """Return the full site of an outline.

    Args:
        outline: the model's output, any JSON value.

    Raises:
        SpecError: the outline breaks a rule (the model's fault): `bad_outline` with a path below `/outline`, or what is
            invalid in the expanded site.
    """
    site = parse_site({"pages": compose(_parse(outline))})
    require_valid(site)
    return site


def left_out(outline: object, lang: str) -> tuple[str, ...]:
    """Return the names, in a language, of sections that a valid outline asks for without what they show.

    A form without an address shows what it asks, if it asks more than any other.
    """
    parsed = _parse(outline)
    email = parsed.contact.email
    shown = [part for part in _with_content(parsed) if part.kind != "ContactForm" or email or part.items]
    missing = [components()[part.kind] for part in parsed.sections if part not in shown]
    form = say("contact form", lang)
    names = (form if each.name == "ContactForm" else say(each.nav_label or each.words[0], lang) for each in missing)
    return tuple(dict.fromkeys(names))


def further_languages(outline: object) -> tuple[str, ...]:
    """Return the languages, other than its own, in which a valid outline asks for the site."""
    parsed = _parse(outline)
    return tuple(dict.fromkeys(lang for lang in parsed.also if lang != primary(parsed.lang)))


def _parse(outline: object) -> Outline:
    try:
        checked = deepcopy_checked(outline)
        given = (
            {name: value for name, value in checked.items() if name not in (*WAYS_OUT, *_SUMMARY)}
            if isinstance(checked, dict)
            else checked
        )
        parsed = Outline.model_validate(_as_written(_without_blanks(given)))
    except ValidationError as error:
        raise refused_by(error, "bad_outline", "/outline") from None
    kinds = outline_kinds()
    for index, section in enumerate(parsed.sections):
        if section.kind not in kinds:
            rule = f"{shown(section.kind)} is no kind of section; use one of {', '.join(kinds)}"
            raise refuse("bad_outline", f"/outline/sections/{index}/kind", rule)
    return parsed


def _without_blanks(value: Any) -> Any:
    """Drop empty texts, which models write for nothing."""
    if isinstance(value, dict):
        return {key: _without_blanks(item) for key, item in value.items() if item != ""}
    return [_without_blanks(item) for item in value] if isinstance(value, list) else value


def _as_written(value: Any) -> Any:
    """Return an outline with the spaces that its language keeps."""
    lang = value.get("lang", "en") if isinstance(value, dict) else None
    return typeset(value, lang) if isinstance(lang, str) else value


_NOT_SHOWN: Final = ("$defs", "default", "title")
"""What pydantic says of a type, which is nothing to a model; properties may have these names."""


def _inline(value: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        if "$ref" in value:
            return _inline(definitions[value["$ref"].rsplit("/", 1)[1]], definitions)
        given = [kind for kind in value.get("anyOf", ()) if kind != {"type": "null"}]
        if len(given) == 1:  # what may be null may as well be left out
            inner: JsonObject = _inline(given[0], definitions)
            return inner | {"description": value["description"]} if "description" in value else inner
        hidden = ("description", *_NOT_SHOWN) if "properties" in value else _NOT_SHOWN  # a class's is for programmers
        kept = {key: item for key, item in value.items() if key not in hidden}
        named = {name: _inline(item, definitions) for name, item in kept.pop("properties", {}).items()}
        schema = {key: _inline(item, definitions) for key, item in kept.items()}
        return {"properties": named, **schema} if named else schema
    return [_inline(item, definitions) for item in value] if isinstance(value, list) else value
