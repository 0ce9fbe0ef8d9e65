"""Rules for buttons, links and images."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.spec.model import Site
from sandbox.spec.rules.targets import (
    Place,
    Spot,
    find_actions,
    find_items,
    find_pages,
    find_sections,
    places,
    split_page,
)
from sandbox.spec.rules.wording import DirectEdit, Request, Rule, plain, rule
from sandbox.spec.urls import complaint_about_image, complaint_about_link

_ORDINALS: Final = {"first": 0, "primary": 0, "main": 0, "second": 1, "secondary": 1}


def _button_text(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(match["value"])
    if value is None:
        return
    phrase = _where(match)
    for spot in _buttons(phrase, site, request):
        summary = f"Changed the button “{spot.value['label']}” to “{value}”."
        yield DirectEdit("button", summary, ({"op": "replace", "path": f"{spot.path}/label", "value": value},))
    for place in _forms(phrase, site, request):
        summary = f"Changed the button of {place.title()} to “{value}”."
        op = "replace" if "button" in place.props else "add"
        yield DirectEdit("button", summary, ({"op": op, "path": f"{place.path}/props/button", "value": value},))


def _button_link(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    url = _url(match["url"], request, site)
    if url is None or complaint_about_link(url):
        return
    for spot in _buttons(_where(match), site, request):
        summary = f"The button “{spot.value['label']}” now leads to {url}."
        yield DirectEdit("link", summary, ({"op": "replace", "path": f"{spot.path}/href", "value": url},))


def _where(match: re.Match[str]) -> str:
    """Return what names the button: what stands before the word, with the page or section that stands behind it."""
    which, behind = match["which"].strip(), match.groupdict().get("behind") or ""
    if which or behind.endswith("page"):
        return f"{which or 'button'}{behind}"
    return re.sub(r"^ (?:in|of|on) ", "", behind)


def _buttons(phrase: str, site: Site, request: Request) -> Iterator[Spot]:
    """Yield the buttons that "hero", "second hero", a quoted label or nothing can mean."""
    rest, pages = split_page(phrase.strip(), site) if phrase.strip() else ("", tuple(site.pages))
    wanted = re.sub(r"^button$", "", plain(rest))
    ordinal = next((number for word, number in _ORDINALS.items() if re.match(rf"{word}\b", wanted)), None)
    if ordinal is not None:
        wanted = re.sub(r"^\w+ ?(?:button )?(?:(?:in|of|on) (?:the )?)?", "", wanted)
    label = request.quoted(wanted)
    sections = {place[:2] for place in find_sections(wanted, site, request)} if wanted and label is None else None
    for spot in find_actions(site):
        in_place = spot.place.page in pages and (sections is None or spot.place[:2] in sections)
        right_one = label is None or str(spot.value.get("label", "")).lower() == label.lower().strip()
        right_number = ordinal is None or (spot.steps[:1] == ("actions",) and spot.steps[1] == ordinal)
        if in_place and right_one and right_number:
            yield spot


def _forms(phrase: str, site: Site, request: Request) -> Iterator[Place]:
    """Yield the forms whose own button a phrase can mean; "button" alone never means a form's when there are others."""
    rest, pages = split_page(phrase.strip(), site) if phrase.strip() else ("", tuple(site.pages))
    wanted = re.sub(r"^button$", "", plain(rest))
    label = request.quoted(wanted)
    named = {place[:2] for place in find_sections(wanted, site, request)} if wanted and label is None else None
    for place in places(site):
        if place.type == "ContactForm" and place.page in pages:
            button = str(place.props.get("button", "Send message"))
            if (label is not None and button.lower() == label.lower()) or (
                label is None and (named is None or place[:2] in named)
            ):
                yield place


