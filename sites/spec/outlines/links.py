"""Where the buttons of a new site lead: an outline names a page or a section in its own words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic_core import PydanticCustomError

from sites.spec.catalog import Link, components
from sites.spec.html import complaint_about_link, phone_url, say
from sites.spec.model import JsonObject
from sites.spec.outlines.arrange import repeats

_MENU_LETTERS: Final = 22
_FIRST_WORDS: Final = re.compile(r"[,:;.?!–—·](?!\d)")
_NAMED = re.compile(r"#[^\W\d_]")
_NUMBER: Final = re.compile(r"(\+?[0-9(](?!.* / )[0-9\s()./\u2010-\u2014-]{4,22}?)(?:\s*\([^\d)]*\))?")
"""A telephone number, perhaps with a word on it in brackets."""
_EMAIL: Final = re.compile(r"[^@/:\s]+@[^@/:\s]+\.[^\W\d_]{2,}")
_HOST: Final = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}/\S+", re.IGNORECASE)
_SCHEMES = ("https:", "http:", "mailto:", "tel:", "sms:")


def slug(name: str) -> str:
    """Return a name as part of a path, an address or a key."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", ascii_name).strip("-")[:40] or "page"


def _known_by(name: str) -> str:
    """Return what a name is compared by: its slug, or itself in a script that has none."""
    return slug(name) if re.search(r"[a-z0-9]", name, re.IGNORECASE) else "-".join(name.casefold().strip("# ").split())


def leads_of(headings: Iterable[tuple[str, str, str | None]], phone: str | None) -> dict[str, str]:
    """Return where the words of headings lead, each with its kind of section and page, and the number to ring."""
    leads = {phone_url(phone): phone_url(phone)} if phone else {}
    for heading, kind, page in headings:
        name = page if page and repeats(heading, page) else heading
        leads[heading.casefold()] = "#contact" if kind == "ContactForm" else f"#{_known_by(name)}"
    return {words: href for words, href in leads.items() if not complaint_about_link(href)}


def lead_of(words: str, leads: Mapping[str, str]) -> str | None:
    """Return where words lead; a number is known by its digits, as some have blanks that do not break."""
    number = "" if words.startswith(_SCHEMES) else phone_url(words)
    return leads.get(words.casefold()) or leads.get(number)


def menu_words(words: str | None) -> str:
    """Return what of a heading can stand in a menu: `Saturday class` of `Saturday class, once a month`; empty if none.

    One word of a list is not: `Yes` of `Yes, no and never again`.
    """
    whole = (words or "").strip(" ¿¡.!")
    first = _FIRST_WORDS.split(whole)[0].strip()
    is_listed = " " not in first and whole[len(first) :].startswith(",")
    found = whole if is_listed else first
    return found if len(found) <= _MENU_LETTERS else ""


def page_path(name: str, pages: Mapping[str, tuple[str, Any]]) -> str:
    """Return the path of the page of that name, a free one if there is none yet."""
    path, number = f"{slug(name)}.html", 2
    while path in pages and _known_by(pages[path][0]) != _known_by(name):
        path, number = f"{slug(name)}-{number}.html", number + 1
    return path


def addressed(detail: str) -> str:
    """Return a detail that is an address as a link has it: a number without blanks, a name as a slug."""
    if _NAMED.match(detail):
        return f"#{_known_by(detail)}"
    if detail.startswith(("tel:", "sms:")):
        number = re.split("[?;]", detail)[0]  # without the text of a message, or an extension
        detail = detail[:4] + phone_url(number).removeprefix("tel:")
    if detail.startswith(_SCHEMES) and (complaint := complaint_about_link(detail)):
        raise PydanticCustomError("bad_url", "{complaint}", {"complaint": complaint})
    return detail


def way_of(title: str, detail: str) -> Link:
    """Return a further way to reach a business: a number, which the link shows, or an address.

    Raises:
        PydanticCustomError: the detail is neither (the model's fault).
    """
    scheme = "sms:" if detail.startswith("sms:") else "tel:"
    said = detail.removeprefix(scheme).strip()
    if found := _NUMBER.fullmatch(said):
        number = re.sub("[\u2010-\u2014]", "-", found[1]).strip()
        whole = number.replace(" ", "\N{NO-BREAK SPACE}")
        label = title if re.search(r"\d", title) else f"{title} {whole}"[:60]
        return Link(label=label, href=scheme + phone_url(number).removeprefix("tel:"))
    href = f"mailto:{said}" if _EMAIL.fullmatch(said) else f"https://{said}" if _HOST.fullmatch(said) else said
    rule = "a further way is a number, or an address that begins with https:"
    if complaint := complaint_about_link(href) if href.startswith(_SCHEMES) else rule:
        raise PydanticCustomError("bad_url", "{complaint}", {"complaint": complaint})
    return Link(label=title, href=href)


def lead(
    pages: Mapping[str, JsonObject],
    names: Mapping[str, str],
    menus: Mapping[str, str],
    *,
    lang: str,
    otherwise: str | None,
) -> None:
    """Let each link to `#name` lead to the section with that key, or else to what has that name.

    That is a page, then what the menu calls a section, then its heading, then its kind.

    Args:
        pages: the page specs by path, which are changed in place.
        names: the paths of pages by their names.
        menus: headings by what the menu calls their sections.
        lang: the language of the site.
        otherwise: where a link leads whose name is none.
    """
    of_pages = {_known_by(name): path for name, path in names.items()}
    targets = {**of_pages}
    for path, page in pages.items():
        for key, element in page["elements"].items():
            if key == page["root"]:
                continue
            component, heading = components()[element["type"]], element["props"].get("heading")
            label = component.nav_label and say(component.nav_label, lang)
            for name in filter(None, (key, heading, label, component.name, *component.words)):
                targets.setdefault(_known_by(name), f"{path}#{key}")
    ends = {menu: targets.get(_known_by(heading)) for menu, heading in menus.items()}
    targets |= {_known_by(menu): target for menu, target in ends.items() if target} | of_pages
    for page in pages.values():
        for link in _links(page["elements"]):
            if link["href"][1:] not in page["elements"].keys() - {page["root"]}:
                link["href"] = targets.get(_known_by(link["href"]), otherwise or link["href"])


def _links(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the links within a page's section."""
    if isinstance(value, dict):
        if isinstance(href := value.get("href"), str) and href.startswith("#"):
            yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _links(each)
