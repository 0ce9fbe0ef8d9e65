"""The page itself, its header and footer, the ways to get in touch, and the elements that only arrange others.

A static page has no server to post to. A form goes to a form service (`action`), or else to the site's own mailbox by
the visitor's mail program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, urlsplit

from pydantic import Field, model_validator

from sites.spec.catalog import (
    Business,
    Component,
    Day,
    Email,
    Label,
    Link,
    LinkUrl,
    OutlineSection,
    Phone,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    Title,
    section_props,
)
from sites.spec.embeds import framed, map_frame_of
from sites.spec.html import (
    EMPTY,
    Html,
    anchor,
    band,
    icon,
    image,
    intro,
    language_links,
    phone_url,
    section,
    street_map,
    tag,
)
from sites.spec.live import read_hours
from sites.spec.model import INDEX, JsonObject
from sites.spec.theme import Theme

_MAP_SEARCH = "https://www.openstreetmap.org/search?query="
"""Where an address is looked up when the site names no map of its own."""


def _contact_lines(*, email: str | None, phone: str | None, address: str | None) -> Html:
    lines = [
        tag("li", icon("pin"), tag("span", address)) if address else None,
        tag("li", icon("phone"), tag("a", phone, href=phone_url(phone))) if phone else None,
        tag("li", icon("mail"), tag("a", email, href=f"mailto:{email}")) if email else None,
    ]
    return tag("address", tag("ul", *lines, class_="contact-lines")) if any(lines) else EMPTY


class Hours(Props):
    days: Label
    time: Label


TimeZone = Annotated[str, Field(max_length=40, pattern=r"^[A-Z][A-Za-z]+(/[A-Z][A-Za-z_-]+){1,2}$")]
"""Of the IANA database, as "Europe/Berlin": where hours are what the clock says."""


def _hours_list(hours: tuple[Hours, ...], ctx: RenderContext, timezone: str | None) -> Html | None:
    """Return the hours; with a time zone, and if all are understood, a script marks today and says if it is open."""
    lines = read_hours([(entry.days, entry.time) for entry in hours], ctx.lang) if timezone else None
    rows = []
    for at, entry in enumerate(hours):
        days = "".join(map(str, sorted(lines[at].days))) if lines else None
        times = " ".join(f"{start}-{end}" for start, end in lines[at].spans) if lines else None
        rows.append(tag("div", tag("dt", entry.days), tag("dd", entry.time), data_days=days, data_times=times))
    if not rows:
        return None
    if not lines:
        return tag("dl", *rows, class_="hours")
    words = {"data_open": ctx.say("Open now"), "data_closed": ctx.say("Closed now")}
    return tag("dl", *rows, class_="hours", data_live="hours", data_zone=timezone, **words)


FieldName = Literal["phone", "date", "time", "people"]


class ContactFormProps(SectionProps):
    """Contact data beside a form; without an address to send to there is no form."""

    email: Email | None = None
    phone: Phone | None = None
    address: Text | None = None
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()
    timezone: TimeZone | None = None
    action: LinkUrl | None = None
    button: Label | None = None
    topics: Annotated[tuple[Label, ...], Field(max_length=12)] = ()
    fields: Annotated[tuple[FieldName, ...], Field(max_length=4)] = ()
    """What a visitor has to state besides name, email and message."""
    note: Text | None = None


def _form(props: ContactFormProps, ctx: RenderContext) -> Html | None:
    target = ctx.url(props.action) if props.action else f"mailto:{props.email}" if props.email else None
    if target is None:
        return None
    topic = None
    if props.topics:
        options = [tag("option", name) for name in props.topics]
        topic = _field(ctx, "topic", ctx.say("Topic"), tag("select", *options, id=f"{ctx.id}.topic", name="topic"))
    message = tag("textarea", id=f"{ctx.id}.message", name="message", rows=5, required=True)
    return tag(
        "form",
        _field(ctx, "name", ctx.say("Your name"), _input(ctx, "name", "text")),
        _field(ctx, "email", ctx.say("Your email"), _input(ctx, "email", "email")),
        *(_further_field(ctx, name) for name in dict.fromkeys(props.fields)),
        topic,
        _field(ctx, "message", ctx.say("Message"), message),
        tag(
            "p",
            tag("button", props.button or ctx.say("Send message"), type="submit", class_="button"),
            class_="actions",
        ),
        tag("p", props.note, class_="small") if props.note else None,
        action=target,
        method="post",
        enctype=_encoding(target),
        class_="form",
    )


def _field(ctx: RenderContext, name: str, label: str, control: Html) -> Html:
    return tag("div", tag("label", label, for_=f"{ctx.id}.{name}"), control, class_="field")


def _further_field(ctx: RenderContext, name: FieldName) -> Html:
    known: Mapping[FieldName, tuple[str, Mapping[str, Any]]] = {
        "phone": (ctx.say("Your phone number"), {"type": "tel", "autocomplete": "tel"}),
        "date": (ctx.say("Date"), {"type": "date"}),
        "time": (ctx.say("Time"), {"type": "time"}),
        "people": (ctx.say("Number of people"), {"type": "number", "min": 1, "inputmode": "numeric"}),
    }
    label, attributes = known[name]
    return _field(ctx, name, label, tag("input", id=f"{ctx.id}.{name}", name=name, required=True, **attributes))


def _input(ctx: RenderContext, name: str, kind: str) -> Html:
    return tag("input", id=f"{ctx.id}.{name}", name=name, type=kind, autocomplete=name, required=True)


def _encoding(target: str) -> str | None:
    return "text/plain" if target.startswith("mailto:") else None


@Component(
    "ContactForm",
    summary="contact: heading, text, email, phone, address, hours [{days, time}], "
    "timezone (as Europe/Berlin: the page shows today and whether it is open now), button, topics [text], note, "
    "fields [phone | date | time | people] (also asked for), action (URL of a form service)",
    example={"heading": "Say hello", "email": "hello@bakery.example", "phone": "+44 20 7946 0000", "button": "Send"},
    words=("contact form", "contact", "contact section", "contact us", "form", "contact us form", "enquiry form"),
    outline=lambda section, business: {
        "heading": business.say("Contact"),
        **section_props(section),
        **business.contact_props(),
    },
    outline_hint="no items; contact data comes from `contact`",
    minimal=lambda business: (
        {"heading": business.say("Contact us"), **business.contact_props()} if business.email else None
    ),
    nav_label="Contact",
)
def _contact_form(props: ContactFormProps, ctx: RenderContext) -> Html:
    details = _contact_lines(email=props.email, phone=props.phone, address=props.address)
    words = tag(
        "div", intro(ctx, props), details, _hours_list(props.hours, ctx, props.timezone), class_="contact-words"
    )
    return band(ctx, props, words, _form(props, ctx), classes=f"tone-{props.tone} contact")


class NewsletterProps(SectionProps):
    """One field for an address, beside the words."""

    heading: Title
    action: LinkUrl | None = None
    """Address of a form service."""
    email: Email | None = None
    button: Label | None = None
    note: Text | None = None

    @model_validator(mode="after")
    def _check_receiver(self) -> Self:
        if self.action is None and self.email is None:
            raise ValueError("a newsletter needs action, the address of a form service, or email")
        return self


def _outline_newsletter(section: OutlineSection, business: Business) -> JsonObject:
    email = {"email": business.email} if business.email else {}
    return {"heading": business.say("Stay in touch"), **section_props(section), **email}


@Component(
    "Newsletter",
    summary="sign-up for mail: heading, text, action (URL of a form service) or email, button, note",
    example={"heading": "News from the oven", "text": "Once a month.", "email": "news@bakery.example"},
    words=("newsletter", "newsletter signup", "mailing list", "email signup", "sign-up form"),
    outline=_outline_newsletter,
    outline_hint="no items; needs contact.email",
    minimal=lambda business: (
        {"heading": business.say("Stay in touch"), "email": business.email} if business.email else None
    ),
)
def _newsletter(props: NewsletterProps, ctx: RenderContext) -> Html:
    target = ctx.url(props.action) if props.action else f"mailto:{props.email}?subject=Newsletter"
    name = f"{ctx.id}.email"
    field = tag(
        "input", id=name, name="email", type="email", autocomplete="email", placeholder="you@example.com", required=True
    )
    row = tag(
        "div",
        field,
        tag("button", props.button or ctx.say("Subscribe"), type="submit", class_="button"),
        class_="newsletter-row",
    )
    form = tag(
        "form",
        tag("label", ctx.say("Your email"), for_=name),
        row,
        tag("p", props.note, class_="newsletter-note") if props.note else None,
        action=target,
        method="post",
        enctype=_encoding(target),
        class_="newsletter-form",
    )
    return band(ctx, props, intro(ctx, props), form, classes=f"newsletter tone-{props.tone}")


class MapLinkProps(SectionProps):
    """Where a place is and the way there, beside a drawing, or a map that a click loads."""

    address: Text
    href: LinkUrl | None = None
    """A map of the place; without it the address is looked up in OpenStreetMap."""
    button: Label | None = None
    directions: Annotated[tuple[Text, ...], Field(max_length=5)] = ()
    """How to get there, one way each."""
    embed: bool = False
    """Whether a click shows the map in the page."""


def _outline_map(section: OutlineSection, business: Business) -> JsonObject:
    ways = [item.get("text") or item.get("title") for item in section.items]
    address = {"address": business.address} if business.address else {}
    return {
        "heading": business.say("Find us"),
        **section_props(section),
        **address,
        "directions": [way for way in ways if way][:5],
    }


@Component(
    "MapLink",
    summary="where it is: heading, text, address, href (a map; default OpenStreetMap), button, directions [text], "
    "embed true (the map shows in the page, after a click)",
    example={"heading": "Find us", "address": "14 Mill Lane, Millbrook", "directions": ["Tram 4 to Mill Square"]},
    words=("map", "map link", "directions", "location", "find us"),
    outline=_outline_map,
    outline_hint="items: text = a way to get there; needs contact.address",
    minimal=lambda business: (
        {"heading": business.say("Find us"), "address": business.address} if business.address else None
    ),
    nav_label="Find us",
)
def _map_link(props: MapLinkProps, ctx: RenderContext) -> Html:
    place = tag("address", icon("pin"), tag("span", props.address), class_="map-address")
    ways = tag("ul", *(tag("li", way) for way in props.directions), class_="map-ways") if props.directions else None
    href = ctx.url(props.href) if props.href else _MAP_SEARCH + quote(props.address, safe="")
    link = tag("p", tag("a", props.button or ctx.say("Open the map"), class_="button", href=href), class_="actions")
    words = tag("div", intro(ctx, props), place, ways, link, class_="map-words")
    drawing = tag("div", street_map(), class_="map-drawing")
    if props.embed:
        frame = map_frame_of(props.address, props.href)
        call = ctx.say("Show the map")
        drawing = framed(ctx, frame, title=props.address[:140], call=call, still=drawing, href=href)
    return band(ctx, props, words, drawing, classes=f"tone-{props.tone} map")


SiteUrl = Annotated[str, Field(max_length=200, pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?/([A-Za-z0-9._~-]+/)*$")]
"""Where a site is published, as https://www.bakery.example/: a directory, so with a slash at its end."""


