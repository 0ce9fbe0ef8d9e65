"""Rules for texts, images, buttons and links: what they say, show and lead to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from sites.direct_edit.orders import Add, DirectEdit, Put, Remove, Replace, Rules, setting
from sites.direct_edit.request import (
    ADDRESS,
    BUTTON,
    IMAGE,
    LABEL,
    LINK,
    NAVIGATION,
    QUOTED,
    SUBHEADLINE,
    VOCABULARY,
    Request,
    is_said,
    phrases,
    plain,
    typed,
    whole_words,
    words,
)
from sites.direct_edit.targets import (
    LINKED,
    Place,
    Spot,
    find_actions,
    find_items,
    find_pages,
    find_sections,
    find_strings,
    is_copy,
    matches,
    opening_place,
    places,
    root_of,
    split_page,
    spoken,
)
from sites.spec.html import complaint_about_image, complaint_about_link, say
from sites.spec.languages.versions import lang_of
from sites.spec.model import Site

_KIND: Final = r"(?:page|browser|tab|browser tab|site|website|meta|seo|html|document)(?:'s)?"
_PAGE_FIELD: Final = rf"(?P<field>(?:{_KIND} )+(?:title|description)|browser tab|title tag|meta description)"
_TARGETS: Final = (
    re.compile(rf"{_PAGE_FIELD}(?: (?:of|on|for|in) (?:the |our )?(?P<page>[\w.& -]+?))?"),
    re.compile(rf"(?P<page>[\w.-]+)(?:'s)? {_PAGE_FIELD}"),
)


def page_field(target: str) -> tuple[str, str | None] | None:
    """Return "title" or "description" and the page's name, if a phrase names a page's head."""
    noun = plain(target)
    for pattern in _TARGETS:
        if match := pattern.fullmatch(noun):
            return ("description" if "description" in match["field"] else "title"), match["page"]
    return None


def _put_page(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value, named = request.value(order.value), page_field(order.target)
    if value is None or named is None:
        return
    field, page = named
    pages = find_pages(page, site) if page else tuple(sorted(site.pages))
    if len(pages) != 1:
        return
    root = root_of(site, pages[0])
    if is_said(order.old and request.literal(order.old), root.props.get(field)):
        summary = f"Set the {field} of the page {pages[0]} to “{value}”."
        yield setting("page", summary, path=f"{root.path}/props/{field}", value=value, is_new=field not in root.props)


_FIELD: Final = words({name for names in VOCABULARY.section_fields.values() for name in names})
_NAMED_FIELD: Final = re.compile(rf"(?P<field>{_FIELD}|headline) (?P<old>{QUOTED})(?P<rest> (?:of|in|on) .+)?")


def _put_text(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(order.value)
    if value is None:
        return
    old = None if order.old is None else request.literal(order.old)
    for spot, field in _field_spots(order.target, site, request):
        if is_said(old, spot.value) and not _is_its_year(value, spot.value):
            summary = f"Set the {field} of the {spoken(spot.place.type)} to “{value}”."
            yield setting("text", summary, path=spot.path, value=value)


def _is_its_year(value: str, text: str) -> bool:
    """Whether a value is a year and the text it is for says more than its own: "change the copyright to 2027"."""
    return bool(re.fullmatch(r"\d{4}", value) and re.search(r"\D.*\b\d{4}\b|\b\d{4}\b.*\D", text))


def _field_spots(phrase: str, site: Site, request: Request) -> Iterator[tuple[Spot, str]]:
    """Yield the props that "the hero heading", "heading of the hero" or plain "tagline" can mean."""
    rest, pages = split_page(phrase, site)
    noun = plain(rest)
    if noun in VOCABULARY.headline or noun in SUBHEADLINE:
        field = "heading" if noun in VOCABULARY.headline else "text"
        yield from ((spot, field) for page in pages if (spot := _opening(site, page, field)))
        return
    if match := _NAMED_FIELD.fullmatch(noun):
        yield from _named_field(match, pages, site, request)
        return
    for section_phrase, field_word in splits(noun, rest, _FIELD, clear=VOCABULARY.clear_without_section):
        sections = [place for place in places(site) if place.page in pages]
        if section_phrase is not None:
            named = {place[:2] for place in find_sections(section_phrase, site, request)}
            sections = [place for place in sections if place[:2] in named]
        if field_word.startswith("copyright"):
            sections = [place for place in sections if place.type == "Footer"]
        for field, names in VOCABULARY.section_fields.items():
            if field_word in names:
                yield from ((spot, field) for place in sections if (spot := _prop_spot(place, field)))


def _named_field(
    match: re.Match[str], pages: tuple[str, ...], site: Site, request: Request
) -> Iterator[tuple[Spot, str]]:
    """Yield what "the heading “Teachers”" means: a kind of text and its current words."""
    old = request.quoted(match["old"])
    word = "heading" if match["field"] == "headline" else match["field"]
    scope = re.sub(r"^ (?:of|in|on) ", "", match["rest"]) if match["rest"] else None
    named = {place[:2] for place in find_sections(scope, site, request)} if scope else None
    for place in places(site):
        for field, names in VOCABULARY.section_fields.items():
            spot = _prop_spot(place, field) if word in names else None
            if spot and is_said(old, spot.value) and place.page in pages and (named is None or place[:2] in named):
                yield spot, field


def splits(noun: str, original: str, field: str, *, clear: frozenset[str]) -> Iterator[tuple[str | None, str]]:
    """Yield the ways to split a noun phrase into a text's owner (None if not named) and the text's name."""
    if noun in clear:
        yield None, noun
        return
    if match := re.fullmatch(rf"(?P<holder>.+?)(?:'s)? (?P<field>{field})", noun):
        yield _same_case(match["holder"], original), match["field"]
    if match := re.fullmatch(rf"(?P<field>{field}) (?:of|in|on|for|from|to) (?P<holder>.+)", noun):
        yield _same_case(match["holder"], original), match["field"]


def _opening(site: Site, page: str, field: str) -> Spot | None:
    """Return the heading that opens a page, or the text below it."""
    first = opening_place(site, (page,))
    return _prop_spot(first, field) if first else None


def _same_case(part: str, original: str) -> str:
    start = original.lower().find(part)
    return original[start : start + len(part)] if start >= 0 else part


def _prop_spot(place: Place, field: str) -> Spot | None:
    if place.type == "Heading" and field == "heading":
        field = "text"
    value = place.props.get(field)
    return Spot(place, (field,), value) if isinstance(value, str) else None


def _replace(order: Replace, request: Request, site: Site) -> Iterator[DirectEdit]:
    old, new = request.quoted(order.old), request.quoted(order.new)
    if not old or new is None or not new.strip() or old == new:
        return
    scope = None
    if order.where:
        scope = {place[:2] for place in find_sections(order.where, site, request)}
        if len(scope) != 1:
            return
    hits = _hits(old, site, scope, ignore_case=False) or _hits(old, site, scope, ignore_case=True)
    if order.is_everywhere and len(hits) != len(_hits(old, site, scope, ignore_case=True)):
        return  # other spellings of it would stay
    if any(_found(old, address, ignore_case=True) for spot in hits for address in LINKED.findall(spot.value)):
        return  # it is no word there
    is_one = len(hits) == 1 and len(_found(old, hits[0].value, ignore_case=True)) == 1
    if is_one or (hits and order.is_everywhere):
        yield _replacement(hits, old, new)


def _replacement(hits: list[Spot], old: str, new: str) -> DirectEdit:
    operations = []
    for spot in hits:
        ignore_case = not _found(old, spot.value, ignore_case=False)
        value = whole_words(old, ignore_case=ignore_case).sub(lambda _: new, spot.value)
        operations.append({"op": "replace", "path": spot.path, "value": value})
    places_word = "" if len(hits) == 1 else f" in {len(hits)} places"
    return DirectEdit("replace", f"Replaced “{old}” by “{new}”{places_word}.", tuple(operations), sought=(old,))


def is_only_text(text: str, site: Site) -> bool:
    """Whether some words occur in exactly one text of a site."""
    return len(_hits(text, site, None, ignore_case=True)) == 1


def _hits(old: str, site: Site, scope: set[tuple[str, str]] | None, *, ignore_case: bool) -> list[Spot]:
    return [
        spot
        for spot in find_strings(site)
        if (scope is None or spot.place[:2] in scope)
        and is_copy(spot)
        and _found(old, spot.value, ignore_case=ignore_case)
    ]


def _found(old: str, text: str, *, ignore_case: bool) -> list[str]:
    return whole_words(old, ignore_case=ignore_case).findall(text)


ALT_PHRASES: Final = phrases(
    r"alt(?:ernative)?(?: text)? (?:of|for|on) (?:the )?(?P<which>.+)",
    r"(?P<which>.+?)(?:'s)? alt(?:ernative)?(?: text)?",
)
_IMAGE_FILE: Final = r"[\w./-]+\.(?:svg|png|jpe?g|webp|avif|gif)"


def image_url(value: str, request: Request) -> str | None:
    """Return the address of an image that a value names, such as "the new picture team.jpg"."""
    url = request.literal(re.sub(rf"^(?:the )?(?:new )?{IMAGE} ", "", value))
    is_file = url.startswith("https://") or re.fullmatch(_IMAGE_FILE, url, re.I) is not None
    return url if is_file and not complaint_about_image(url) else None


def _image(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    url = image_url(order.value, request)
    for spot in _images(order.target, site, request) if url else ():
        if order.old is None or spot.value.get("src") == request.literal(order.old):
            summary = f"Changed the image of {spot.place.title()} to {url}."
            yield setting("image", summary, path=f"{spot.path}/src", value=url)


def _alt(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(order.value)
    for found in matches(ALT_PHRASES, order.target) if value and order.old is None else ():
        for spot in _images(found["which"], site, request):
            summary = f"Set the alternative text of the image of {spot.place.title()} to “{value}”."
            yield setting("image", summary, path=f"{spot.path}/alt", value=value)


def _images(phrase: str, site: Site, request: Request) -> Iterator[Spot]:
    """Yield the images that a section, an entry, an address, "logo" or "the picture at the top" can mean."""
    wanted = plain(phrase)
    source = request.literal(re.sub(rf"^{IMAGE} ", "", re.sub(r"^(?:the|our|my) ", "", phrase.strip(), flags=re.I)))
    match = re.fullmatch(rf"{IMAGE} (?:of|in|for|on|from|at) (?P<a>.+)|(?P<b>.+?)(?:'s)? {IMAGE}", wanted, re.I)
    owner = plain(match["a"] or match["b"]) if match else ""
    chosen = {place[:2] for place in find_sections(owner, site, request)} if owner else set()
    entries = {(spot.place[:2], spot.steps) for spot in find_items(owner, site, request)} if owner else set()
    if owner == "top" and (place := opening_place(site, tuple(site.pages))):
        chosen = {place[:2]}
    for spot in _all_images(site):
        is_own = spot.steps == ("image",) and spot.place[:2] in chosen
        is_logo = spot.steps == ("logo",) and wanted in ("logo", "logo image")
        in_entry = len(spot.steps) > 1 and (spot.place[:2], spot.steps[:2]) in entries
        if is_own or is_logo or in_entry or spot.value.get("src") == source:
            yield spot


def _all_images(site: Site) -> Iterator[Spot]:
    for place in places(site):
        for name, value in place.props.items():
            if isinstance(value, dict) and "src" in value:
                yield Spot(place, (name,), value)
            for index, entry in enumerate(value if isinstance(value, list) else ()):
                inner = entry.get("image") if isinstance(entry, dict) else None
                if isinstance(entry, dict) and "src" in entry:
                    yield Spot(place, (name, index), entry)
                elif isinstance(inner, dict) and "src" in inner:
                    yield Spot(place, (name, index, "image"), inner)
        if place.type == "Image":
            yield Spot(place, (), place.props)


ADDRESS_LIKE: Final = re.compile(r"\w+:|[#/]|www\.")
"""How a value begins that is no label but where it leads."""
_ORDINALS: Final = {"first": 0, "primary": 0, "main": 0, "second": 1, "secondary": 1}
_BEHIND: Final = r"(?: (?:in|of|on) (?P<behind>.+))?"
BUTTON_PHRASES: Final = phrases(
    rf"(?:{LABEL} (?:of|on|in) (?:the )?)?(?P<which>.*?) ?{BUTTON}(?:'s)?(?: {LABEL})?"
    rf"(?: (?P<label>{QUOTED}))?{_BEHIND}"
)
BUTTON_LINK_PHRASES: Final = phrases(
    rf"{ADDRESS} (?:of|on|behind) (?:the )?(?P<which>.*?) ?{BUTTON}"
    rf"(?: (?P<label>{QUOTED}))?{_BEHIND}",
    rf"(?P<which>.*?) ?{BUTTON}(?:'s)? {ADDRESS}(?P<label>)(?P<behind>)",
)
LINK_PHRASES: Final = phrases(
    rf"(?:{LABEL} of )?(?:the )?(?P<which>{QUOTED}) (?:(?P<where>{NAVIGATION}) )?"
    rf"{LINK}(?:'s)?(?: {LABEL})?",
    rf"(?:{LABEL} of )?(?:the )?(?:(?P<where>{NAVIGATION}) )?{LINK} (?P<which>{QUOTED})",
    rf"(?:the )?(?:{LINK} )?(?P<which>{QUOTED})(?: {LINK})? (?:in|of|on|from) "
    rf"(?:the |our )?(?P<where>{NAVIGATION})",
)
LINK_LINK_PHRASES: Final = phrases(
    rf"{ADDRESS} of (?:the )?(?P<which>{QUOTED}) (?:(?P<where>{NAVIGATION}) )?{LINK}",
    rf"{ADDRESS} of (?:the )?(?:(?P<where>{NAVIGATION}) )?{LINK} (?P<which>{QUOTED})",
    r"(?:the |our |my )?(?P<which>[\w .-]+?)(?:'s)?(?: (?:link|page|account|profile|url|address))?"
    r"(?P<where>)",
)


def _button(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(order.value)
    if value is None or order.old is not None or ADDRESS_LIKE.match(value):
        return
    for found in matches(BUTTON_PHRASES, order.target):
        phrase = _where(found)
        for spot in _buttons(phrase, site, request):
            summary = f"Changed the button “{spot.value['label']}” to “{value}”."
            yield setting("button", summary, path=f"{spot.path}/label", value=value)
        for place in _forms(phrase, site, request):
            summary = f"Changed the button of {place.title()} to “{value}”."
            is_new = "button" not in place.props
            yield setting("button", summary, path=f"{place.path}/props/button", value=value, is_new=is_new)


def _button_link(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    for found in matches(BUTTON_LINK_PHRASES, order.target):
        for spot in _buttons(_where(found), site, request):
            url = _url(order.value, spot.place.page, request, site)
            if url and complaint_about_link(url) is None:
                summary = f"The button “{spot.value['label']}” now leads to {url}."
                yield setting("link", summary, path=f"{spot.path}/href", value=url)


def _where(found: dict[str, str]) -> str:
    """Return the phrase that names the button, from before or after the word, with its page or section."""
    which, behind = found["which"] or found["label"], found["behind"]
    if which:
        return f"{which} in {behind}" if behind else which
    return behind


def _buttons(phrase: str, site: Site, request: Request) -> Iterator[Spot]:
    """Yield the buttons that "hero", "second hero", a label or nothing can mean."""
    rest, pages = split_page(phrase.strip(), site) if phrase.strip() else ("", tuple(site.pages))
    wanted = plain(rest)
    label_in, _, behind = wanted.partition(" in ")
    ordinal = next((number for word, number in _ORDINALS.items() if re.match(rf"{word}\b", wanted)), None)
    if ordinal is not None:
        wanted = re.sub(r"^\w+ ?(?:(?:in|of|on) )?(?:the )?", "", wanted)
    label = request.quoted(label_in)
    scope = behind if label is not None else wanted
    sections = {place[:2] for place in find_sections(scope, site, request)} if scope else None
    for spot in find_actions(site):
        its_label = typed(str(spot.value.get("label", ""))).lower()
        is_called = its_label == typed(label).lower().strip() if label is not None else False
        in_place = spot.place.page in pages and (sections is None or spot.place[:2] in sections)
        right_number = ordinal is None or (spot.steps[:1] == ("actions",) and spot.steps[1] == ordinal)
        is_named = label is None and bool(wanted) and its_label == wanted and spot.place.page in pages
        if is_named or (in_place and right_number and (label is None or is_called)):
            yield spot


def _forms(phrase: str, site: Site, request: Request) -> Iterator[Place]:
    """Yield the contact forms whose button a phrase can mean."""
    rest, pages = split_page(phrase.strip(), site) if phrase.strip() else ("", tuple(site.pages))
    wanted = plain(rest)
    label = request.quoted(wanted)
    named = {place[:2] for place in find_sections(wanted, site, request)} if wanted and label is None else None
    for place in places(site):
        if place.type == "ContactForm" and place.page in pages:
            button = str(place.props.get("button") or say("Send message", lang_of(site.pages[place.page])))
            is_called = label is not None and typed(button).lower() == typed(label).lower()
            if is_called or (label is None and (named is None or place[:2] in named)):
                yield place


def _link(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    value = request.value(order.value)
    for found in matches(LINK_PHRASES, order.target) if value and order.old is None else ():
        for spot in _links(found["which"], found["where"], site, request):
            summary = f"Changed the link “{spot.value['label']}” in {spot.place.title()} to “{value}”."
            yield setting("link", summary, path=f"{spot.path}/label", value=value)


def _link_link(order: Put, request: Request, site: Site) -> Iterator[DirectEdit]:
    for found in matches(LINK_LINK_PHRASES, order.target) if order.old is None else ():
        for spot in _links(found["which"], found["where"], site, request):
            url = _url(order.value, spot.place.page, request, site)
            if url and complaint_about_link(url) is None:
                summary = f"The link “{spot.value['label']}” in {spot.place.title()} now leads to {url}."
                yield setting("link", summary, path=f"{spot.path}/href", value=url)


def _unlink(order: Remove, request: Request, site: Site) -> Iterator[DirectEdit]:
    phrase = f"{order.what} in {order.where}" if order.where else order.what
    for found in matches(LINK_PHRASES, phrase):
        for spot in _links(found["which"], found["where"], site, request):
            summary = f"Removed the link “{spot.value['label']}” from {spot.place.title()}."
            yield DirectEdit("remove", summary, ({"op": "remove", "path": spot.path},))


_NEW_LINK: Final = phrases(
    rf"(?:a |the )?(?:new )?{LINK} (?P<label>{QUOTED}) (?:to|pointing to|leading to|linking to|for) "
    rf"(?P<url>.+) (?:to|in) (?:the )?(?P<where>{NAVIGATION})",
    rf"(?:a |the )?(?:new )?{LINK} to (?P<url>.+?) (?:called|named|labelled|with the (?:text|label)) "
    rf"(?P<label>{QUOTED}) (?:to|in) (?:the )?(?P<where>{NAVIGATION})",
)


def _new_link(order: Add, request: Request, site: Site) -> Iterator[DirectEdit]:
    for found in matches(_NEW_LINK, order.rest) if order.where is None else ():
        label = request.quoted(found["label"])
        for place in find_sections(_bar(found["where"]), site, request):
            url = _url(found["url"], place.page, request, site)
            if label and url and complaint_about_link(url) is None and place.type in ("Header", "Footer"):
                has_links = isinstance(place.props.get("links"), list)
                new: Any = {"label": label, "href": url}
                path = f"{place.path}/props/links{'/-' if has_links else ''}"
                summary = f"Added the link “{label}” to {place.title()}."
                yield setting("link", summary, path=path, value=new if has_links else [new], is_new=True)


def _bar(word: str) -> str:
    return "footer" if word.lower() == "footer" else "header"


def _links(token: str, where: str, site: Site, request: Request) -> Iterator[Spot]:
    label = request.literal(token).lower().strip()
    types = (_bar(where).title(),) if where else ("Header", "Footer")
    for place in places(site):
        for name in ("links", "social") if place.type in types else ():
            for index, link in enumerate(place.props.get(name) or ()):
                if isinstance(link, dict) and label and str(link.get("label", "")).lower() == label:
                    yield Spot(place, (name, index), link)


def _url(token: str, page: str, request: Request, site: Site) -> str | None:
    """Return an address as written, or that of a page or section named in words."""
    text = request.literal(token)
    if re.match(r"(?:https?://|mailto:|tel:|#|/)\S+$|[\w/-]+\.html(?:#\S+)?$", text):
        return text
    pages = find_pages(text, site) if re.search(r" page$|^(?:the )?homepage$", text, re.I) else ()
    if len(pages) == 1:
        return pages[0]
    sections = find_sections(text, site, request)
    if len(sections) == 1 and not pages:
        place = sections[0]
        return f"#{place.key}" if place.page == page else f"{place.page}#{place.key}"
    return None


RULES: Final[Rules] = {
    Put: (_image, _alt, _button, _button_link, _link, _link_link, _put_page, _put_text),
    Replace: (_replace,),
    Remove: (_unlink,),
    Add: (_new_link,),
}
