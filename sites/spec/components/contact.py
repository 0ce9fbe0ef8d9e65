"""How to get in touch: contact data, the form, the newsletter, the way there.

A static page has no server to post to. A form goes to a form service (`action`), or else to the site's own mailbox by
the visitor's mail program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import Field, model_validator

from sites.spec.catalog import (
    Business,
    Component,
    Email,
    Label,
    LinkUrl,
    OutlineSection,
    Phone,
    Props,
    RenderContext,
    SectionProps,
    Text,
    Title,
    section_props,
)
from sites.spec.html import EMPTY, Html, band, icon, intro, phone_url, street_map, tag
from sites.spec.model import JsonObject

_MAP_SEARCH = "https://www.openstreetmap.org/search?query="
"""Where an address is looked up when the site names no map of its own."""


def contact_lines(*, email: str | None, phone: str | None, address: str | None) -> Html:
    """Return address, phone and email as a list of links, or nothing when none is known."""
    lines = [
        tag("li", icon("pin"), tag("span", address)) if address else None,
        tag("li", icon("phone"), tag("a", phone, href=phone_url(phone))) if phone else None,
        tag("li", icon("mail"), tag("a", email, href=f"mailto:{email}")) if email else None,
    ]
    return tag("address", tag("ul", *lines, class_="contact-lines")) if any(lines) else EMPTY


class Hours(Props):
    """When the business is open."""

    days: Label
    time: Label


def hours_list(hours: tuple[Hours, ...]) -> Html | None:
    """Return opening hours as a list, or nothing when none are known."""
    rows = [tag("div", tag("dt", entry.days), tag("dd", entry.time)) for entry in hours]
    return tag("dl", *rows, class_="hours") if rows else None


FieldName = Literal["phone", "date", "time", "people"]


class ContactFormProps(SectionProps):
    """Contact data beside a form; without an address to send to there is no form."""

    email: Email | None = None
    phone: Phone | None = None
    address: Text | None = None
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()
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
    summary="contact: heading, text, email, phone, address, hours [{days, time}], button, topics [text], note, "
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
    details = contact_lines(email=props.email, phone=props.phone, address=props.address)
    words = tag("div", intro(ctx, props), details, hours_list(props.hours), class_="contact-words")
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
    """Where a place is, and the way there in the visitor's own map program.

    The drawing is decoration: a real map would be a frame or a script of another site, which no published page has.
    """

    address: Text
    href: LinkUrl | None = None
    """A map of the place; without it the address is looked up in OpenStreetMap."""
    button: Label | None = None
    directions: Annotated[tuple[Text, ...], Field(max_length=5)] = ()
    """How to get there, one way each."""


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
    summary="where it is: heading, text, address, href (a map; default OpenStreetMap), button, directions [text]",
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
    return band(ctx, props, words, tag("div", street_map(), class_="map-drawing"), classes=f"tone-{props.tone} map")