def _nav_text(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(match["value"])
    for spot in _nav_links(match["which"], site, request) if value else ():
        summary = f"Changed the link “{spot.value['label']}” in {spot.place.title()} to “{value}”."
        yield DirectEdit("link", summary, ({"op": "replace", "path": f"{spot.path}/label", "value": value},))


def _nav_link(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    url = _url(match["url"], request, site)
    if url is None or complaint_about_link(url):
        return
    for spot in _nav_links(match["which"], site, request):
        summary = f"The link “{spot.value['label']}” in {spot.place.title()} now leads to {url}."
        yield DirectEdit("link", summary, ({"op": "replace", "path": f"{spot.path}/href", "value": url},))


def _nav_remove(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    for spot in _nav_links(match["which"], site, request, only=match["where"]):
        summary = f"Removed the link “{spot.value['label']}” from {spot.place.title()}."
        yield DirectEdit("remove", summary, ({"op": "remove", "path": spot.path},))


def _nav_add(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    label, url = request.quoted(match["label"]), _url(match["url"], request, site)
    if not label or url is None or complaint_about_link(url):
        return
    for place in find_sections(match["where"], site, request):
        if place.type in ("Header", "Footer"):
            links = place.props.get("links")
            new: Any = {"label": label, "href": url}
            tail = "/-" if isinstance(links, list) else ""
            operation = {"op": "add", "path": f"{place.path}/props/links{tail}", "value": new if tail else [new]}
            yield DirectEdit("link", f"Added the link “{label}” to {place.title()}.", (operation,))


def _nav_links(token: str, site: Site, request: Request, *, only: str | None = None) -> Iterator[Spot]:
    label = request.quoted(token)
    wanted = {place[:2] for place in find_sections(only, site, request)} if only else None
    for place in places(site):
        if place.type in ("Header", "Footer") and (wanted is None or place[:2] in wanted):
            for name in ("links", "social"):
                for index, link in enumerate(place.props.get(name) or ()):
                    if isinstance(link, dict) and label and str(link.get("label", "")).lower() == label.lower():
                        yield Spot(place, (name, index), link)


def _swap_image(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    url = request.quoted(match["url"]) or match["url"]
    if complaint_about_image(url) or not _looks_like_image(url):
        return
    for spot in _images(match["which"], site, request):
        summary = f"Changed the image of {spot.place.title()} to {url}."
        yield DirectEdit("image", summary, ({"op": "replace", "path": f"{spot.path}/src", "value": url},))


def _alt_text(match: re.Match[str], request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(match["value"])
    for spot in _images(match["which"], site, request) if value else ():
        summary = f"Set the alternative text of the image of {spot.place.title()} to “{value}”."
        yield DirectEdit("image", summary, ({"op": "replace", "path": f"{spot.path}/alt", "value": value},))


def _images(phrase: str, site: Site, request: Request) -> Iterator[Spot]:
    """Yield the images that a section, an entry, a caption, an address or "logo" can mean."""
    wanted = plain(phrase)
    sections = {place[:2] for place in find_sections(phrase, site, request)}
    entries = {spot[:2] for spot in [(s.place[:2], s.steps) for s in find_items(phrase, site, request)]}
    for place in places(site):
        for name in ("image", "logo"):
            if isinstance(place.props.get(name), dict) and (
                (name == "image" and place[:2] in sections) or (name == "logo" and wanted == "logo")
                or place.props[name].get("src") == phrase
            ):  # fmt: skip
                yield Spot(place, (name,), place.props[name])
        for name, value in place.props.items():
            for index, entry in enumerate(value if isinstance(value, list) else ()):
                if not isinstance(entry, dict):
                    continue
                steps: tuple[str | int, ...] = (name, index)
                holder = entry if "src" in entry else entry.get("image")
                chosen = (place[:2], steps) in entries or (isinstance(holder, dict) and holder.get("src") == phrase)
                if isinstance(holder, dict) and "src" in holder and chosen:
                    yield Spot(place, steps if holder is entry else (*steps, "image"), holder)


def _looks_like_image(url: str) -> bool:
    return url.startswith("https://") or re.search(r"\.(?:svg|png|jpe?g|webp|avif|gif)$", url, re.I) is not None


def _url(token: str, request: Request, site: Site) -> str | None:
    """Return an address as written, or the one of a page or section that the words name."""
    text = request.quoted(token) or token
    if re.match(r"(?:https?://|mailto:|tel:|#|/)\S+$|[\w/-]+\.html(?:#\S+)?$", text):
        return text
    pages = find_pages(text, site) if text.lower().endswith(" page") or text.lower() == "homepage" else ()
    return pages[0] if len(pages) == 1 else None


_BUTTON_FIELD: Final = r"(?:button|cta)(?: (?:text|label|caption|wording))?"
_BEHIND: Final = r"(?P<behind> (?:in|of|on) .+?)?"
_LEAD_TO: Final = r"(?:link to|point to|lead to|go to|open|links to|points to)"
_IMAGE: Final = r"(?:image|picture|photo|illustration|photograph)"
_ADDRESS: Final = r"(?P<url>\S+|<Q>|(?:the )?[\w -]+ page|the homepage)"
_FILE: Final = r"(?P<url>\S+|<Q>)"

_SWAP: Final = r"(?:replace|swap|change|update|set|switch)"
RULES: Final[tuple[Rule, ...]] = (
    rule(r"<CHANGE> <THE>(?:text|label) (?:of|on) (?:the )?<WHICH>button <TO> <VALUE>", _button_text),
    rule(rf"<CHANGE> <THE><WHICH>{_BUTTON_FIELD}{_BEHIND} <TO> <VALUE>", _button_text),
    rule(rf"make <THE><WHICH>{_BUTTON_FIELD}{_BEHIND} (?:say|read) <VALUE>", _button_text),
    rule(rf"(?:the )<WHICH>{_BUTTON_FIELD} should (?:say|read) <VALUE>", _button_text),
    rule(rf"(?:make|let|have) (?:the )?<WHICH>button{_BEHIND} {_LEAD_TO} {_ADDRESS}", _button_link),
    rule(rf"(?:link|point|direct) (?:the )?<WHICH>button{_BEHIND} to {_ADDRESS}", _button_link),
    rule(rf"the <WHICH>button should {_LEAD_TO} {_ADDRESS}", _button_link),
    rule(rf"<CHANGE> (?:the )?<WHICH>button(?:'s)? (?:link|url|href|target|destination) to {_ADDRESS}", _button_link),
    rule(rf"<CHANGE> (?:the )?(?:link|url|href|target) of (?:the )?<WHICH>button{_BEHIND} to {_ADDRESS}", _button_link),
    rule(
        r"<CHANGE> (?:the )?(?P<which><Q>) (?:nav |navigation |menu |header |footer )?(?:link|item|entry)(?: "
        r"text| label)? to <VALUE>",
        _nav_text,
    ),
    rule(
        r"<CHANGE> (?:the )?(?:nav|navigation|menu|header|footer) (?:link|item|entry) (?P<which><Q>) to <VALUE>",
        _nav_text,
    ),
    rule(r"<CHANGE> (?P<which><Q>) in the (?:nav|navigation|menu|header|navbar) to (?P<value><Q>)", _nav_text),
    rule(
        rf"make (?:the )?(?P<which><Q>) (?:nav |navigation |menu |header |footer )?(?:link|item) {_LEAD_TO} {_ADDRESS}",
        _nav_link,
    ),
    rule(
        r"(?:remove|delete|drop) (?:the )?(?:link )?(?P<which><Q>)(?: link)? from (?:the "
        r")?(?P<where>nav|navigation|header|footer|navbar)",
        _nav_remove,
    ),
    rule(
        rf"add (?:a |the )?(?:new )?link (?P<label><Q>) (?:to|pointing to|leading to|linking to|for) {_ADDRESS} "
        rf"(?:to|in) (?:the )?"
        rf"(?P<where>nav|navigation|header|footer|navbar)",
        _nav_add,
    ),
    rule(rf"{_SWAP} <THE>(?P<which>.+?) {_IMAGE} <FOR> (?:the image )?{_FILE}", _swap_image),
    rule(rf"{_SWAP} (?:the )?{_IMAGE} (?:of|in|for|on) (?P<which>.+?) <FOR> {_FILE}", _swap_image),
    rule(rf"{_SWAP} <THE>(?P<which>logo) <FOR> {_FILE}", _swap_image),
    rule(rf"use {_FILE} (?:as|for) <THE>(?P<which>.+?) {_IMAGE}", _swap_image),
    rule(
        rf"(?:replace|swap|change) (?:the )?(?:{_IMAGE} )?(?P<which>[\w./-]+\.(?:svg|png|jpe?g|webp|avif|gif)) "
        rf"<FOR> {_FILE}",
        _swap_image,
    ),
    rule(
        rf"<CHANGE> (?:the )?alt(?:ernative)?(?: text)? (?:of|for|on) (?:the )?(?P<which>.+?) {_IMAGE} to <VALUE>",
        _alt_text,
    ),
    rule(rf"<CHANGE> (?:the )?(?P<which>.+?) {_IMAGE}(?:'s)? alt(?:ernative)?(?: text)? to <VALUE>", _alt_text),
)
