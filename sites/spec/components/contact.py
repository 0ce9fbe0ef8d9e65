"""The ways to get in touch: contact data with a form, a newsletter, and where a place is.

A static page has no server to post to. A form goes to a form service (`action`), or else to the site's own mailbox by
the visitor's mail program.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, Self, get_args
from urllib.parse import quote

from pydantic import Field, model_validator

from sites.spec.catalog import (
    Accent,
    Business,
    Component,
    Email,
    Label,
    Link,
    LinkUrl,
    OutlineSection,
    Phone,
    Props,
    RenderContext,
    SectionProps,
    Text,
    Title,
    is_link,
    outlined_links,
    section_props,
)
from sites.spec.embeds import framed, map_frame_of
from sites.spec.html import (
    EMPTY,
    Html,
    anchor,
    art,
    band,
    button_class,
    hours_apart,
    icon,
    intro,
    paragraph,
    phone_url,
    say_familiarly,
    tag,
)
from sites.spec.html import say as say_formally
from sites.spec.live import Line, read_hours
from sites.spec.model import JsonObject

_MAP_SEARCH = "https://www.openstreetmap.org/search?query="
"""Where an address is looked up when the site names no map of its own."""


def contact_lines(*further: Html, email: str | None, phone: str | None, address: str | None) -> Html:
    """Return the contact data that are known, as links where a device can use them."""
    lines = [
        tag("li", icon("pin"), tag("span", address)) if address else None,
        tag("li", icon("phone"), tag("a", phone, href=phone_url(phone))) if phone else None,
        tag("li", icon("mail"), tag("a", email, href=f"mailto:{email}")) if email else None,
        *further,
    ]
    return tag("address", tag("ul", *lines, class_="contact-lines")) if any(lines) else EMPTY


class Hours(Props):
    days: Label
    time: Label


TimeZone = Annotated[str, Field(max_length=40, pattern=r"^[A-Z][A-Za-z]+(/[A-Z][A-Za-z_-]+){1,2}$")]
"""Of the IANA database, as "Europe/Berlin": where hours are what the clock says."""


def hours_list(hours: tuple[Hours, ...], ctx: RenderContext, timezone: str | None) -> Html | None:
    """Return the hours; with a time zone, and if all are understood, a script marks today and says if it is open."""
    lines = read_hours([(entry.days, entry.time) for entry in hours], ctx.lang) if timezone else None
    rows = []
    for at, entry in enumerate(hours):
        days = "".join(map(str, sorted(lines[at].days))) if lines else None
        times = _times(lines[at]) if lines else None
        rows.append(
            tag("div", tag("dt", entry.days), tag("dd", hours_apart(entry.time)), data_days=days, data_times=times)
        )
    if not rows:
        return None
    if not lines:
        return tag("dl", *rows, class_="hours")
    words = {"data_open": ctx.say("Open now"), "data_closed": ctx.say("Closed now")}
    return tag("dl", *rows, class_="hours", data_live="hours", data_zone=timezone, **words)


def _times(line: Line) -> str:
    """Return a line's hours for the script; of `?` it says neither that it is open nor that it is closed."""
    return "?" if line.spans is None else " ".join(f"{start}-{end}" for start, end in line.spans)


QuestionKind = Literal["text", "long", "date", "time", "number", "phone", "email", "choice", "check"]


_KINDS_WITHOUT_OPTIONS = {*get_args(QuestionKind)} - {"choice"}


class Question(Props):
    """A field of a form: a choice has options, a check is a box to tick."""

    label: Annotated[str, Field(min_length=1, max_length=120)]
    kind: QuestionKind = "text"
    required: bool = False
    options: Annotated[tuple[Label, ...], Field(max_length=20)] = ()

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if (self.kind == "choice") != bool(self.options):
            raise ValueError("a question of kind choice has options, any other has none")
        return self


class ContactFormProps(SectionProps):
    """Contact data beside a form; one without an address to send to only shows what it asks, or else is not there."""

    email: Email | None = None
    phone: Phone | None = None
    address: Text | None = None
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()
    timezone: TimeZone | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=6)] = ()
    """Further ways: a second number with whose it is, a messenger, a profile."""
    action: LinkUrl | None = None
    button: Label | None = None
    accent: Accent = False
    """Of its button."""
    topics: Annotated[tuple[Label, ...], Field(max_length=12)] = ()
    questions: Annotated[tuple[Question, ...], Field(max_length=12)] = ()
    """What else a visitor is asked, in the site's own words."""
    message: Literal["required", "optional", "none"] = "required"
    """Whether the form has a field for a message that has to be filled in, that may be, or none."""
    visitor_email: Literal["required", "optional", "none"] = "required"
    """The same of the visitor's own address."""
    note: Text | None = None
    familiar: bool | Literal["several"] = False
    """Whether the form's own words say `tú`, or in Italian `voi`, to a visitor, as the site does."""