class PageProps(Props):
    title: Annotated[str, Field(min_length=1, max_length=120)]
    description: Annotated[str, Field(max_length=300)] | None = None
    theme: Theme | None = None
    """Null means the theme of index.html."""
    lang: Annotated[str, Field(pattern=r"^[a-zA-Z]{2,3}(-[a-zA-Z0-9]{2,8})?$")] = "en"
    url: SiteUrl | None = None
    """On index.html: the public address of the site."""
    date: Day | None = None
    """Of a post: `Posts` lists the pages of a folder that have one."""


@Component(
    "Page",
    summary="root of every page: title, description, date (of a post, 2026-05-31), "
    "lang (a page at xx/PATH with lang xx is PATH in that language), url (on index.html: https://www.bakery.example/), "
    "theme {preset, primary, accent, background, font (of headings too, unless they have one), headings, radius "
    "none|small|medium|large, spacing compact|regular|airy, size large|larger (of all text), "
    "cards outlined|raised|flat|open, align left|center, mode auto|light|dark}; theme null = index.html's",
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
    links: Annotated[tuple[Link, ...], Field(max_length=8)] = ()
    action: Link | None = None
    layout: Literal["bar", "centered"] = "bar"
    sticky: bool = False
    """Whether it stays in sight while the page scrolls."""


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
    links = tag("ul", *(tag("li", _navigation_link(link, ctx)) for link in props.links))
    return opener, tag("nav", closer, links, class_="site-nav", id=menu, aria_label=ctx.say("Main"), popover=True)


def _navigation_link(link: Link, ctx: RenderContext) -> Html:
    current = "page" if ctx.site.languages.towards(link.href, ctx.page).removeprefix("/") == ctx.page else None
    return tag("a", link.label, href=ctx.url(link.href), aria_current=current)


def _minimal_header(business: Business) -> JsonObject:
    return {"brand": business.name, "links": [link.model_dump() for link in business.links][:8]}


@Component(
    "Header",
    summary="banner: brand, tagline, logo {src, alt}, links [{label, href}], action {label, href}, "
    "layout bar|centered, sticky true|false",
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
    logo = image(ctx, props.logo, class_="brand-logo", eager=True) if props.logo else None
    brand = tag("a", logo, words, class_="brand", href=ctx.url(INDEX))
    action = anchor(ctx, props.action, class_="button button-small") if props.action else None
    languages = language_links(ctx.page, ctx.lang, ctx.site.languages)
    inner = tag("div", brand, *_navigation(props, ctx), languages, action, class_="wrap")
    stays = " site-header-sticky" if props.sticky else ""
    return tag("header", inner, class_=f"site-header site-header-{props.layout}{stays}", id=ctx.id)


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
    summary="end of the page: brand, text, links [{label, href}], social [{label, href}], email, phone, address, "
    "hours [{days, time}], timezone (as in ContactForm), note",
    example={"brand": "Hill Bakery", "links": [{"label": "Bread", "href": "#bread"}], "note": "© Hill Bakery"},
    place="footer",
    words=("footer", "page footer", "site footer"),
    minimal=_minimal_footer,
)
def _footer(props: FooterProps, ctx: RenderContext) -> Html:
    about = tag("div", tag("p", props.brand, class_="brand-name"), tag("p", props.text) if props.text else None)
    links = _footer_links(props.links, ctx, ctx.say("Footer"))
    social = _footer_links(props.social, ctx, ctx.say("Elsewhere"))
    contact = _contact_lines(email=props.email, phone=props.phone, address=props.address)
    if props.hours:
        contact = tag("div", contact, _hours_list(props.hours, ctx, props.timezone))
    top = tag("div", about, links, social, contact, class_="footer-top")
    note = tag("p", props.note, class_="footer-note") if props.note else None
    return tag("footer", tag("div", top, note, class_="wrap"), class_="site-footer", id=ctx.id)


@Component(
    "Section",
    summary="free section with children: eyebrow, heading, text, tone; slot aside",
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
    summary="children in a column or row: direction vertical|horizontal, gap sm|md|lg",
    example={"direction": "horizontal", "gap": "md"},
    has_children=True,
)
def _stack(props: StackProps, ctx: RenderContext) -> Html:
    return tag("div", ctx.children(deeper=False), class_=f"stack stack-{props.direction} gap-{props.gap}")


class GridProps(Props):
    columns: Annotated[int, Field(ge=1, le=4)] = 3


@Component("Grid", summary="children in columns: columns 1-4", example={"columns": 3}, has_children=True)
def _grid(props: GridProps, ctx: RenderContext) -> Html:
    return tag("div", ctx.children(deeper=False), class_=f"cards cards-{props.columns}")
