"""The page itself, its header and footer, and the elements that only arrange others."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from sites.spec.catalog import (
    LANG,
    Business,
    Component,
    Day,
    Email,
    Hue,
    Label,
    Link,
    Phone,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
)
from sites.spec.components.contact import Hours, TimeZone, contact_lines, hours_list
from sites.spec.drawings.shapes import Drawing, mark_of
from sites.spec.html import (
    EMPTY,
    Html,
    anchor,
    button_class,
    icon,
    image,
    join,
    language_links,
    paragraph,
    paragraphs,
    section,
    tag,
)
from sites.spec.model import INDEX, JsonObject
from sites.spec.theme import Theme

SiteUrl = Annotated[str, Field(max_length=200, pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?/([A-Za-z0-9._~-]+/)*$")]
"""Where a site is published, as https://www.bakery.example/: a directory, so with a slash at its end."""


class PageProps(Props):
    title: Annotated[str, Field(min_length=1, max_length=120)]
    description: Annotated[str, Field(max_length=300)] | None = None
    theme: Theme | None = None
    """Null means the theme of index.html."""
    lang: Annotated[str, Field(pattern=LANG)] = "en"
    language_name: Label | None = None
    """What links from other languages to the page, or to all pages in the language of a home page, say."""
    url: SiteUrl | None = None
    """On index.html: the public address of the site."""
    languages_everywhere: bool = False
    """On index.html: whether pages that are not in a further language lead to the home page in it."""
    date: Day | None = None
    """Of a post: `Posts` lists the pages of a folder that have one."""
    author: Label | None = None
    """Of a post, as it stands behind the date: "by Mette Bach"."""


@Component(
    "Page",
    summary="root of every page: title, description, date (of a post, 2026-05-31), author ('by Ida'), "
    "lang, language_name (on links to it: Po polsku), url (on index.html: https://www.bakery.example/), "
    "languages_everywhere true (there: pages lead to home pages in languages that they lack), "
    "theme {preset, primary, accent, buttons, background, deep, font (of all words), headings (of these), "
    "text (of the others), "
    "heading_size large|huge, heading_weight light|heavy, radius none|small|medium|large, "
    "spacing compact|regular|airy, size large|larger (of all words), "
    "ink (colour of words), contrast strong (of grey words), cards outlined|raised|flat|open, icons none, "
    "align left|center, mode auto|light|dark, style display|poster|editorial|tiles}; theme null = index.html's",
    example={"title": "Hill Bakery", "description": "Bread from a wood oven.", "theme": {"preset": "warm"}},
    place="root",
    has_children=True,
)
def _page(props: PageProps, ctx: RenderContext) -> Html:
    return ctx.children(deeper=False)


class SharedProps(Props):
    """An element of index.html, shown on another page too, so that navigation and footer have one source."""

    of: Annotated[str, Field(min_length=1, max_length=64)]
    """Key of an element directly below the root of index.html."""


@Component(
    "Shared",
    # resolving has put the element it stands for in its place
    summary="on other pages: shows the element `of` of index.html (header, footer); edit that one instead",
    example={"of": "header"},
)
def _shared(props: SharedProps, ctx: RenderContext) -> Html:
    return EMPTY


class HeaderProps(Props):
    """The name of the site and its navigation, which folds into a menu on a narrow screen."""

    brand: Label
    tagline: Label | None = None
    logo: Picture | None = None
    drawing: Drawing | None = None
    """The site's mark, where there is no logo."""
    links: Annotated[tuple[Link, ...], Field(max_length=8)] = ()
    action: Link | None = None
    layout: Literal["bar", "centered"] = "bar"
    notice: Annotated[str, Field(min_length=1, max_length=400)] | None = None
    """What stands above it in a slim strip, such as when the business is closed."""
    notice_hue: Hue | None = None
    """The colour of the strip; the site's accent by default."""
    sticky: bool = False
    """Whether it stays in sight while the page scrolls."""
    folds: bool = False
    """Whether on a phone a long button says in a word that it calls, or moves into the menu."""
    long: bool = False
    """Whether the name has a long word, so that less is a long button."""

    @property
    def folded(self) -> Link | None:
        """The button that is too long for a phone."""
        room = _BESIDE_LONG if self.long else _BESIDE_MARK if self.logo or self.drawing else _BESIDE_NAME
        return self.action if self.folds and self.action and len(self.action.label) > room else None


_BESIDE_NAME, _BESIDE_MARK, _BESIDE_LONG = 17, 15, 12
"""Letters of a button for which a phone has room beside the menu and a name, one with a mark, or a long word."""
_LONG_WORD: Final = 12