def _form(props: ContactFormProps, ctx: RenderContext, target: str | None) -> Html:
    """Return the form; without an address to send to it shows what it asks, and nobody can fill it in."""
    say = partial(say_familiarly, several=props.familiar == "several") if props.familiar else say_formally
    address = _input(ctx, "email", "email", required=props.visitor_email == "required")
    topic = None
    if props.topics:
        options = map(_option, props.topics)
        topic = _field(ctx, "topic", ctx.say("Topic"), tag("select", *options, id=f"{ctx.id}.topic", name="topic"))
    return tag(
        "form",
        _field(ctx, "name", say("Your name", ctx.lang), _input(ctx, "name", "text")),
        _field(ctx, "email", say("Your email", ctx.lang), address) if props.visitor_email != "none" else None,
        topic,
        *(_question(ctx, f"question-{at}", question) for at, question in enumerate(props.questions, 1)),
        _message(ctx, required=props.message == "required") if props.message != "none" else None,
        tag("p", _submit(props, ctx.say("Send message")), class_="actions") if target else None,
        paragraph(props.note, "small"),
        action=target,
        method="post",
        enctype=_encoding(target) if target else None,
        inert=target is None,
        class_="form",
    )


def _submit(props: ContactFormProps | NewsletterProps, otherwise: str) -> Html:
    return tag("button", props.button or otherwise, type="submit", class_=button_class("button", props.accent))


def _message(ctx: RenderContext, *, required: bool) -> Html:
    area = tag("textarea", id=f"{ctx.id}.message", name="message", rows=5, required=required)
    return _field(ctx, "message", ctx.say("Message"), area)


def _field(ctx: RenderContext, name: str, label: str, control: Html) -> Html:
    return tag("div", tag("label", label, for_=f"{ctx.id}.{name}"), control, class_="field")


def _outline_question(item: Mapping[str, str]) -> JsonObject:
    kind = item.get("detail", "")
    given = item.get("text", "") if "|" in item.get("text", "") else kind
    options = [label[:60] for part in given.split("|") if (label := part.strip())]
    if len(options) > 1:
        return {"label": item["title"], "kind": "choice", "options": options[:20]}
    return {"label": item["title"], "kind": kind if kind in _KINDS_WITHOUT_OPTIONS else "text"}


def _outline_contact(section: OutlineSection, business: Business) -> JsonObject:
    """Read items as questions, further ways, and which of its own fields the form lacks or leaves open."""
    fields = dict(_FIELDS[item["detail"]] for item in section.items if item.get("detail") in _FIELDS)
    further = [*(link.model_dump() for link in business.ways), *outlined_links(section)]
    links = [*{link["href"]: link for link in further}.values()]
    ways = {"links": links[:6]} if links else {}
    items = [
        item for item in section.items if item.get("title") and item.get("detail") not in _FIELDS and not is_link(item)
    ]
    asked = {"questions": [_outline_question(item) for item in items][:12]} if items else {}
    contact = business.contact_props()
    tone = {"familiar": business.familiar} if business.familiar else {}
    return {"heading": business.say("Contact"), **section_props(section), **contact, **ways, **asked, **fields, **tone}


_FIELDS: Mapping[str, tuple[str, str]] = {
    f"{word} {field}": (prop, value)
    for word, value in (("no", "none"), ("optional", "optional"))
    for field, prop in (("message", "message"), ("email", "visitor_email"))
}


def _lines_of(links: tuple[Link, ...], ctx: RenderContext) -> Iterator[Html]:
    return (tag("li", icon(_icon_of(link)), anchor(ctx, link)) for link in links)


def _icon_of(link: Link) -> str:
    scheme, _, rest = link.href.lower().partition(":")
    return "phone" if rest.startswith("//wa.me/") else _ICONS.get(scheme, "globe")


_ICONS: Mapping[str, str] = {"tel": "phone", "sms": "mail", "mailto": "mail"}


