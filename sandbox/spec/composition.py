"""How the pages of a new site are put together: header, opening, sections, contact, footer, and the ways between."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from sandbox.spec.catalog import components
from sandbox.spec.component import Business, Component, Link, OutlineSection, Tone
from sandbox.spec.errors import refuse
from sandbox.spec.model import INDEX, JsonObject
from sandbox.spec.outline_model import Outline, OutlinedSection

_HOME: Final = frozenset({"", "home", "index", "start"})
_MAX_NAV_LINKS: Final = 5
_PLAIN: Final = frozenset({"Hero", "CallToAction", "Logos", "Gallery", "RichText"})
_DEEP: Final = frozenset({"Testimonials", "Stats", "Newsletter"})
"""Kinds that a page may set on the deep colour of its theme."""


def compose(outline: Outline) -> JsonObject:
    """Return the page specs of the site that an outline stands for, by path.

    Raises:
        SpecError: a section has entries that its kind cannot use (the model's fault).
    """
    pages = _by_page(_with_content(outline))
    business = _business(outline, pages)
    return {path: _page(path, name, sections, outline, business) for path, (name, sections) in pages.items()}


def _with_content(outline: Outline) -> tuple[OutlinedSection, ...]:
    """Leave out sections without the entries, or the contact data, that they are made of: there is nothing to show."""
    bare = Business(name=outline.name, **outline.contact.model_dump())
    reachable = replace(bare, email="a@b.example", phone="+1 23", address="Here")
    return tuple(
        section
        for section in outline.sections
        if _complaint(section, bare) is None or (section.items and _complaint(section, reachable))
    )


def _complaint(section: OutlinedSection, business: Business) -> str | None:
    try:
        components()[section.kind].props.model_validate(_props(section, business, tone="plain"))
    except ValidationError as error:
        return str(error.errors(include_url=False, include_context=False, include_input=False)[0]["msg"])
    return None


def _props(section: OutlinedSection, business: Business, *, tone: Tone) -> JsonObject:
    component = components()[section.kind]
    assert component.outline is not None
    items = tuple(item.model_dump(exclude_none=True) for item in section.items)
    return component.outline(
        OutlineSection(section.kind, section.heading, section.text, items, tone, section.image), business
    )


def _by_page(sections: tuple[OutlinedSection, ...]) -> dict[str, tuple[str, list[OutlinedSection]]]:
    pages: dict[str, tuple[str, list[OutlinedSection]]] = {INDEX: ("Home", [])}
    for section in sections:
        name = (section.page or "").strip()
        path = INDEX if name.lower() in _HOME else f"{_slug(name)}.html"
        pages.setdefault(path, (name, []))[1].append(section)
    return pages


def _business(outline: Outline, pages: Mapping[str, tuple[str, list[OutlinedSection]]]) -> Business:
    contact = outline.contact
    where = next((path for path, (_, held) in pages.items() if any(part.kind == "ContactForm" for part in held)), None)
    if where is None and contact.email:
        where = INDEX
    direct = f"mailto:{contact.email}" if contact.email else None
    return Business(
        name=outline.name,
        tagline=outline.tagline,
        email=contact.email,
        phone=contact.phone,
        address=contact.address,
        links=tuple(_navigation(pages)),
        contact_href=f"{where}#contact" if where else direct,
    )


def _navigation(pages: Mapping[str, tuple[str, list[OutlinedSection]]]) -> list[Link]:
    if len(pages) > 1:
        return [Link(label=name, href=path) for path, (name, _) in pages.items()][:8]
    seen: dict[str, Link] = {}
    for section in pages[INDEX][1]:
        component = components()[section.kind]
        if component.nav_label and section.kind not in seen:
            heading = section.heading or ""
            label = heading if 0 < len(heading) <= 18 else component.nav_label
            seen[section.kind] = Link(label=label, href=f"{INDEX}#{_key(component)}")
    return list(seen.values())[:_MAX_NAV_LINKS]


def _page(path: str, name: str, sections: list[OutlinedSection], outline: Outline, business: Business) -> JsonObject:
    elements: JsonObject = {}
    for kind, props in _contents(path, name, sections, outline, business):
        key = base = _key(components()[kind])
        number = 2
        while key in elements:
            key, number = f"{base}-{number}", number + 1
        elements[key] = {"type": kind, "props": props, "children": []}
    title = outline.name if path == INDEX else f"{name} · {outline.name}"
    root: JsonObject = {"title": title[:120], "lang": outline.lang}
    if outline.description and path == INDEX:
        root["description"] = outline.description
    if path == INDEX:
        root["theme"] = outline.theme.model_dump(exclude_none=True)
    page = {"type": "Page", "props": root, "children": list(elements)}
    return {"root": "page", "elements": {"page": page, **elements}}


def _contents(
    path: str, name: str, sections: list[OutlinedSection], outline: Outline, business: Business
) -> list[tuple[str, JsonObject]]:
    """Return the sections of a page in order, with header, opening, contact and footer."""
    is_home = path == INDEX
    wanted = list(sections)
    if not wanted or wanted[0].kind not in ("Hero", "PageIntro"):
        opening = OutlinedSection(kind="Hero" if is_home else "PageIntro", heading=None if is_home else name)
        wanted.insert(0, opening)
    if business.contact_href == f"{path}#contact" and not any(part.kind == "ContactForm" for part in wanted):
        wanted.append(OutlinedSection(kind="ContactForm"))
    tones = _tones([section.kind for section in wanted])
    body = [
        (section.kind, _expand(section, outline, business, tone=tone))
        for section, tone in zip(wanted, tones, strict=True)
    ]
    if not is_home:
        return [("Shared", {"of": "header"}), *body, ("Shared", {"of": "footer"})]
    return [("Header", _header(business)), *body, ("Footer", _footer(business))]


def _tones(kinds: Sequence[str]) -> list[Tone]:
    """Give the sections of a page their grounds: no two tinted ones meet, and one deep one marks the middle."""
    tones: list[Tone] = []
    for place, kind in enumerate(kinds):
        follows_plain = bool(tones) and tones[-1] == "plain"
        if kind == "PageIntro":
            tones.append("tinted")
        elif kind in _DEEP and "deep" not in tones and place > 1 and follows_plain:
            tones.append("deep")
        else:
            tones.append("tinted" if place > 1 and follows_plain and kind not in _PLAIN else "plain")
    return tones


def _expand(section: OutlinedSection, outline: Outline, business: Business, *, tone: Tone) -> JsonObject:
    if complaint := _complaint(section, business):
        place = f"/outline/sections/{outline.sections.index(section)}" if section in outline.sections else "/outline"
        rule = f"{section.kind} ({components()[section.kind].outline_hint}): {complaint[:200]}"
        raise refuse("bad_outline", place, rule)
    return _props(section, business, tone=tone)


def _header(business: Business) -> JsonObject:
    props: JsonObject = {"brand": business.name, "links": [link.model_dump() for link in business.links]}
    if business.contact_href:
        props["action"] = {"label": "Get in touch", "href": business.contact_href}
        props["links"] = [link for link in props["links"] if link["href"] != business.contact_href]
    return props


def _footer(business: Business) -> JsonObject:
    links = [link.model_dump() for link in business.links]
    text = {"text": business.tagline} if business.tagline else {}
    return {"brand": business.name, **text, "links": links, **business.contact_props()}


def _key(component: Component) -> str:
    if component.name in ("Header", "Footer", "Hero"):
        return component.name.lower()
    if component.name == "Shared":
        return "shared"
    return "contact" if component.name == "ContactForm" else re.sub(r"(?<=[a-z])(?=[A-Z])", "-", component.name).lower()


def _slug(name: str) -> str:
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:40] or "page"