def _navigation(props: HeaderProps, ctx: RenderContext) -> tuple[Html, ...]:
    """Return the list of links and the buttons that show and hide it where there is no room for it.

    A popover needs no script: the browser opens it, closes it on Escape, and says so to assistive technology.
    """
    if not props.links:
        return ()
    menu = f"{ctx.id}.menu"
    button = {"type": "button", "class_": "menu-button", "popovertarget": menu}
    opener = tag("button", icon("menu"), ctx.say("Menu"), **button)
    button["class_"] = "menu-button menu-close"
    closer = tag("button", icon("close"), ctx.say("Close"), **button, popovertargetaction="hide")
    entries = [_navigation_entry(link, props.action, ctx) for link in props.links]
    if (long := props.folded) and not long.href.startswith("tel:") and long.href not in [it.href for it in props.links]:
        own = tag("a", long.label, href=ctx.url(long.href))
        entries = [*entries[:-1], tag("li", own, class_="menu-only"), *entries[-1:]]
    links = tag("ul", *entries)
    return opener, tag("nav", closer, links, class_="site-nav", id=menu, aria_label=ctx.say("Main"), popover=True)


def _navigation_entry(link: Link, action: Link | None, ctx: RenderContext) -> Html:
    """Return a link of the navigation; one that says no more than the button beside it is for the folded menu only."""
    says_more = action is None or link.href != action.href or link.label not in (action.label, ctx.say("Contact"))
    current = "page" if ctx.site.languages.towards(link.href, ctx.page).removeprefix("/") == ctx.page else None
    entry = tag("a", link.label, href=ctx.url(link.href), aria_current=current)
    return tag("li", entry, class_="menu-link" if says_more else "menu-only")


def _minimal_header(business: Business) -> JsonObject:
    return {"brand": business.name, "links": [link.model_dump() for link in business.links][:8]}


@Component(
    "Header",
    summary="brand, tagline, logo or drawing (a mark), links, action, layout bar|centered, sticky true, "
    "notice (slim strip on top), notice_hue",
    example={
        "brand": "Hill Bakery",
        "links": [{"label": "Bread", "href": "#bread"}],
        "action": {"label": "Order", "href": "#contact"},
    },
    place="header",
    words=("header", "navigation", "nav", "nav bar", "navbar", "menu bar", "top bar"),
    minimal=_minimal_header,
)
def _header(props: HeaderProps, ctx: RenderContext) -> Html:
    name = tag("span", props.brand, class_="brand-name")
    tagline = tag("span", props.tagline, class_="brand-line") if props.tagline else None
    words = tag("span", name, tagline, class_="brand-words")
    logo = image(ctx, props.logo, class_="brand-logo", eager=True) if props.logo else mark_of(props.drawing)
    brand = tag("a", logo, words, class_="brand", href=ctx.url(INDEX))
    action = _action(props.action, ctx, is_long=props.folded is not None, has_menu=bool(props.links))
    languages = language_links(ctx.page, ctx.lang, ctx.site.languages)
    inner = tag("div", brand, *_navigation(props, ctx), languages, action, class_="wrap")
    stays = " site-header-sticky" if props.sticky else ""
    named = " site-header-long" if props.long else ""
    header = tag("header", inner, class_=f"site-header site-header-{props.layout}{stays}{named}", id=ctx.id)
    return join(_notice(props.notice, props.notice_hue, ctx), header) if props.notice else header


def _action(action: Link | None, ctx: RenderContext, *, is_long: bool, has_menu: bool) -> Html | None:
    if action and is_long and action.href.startswith("tel:"):
        words = tag("span", action.label, class_="in-full"), tag("span", ctx.say("Call"), class_="in-brief")
        style = button_class("button button-small", action.accent)
        return tag("a", *words, class_=style, href=ctx.url(action.href))
    folds = " folds" if is_long and has_menu else ""
    return anchor(ctx, action, class_=f"button button-small{folds}") if action else None


def _notice(text: str, hue: Hue | None, ctx: RenderContext) -> Html:
    words = tag("div", paragraphs(ctx, text), class_="wrap")
    return tag("aside", words, class_=f"notice hue-{hue}" if hue else "notice", aria_label=ctx.say("Note"))


class FooterProps(Props):
    brand: Label
    text: Text | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=12)] = ()
    social: Annotated[tuple[Link, ...], Field(max_length=6)] = ()
    email: Email | None = None
    phone: Phone | None = None
    address: Text | None = None
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()
    timezone: TimeZone | None = None
    drawing: Drawing | None = None
    """The site's mark, as in the header."""
    note: Text | None = None
    """The last line: copyright, registration, credits."""


def _footer_links(links: tuple[Link, ...], ctx: RenderContext, label: str) -> Html | None:
    entries = (tag("li", _mark_of(link), anchor(ctx, link)) for link in links)
    return tag("nav", tag("ul", *entries), aria_label=label) if links else None


def _mark_of(link: Link) -> Html | None:
    host = (urlsplit(link.href).hostname or "").removeprefix("www.")
    return icon(_MARKS[host]) if host in _MARKS else None


_MARKS = {"facebook.com": "facebook", "instagram.com": "instagram", "youtube.com": "youtube"}
"""Icons of what else people have a page at."""


def _minimal_footer(business: Business) -> JsonObject:
    links = [link.model_dump() for link in business.links]
    return {"brand": business.name, **({"links": links} if links else {}), **business.contact_props()}