_INPUTS: Mapping[QuestionKind, Mapping[str, Any]] = {
    "phone": {"type": "tel", "autocomplete": "tel"},
    "number": {"type": "number", "inputmode": "numeric", "min": 0},
    "check": {"type": "checkbox"},
}


def _question(ctx: RenderContext, name: str, question: Question) -> Html:
    """Return a field; it is sent under its label, which is what its reader knows."""
    id_ = f"{ctx.id}.{name}"
    attributes: dict[str, Any] = {"id": id_, "name": question.label, "required": question.required}
    if question.kind == "choice":
        blank = tag("option", ctx.say("Please choose"), value="")
        return _field(ctx, name, question.label, tag("select", blank, *map(_option, question.options), **attributes))
    if question.kind == "long":
        return _field(ctx, name, question.label, tag("textarea", rows=3, **attributes))
    box = tag("input", **attributes, **_INPUTS.get(question.kind, {"type": question.kind}))
    if question.kind == "check":
        return tag("div", box, tag("label", question.label, for_=id_), class_="field field-check")
    return _field(ctx, name, question.label, box)


def _option(name: str) -> Html:
    return tag("option", name)


def _input(ctx: RenderContext, name: str, kind: str, *, required: bool = True) -> Html:
    return tag("input", id=f"{ctx.id}.{name}", name=name, type=kind, autocomplete=name, required=required)


def _encoding(target: str) -> str | None:
    return "text/plain" if target.startswith("mailto:") else None


@Component(
    "ContactForm",
    summary="email, phone, address, hours [{days, time}], "
    "timezone (Europe/Berlin: says if open now), links (more numbers, WhatsApp), "
    "button, topics [text], note, "
    "questions [{label, kind text|long|date|time|number|phone|email|choice|check (a box to tick), required, "
    "options [text]}] (besides name, email, message), message and visitor_email required|optional|none, "
    "action (URL of a form service; else the visitor's e-mail opens)",
    example={
        "heading": "Say hello",
        "email": "hello@bakery.example",
        "phone": "+44 20 7946 0000",
        "button": "Send",
        "questions": [
            {"label": "Pick up on", "kind": "date", "required": True},
            {"label": "Bread", "kind": "choice", "options": ["Rye", "Spelt"]},
            {"label": "Sliced, please", "kind": "check"},
        ],
    },
    words=("contact form", "contact", "contact section", "contact us", "form", "contact us form", "enquiry form"),
    outline=_outline_contact,
    outline_hint="where a form is asked for or needed, not where buttons do; items, to ask more than name, email and "
    "message: title = the question, detail = its kind: text, long, date, time, number, phone, check, "
    "or choice, and then text = its options as A | B. Items with detail `no|optional message|email` where "
    "none is needed",
    minimal=lambda business: (
        {"heading": business.say("Contact us"), **business.contact_props()} if business.email else None
    ),
    nav_label="Contact",
)
def _contact_form(props: ContactFormProps, ctx: RenderContext) -> Html:
    details = contact_lines(*_lines_of(props.links, ctx), email=props.email, phone=props.phone, address=props.address)
    hours = hours_list(props.hours, ctx, props.timezone)
    target = ctx.url(props.action) if props.action else f"mailto:{props.email}" if props.email else None
    form = _form(props, ctx, target) if target or props.questions else None
    waits = paragraph(ctx.say("This form cannot send yet.")) if form and not target else None
    words = tag("div", intro(ctx, props), details, hours, waits, class_="contact-words")
    return band(ctx, props, words, form, classes=f"{props.ground} contact")


class NewsletterProps(SectionProps):
    """One field for an address, beside the words."""

    heading: Title
    action: LinkUrl | None = None
    """Address of a form service."""
    email: Email | None = None
    button: Label | None = None
    accent: Accent = False
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
    summary="action (form service) or email, button, note",
    example={"heading": "News from the oven", "text": "Once a month.", "email": "news@bakery.example"},
    words=("newsletter", "newsletter signup", "mailing list", "email signup", "sign-up form"),
    outline=_outline_newsletter,
    outline_hint="no items",
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
        _submit(props, ctx.say("Subscribe")),
        class_="newsletter-row",
    )
    form = tag(
        "form",
        tag("label", ctx.say("Your email"), for_=name),
        row,
        paragraph(props.note, "newsletter-note"),
        action=target,
        method="post",
        enctype=_encoding(target),
        class_="newsletter-form",
    )
    return band(ctx, props, intro(ctx, props), form, classes=f"newsletter {props.ground}")


