"""ContactForm: how to get in touch.

A static page has no server to post to. Without an `action` the form hands the message to the visitor's own mail
program; without an `email` either there is nothing to send to, and only the contact data is shown.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
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
    section_props,
)
from sandbox.spec.contact import contact_lines
from sandbox.spec.html import Html, intro, labelled, tag
from sandbox.spec.model import JsonObject


class Hours(Props):
    """When the door is open."""

    days: Label
    time: Label


class ContactFormProps(SectionProps):
    """Props of ContactForm."""

    email: Email | None = None
    phone: Phone | None = None
    address: Text | None = None
    hours: Annotated[tuple[Hours, ...], Field(max_length=8)] = ()
    action: LinkUrl | None = None
    button: Label = "Send message"
    topics: Annotated[tuple[Label, ...], Field(max_length=12)] = ()
    note: Text | None = None


def render(props: ContactFormProps, ctx: RenderContext) -> Html:
    """Render contact data beside the form."""
    details = contact_lines(email=props.email, phone=props.phone, address=props.address)
    rows = [tag("div", tag("dt", entry.days), tag("dd", entry.time)) for entry in props.hours]
    hours = tag("dl", *rows, class_="hours") if rows else None
    words = tag("div", intro(ctx, props), details, hours, class_="contact-words")
    inner = tag("div", words, _form(props, ctx), class_="wrap")
    return tag(
        "section", inner, id=ctx.id, class_=f"band tone-{props.tone} contact", aria_labelledby=labelled(ctx, props)
    )


def _form(props: ContactFormProps, ctx: RenderContext) -> Html | None:
    target = ctx.url(props.action) if props.action else f"mailto:{props.email}" if props.email else None
    if target is None:
        return None
    encoding = "text/plain" if target.startswith("mailto:") else None
    topic = None
    if props.topics:
        options = [tag("option", name) for name in props.topics]
        control = tag("select", *options, id=f"{ctx.id}.topic", name="topic")
        topic = _field(ctx, "topic", "Topic", control)
    return tag(
        "form",
        _field(ctx, "name", "Your name", _input(ctx, "name", "text", "name")),
        _field(ctx, "email", "Your email", _input(ctx, "email", "email", "email")),
        topic,
        _field(
            ctx, "message", "Message", tag("textarea", id=f"{ctx.id}.message", name="message", rows=5, required=True)
        ),
        tag("p", tag("button", props.button, type="submit", class_="button"), class_="actions"),
        tag("p", props.note, class_="small") if props.note else None,
        action=target,
        method="post",
        enctype=encoding,
        class_="form",
    )


def _field(ctx: RenderContext, name: str, label: str, control: Html) -> Html:
    return tag("div", tag("label", label, for_=f"{ctx.id}.{name}"), control, class_="field")


def _input(ctx: RenderContext, name: str, kind: str, autocomplete: str) -> Html:
    return tag("input", id=f"{ctx.id}.{name}", name=name, type=kind, autocomplete=autocomplete, required=True)


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    return {"heading": "Contact", **section_props(section), **business.contact_props()}


def _minimal(business: Business) -> JsonObject | None:
    return {"heading": "Contact us", **business.contact_props()} if business.email else None


COMPONENT = Component(
    name="ContactForm",
    summary="contact: heading, text, email, phone, address, hours [{days, time}], button, topics [text], note, "
    "action (URL of a form service)",
    props=ContactFormProps,
    example={"heading": "Say hello", "email": "hello@bakery.example", "phone": "+44 20 7946 0000", "button": "Send"},
    render=render,
    words=("contact form", "contact", "contact section", "contact us", "form", "contact us form", "enquiry form"),
    outline=_outline,
    outline_hint="no items; contact data comes from `contact`",
    minimal=_minimal,
    nav_label="Contact",
    css="""
.contact .wrap { display: grid; gap: 2.5rem; }
.contact .intro { margin: 0 0 1.75rem; text-align: left; }
.form {
  display: grid;
  gap: 1.15rem;
  padding: clamp(1.4rem, 4vw, 2.4rem);
  border: 1px solid var(--line);
  border-radius: calc(var(--radius) * 1.25);
  background: var(--surface);
  color: var(--ink);
}
.field { display: grid; gap: .35rem; }
.field label { font-size: .93rem; font-weight: 600; }
.field input, .field select, .field textarea {
  width: 100%;
  padding: .7rem .85rem;
  border: 1px solid var(--field);
  border-radius: min(var(--radius), .75rem);
  background: var(--bg);
  color: var(--ink);
  font: inherit;
}
.field textarea { resize: vertical; }
.tone-deep .form { --bg: var(--deep); }
.form .actions { margin-top: .4rem; }
.hours { margin: 1.75rem 0 0; max-width: 24rem; }
.hours > div {
  display: flex;
  justify-content: space-between;
  gap: 1rem;
  padding-block: .5rem;
  border-bottom: 1px solid var(--line);
}
.hours dd { margin: 0; color: var(--muted); font-variant-numeric: tabular-nums; }
@media (min-width: 56rem) {
  .contact .wrap:has(form) { grid-template-columns: 1fr 1.15fr; gap: 4.5rem; align-items: start; }
}
""",
)