@Component(
    "Footer",
    summary="brand, drawing (as in Header), text, links, social, email, phone, address, "
    "hours and timezone as in ContactForm, note",
    example={"brand": "Hill Bakery", "links": [{"label": "Bread", "href": "#bread"}], "note": "© Hill Bakery"},
    place="footer",
    words=("footer", "page footer", "site footer"),
    minimal=_minimal_footer,
)
def _footer(props: FooterProps, ctx: RenderContext) -> Html:
    about = tag("div", mark_of(props.drawing), tag("p", props.brand, class_="brand-name"), paragraph(props.text))
    links = _footer_links(props.links, ctx, ctx.say("Footer"))
    social = _footer_links(props.social, ctx, ctx.say("Elsewhere"))
    contact = contact_lines(email=props.email, phone=props.phone, address=props.address)
    if props.hours:
        contact = tag("div", contact, hours_list(props.hours, ctx, props.timezone))
    top = tag("div", about, links, social, contact, class_="footer-top")
    wrap = tag("div", top, paragraph(props.note, "footer-note"), class_="wrap")
    return tag("footer", wrap, class_="site-footer", id=ctx.id)


@Component(
    "Section",
    summary="children; slot aside",
    example={"heading": "Also"},
    has_children=True,
    slots=("aside",),
    words=("section",),
)
def _section(props: SectionProps, ctx: RenderContext) -> Html:
    """Render the children below the heading, and the slot `aside` beside them."""
    deeper = props.heading is not None
    body = tag("div", ctx.children(deeper=deeper), class_="flow")
    if aside := ctx.slot("aside", deeper=deeper):
        body = tag("div", body, tag("div", aside, class_="flow"), class_="with-aside")
    return section(ctx, props, body, kind="free")


class StackProps(Props):
    direction: Literal["vertical", "horizontal"] = "vertical"
    gap: Literal["sm", "md", "lg"] = "md"


@Component(
    "Stack",
    summary="children in a row or column: direction vertical|horizontal, gap sm|md|lg",
    example={"direction": "horizontal", "gap": "md"},
    has_children=True,
)
def _stack(props: StackProps, ctx: RenderContext) -> Html:
    return tag("div", ctx.children(deeper=False), class_=f"stack stack-{props.direction} gap-{props.gap}")


class GridProps(Props):
    columns: Annotated[int, Field(ge=1, le=4)] = 3


@Component("Grid", summary="children in 1-4 columns", example={"columns": 3}, has_children=True)
def _grid(props: GridProps, ctx: RenderContext) -> Html:
    return tag("div", ctx.children(deeper=False), class_=f"cards cards-{props.columns}")


LEGAL: Final = re.compile(
    r"(?i)impressum|imprint|legal( notice)?|datenschutz\w*|privacy.*|terms.*|agb|mentions légales|.*confidentialité|"
    r"aviso legal|(.* )?privacidad|note legali|.* privacy|cookies?.*"
)


def header_of(business: Business) -> JsonObject:
    """Return the props of a new site's header; legal pages are linked from the footer alone."""
    links = [link.model_dump() for link in business.links if not LEGAL.fullmatch(link.label)]
    props: JsonObject = {"brand": business.name, "links": links[:8], **business.marked()}
    if first := business.action:
        is_long = max(map(len, business.name.split()), default=0) >= _LONG_WORD
        long = {"long": True} if is_long else {}
        props |= {"action": {"label": first.label, "href": first.href}, "folds": True, **long}
    if business.contact_href:
        page, _, part = business.contact_href.partition("#")
        others = [link for link in props["links"] if link["href"] != business.contact_href]
        has_page = page != INDEX and any(link["href"] == page for link in others)
        is_button = props.get("action", {}).get("href") == business.contact_href
        own = [link["label"] for link in props["links"] if link["href"] == business.contact_href and not is_button]
        in_menu = {"label": own[0] if own else business.say("Contact"), "href": business.contact_href}
        props["links"] = others[:7] + ([in_menu] if part and not has_page else [])
    return props | {"links": _on_one_line(props)}


_LINE: Final = 138
"""Letters of a header for which a line has room at 1280 pixels, spaces between its links included."""
_BETWEEN: Final = 3


def _on_one_line(header: JsonObject) -> list[JsonObject]:
    """Return the links for which a header has room; the last is the way to get in touch, and the footer has all."""
    links: list[JsonObject] = header["links"]
    button = header.get("action", {}).get("label", "")

    def width(shown: list[JsonObject]) -> int:
        return sum(len(link["label"]) + _BETWEEN for link in shown)

    room = _LINE - round(1.45 * len(header["brand"])) - len(button) - 2 * _BETWEEN
    while len(links) > 2 and width(links) > room:
        links = [*links[:-2], links[-1]]
    return links


def footer_of(business: Business) -> JsonObject:
    """Return the props of a new site's footer; a menu of one link is left out unless that is a legal page."""
    is_menu = len(business.links) > 1 or any(LEGAL.fullmatch(link.label) for link in business.links)
    links = [link.model_dump() for link in business.links if is_menu]
    text = {"text": business.tagline} if business.tagline else {}
    known = business.contact_props() | business.further("social") | business.marked()
    return {"brand": business.name, **text, "links": links, **known}