class MapLinkProps(SectionProps):
    """Where a place is and the way there, beside its hours, a drawing, or a map that a click loads."""

    address: Text
    phone: Phone | None = None
    email: Email | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=6)] = ()
    """Further ways, as in ContactForm."""
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()
    timezone: TimeZone | None = None
    href: LinkUrl | None = None
    """A map of the place; without it the address is looked up in OpenStreetMap."""
    button: Label | None = None
    directions: Annotated[tuple[Text, ...], Field(max_length=5)] = ()
    """How to get there, one way each."""
    embed: bool = False
    """Whether a click shows the map in the page."""


def _outline_map(section: OutlineSection, business: Business) -> JsonObject:
    own_places = [item["detail"] for item in section.items if {name for name in item if item[name]} == {"detail"}]
    own_places = [place for place in own_places if not is_link({"detail": place})]
    known = own_places[0] if own_places else business.address or ""
    told = [item for item in section.items if item.get("detail") not in own_places]
    both = [(item, ": ".join(item[name] for name in ("title", "detail") if item.get(name))) for item in told]
    ways = [_without_address(item.get("text") or words, known) for item, words in both]
    area = [business.area] if business.area and not own_places else []  # a footer of one page leaves it to this section
    own = {
        name: words
        for name, words in section_props(section).items()
        if not (words.strip(" .") in known if name == "text" else _is_address(words, known))
    }
    return {
        "heading": business.say("Find us"),
        **own,
        **({"address": known} if known else {}),
        "directions": [*area, *(way for way in ways if way and way.strip(" .") not in known)][:5],
    }


def _without_address(way: str, address: str) -> str:
    """Return a way to get there without the street that it begins with, which stands above it."""
    street = re.split(r"[,\n]", address)[0].strip()
    rest = way.removeprefix(street).lstrip(" ,:;.–-") if street else way
    return rest[:1].upper() + rest[1:]


_WORD: Final = re.compile(r"\w+")
_MOST: Final = 0.66
"""The share of a heading's words that an address repeats."""


def _is_address(heading: str, address: str) -> bool:
    """Whether a heading says hardly more than the address below it."""
    words = _WORD.findall(heading.casefold())
    return sum(word in _WORD.findall(address.casefold()) for word in words) >= _MOST * len(words) > 0


@Component(
    "MapLink",
    summary="address, phone, email, links, hours, timezone, "
    "href (else OpenStreetMap), button, directions [text], embed true (Google Maps)",
    example={"heading": "Find us", "address": "14 Mill Lane, Millbrook", "directions": ["Tram 4 to Mill Square"]},
    words=("map", "map link", "directions", "location", "find us"),
    outline=_outline_map,
    outline_hint="items: text = a way to get there; a second place: only detail, its address",
    minimal=lambda business: (
        {"heading": business.say("Find us"), "address": business.address} if business.address else None
    ),
    nav_label="Find us",
)
def _map_link(props: MapLinkProps, ctx: RenderContext) -> Html:
    place = tag("address", icon("pin"), tag("span", props.address), class_="map-address")
    reached = contact_lines(*_lines_of(props.links, ctx), email=props.email, phone=props.phone, address=None)
    ways = tag("ul", *(tag("li", way) for way in props.directions), class_="map-ways") if props.directions else None
    searched = props.address.replace("\N{NO-BREAK SPACE}", " ")
    href = ctx.url(props.href) if props.href else _MAP_SEARCH + quote(searched, safe="")
    link = tag("p", tag("a", props.button or ctx.say("Open the map"), class_="button", href=href), class_="actions")
    hours = hours_list(props.hours, ctx, props.timezone)
    words = tag("div", intro(ctx, props), place, ways, link, class_="map-words")
    drawing = tag("div", art("street-map"), class_="map-drawing")
    if props.embed:
        frame = map_frame_of(searched, props.href)
        call = ctx.say("Show the map")
        drawing = framed(ctx, frame, title=props.address[:140], call=call, still=drawing, href=href)
    if not (reached or hours):
        return band(ctx, props, words, drawing, classes=f"{props.ground} map")
    card = tag("div", drawing, hours, reached, class_="visit-card")
    return band(ctx, props, words, card, classes=f"{props.ground} map visit")
