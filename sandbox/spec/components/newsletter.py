"""Newsletter: one field for an address.

As with every form of a static page, somebody has to receive it: a form service (`action`), or else the site's own
mailbox, by the visitor's mail program.
"""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from sandbox.spec.catalog import (
    Business,
    Component,
    Email,
    Label,
    LinkUrl,
    OutlineSection,
    RenderContext,
    SectionProps,
    Text,
    Title,
    section_props,
)
from sandbox.spec.html import Html, intro, tag
from sandbox.spec.model import JsonObject


class NewsletterProps(SectionProps):
    """Props of Newsletter."""

    heading: Title
    action: LinkUrl | None = None
    """Address of a form service."""
    email: Email | None = None
    button: Label = "Subscribe"
    note: Text | None = None

    @model_validator(mode="after")
    def _check_receiver(self) -> Self:
        if self.action is None and self.email is None:
            raise ValueError("a newsletter needs action, the address of a form service, or email")
        return self


def render(props: NewsletterProps, ctx: RenderContext) -> Html:
    """Render the words beside the field."""
    target = ctx.url(props.action) if props.action else f"mailto:{props.email}?subject=Newsletter"
    name = f"{ctx.id}.email"
    field = tag(
        "input", id=name, name="email", type="email", autocomplete="email", placeholder="you@example.com", required=True
    )
    row = tag("div", field, tag("button", props.button, type="submit", class_="button"), class_="newsletter-row")
    form = tag(
        "form",
        tag("label", "Your email", for_=name),
        row,
        tag("p", props.note, class_="newsletter-note") if props.note else None,
        action=target,
        method="post",
        enctype="text/plain" if target.startswith("mailto:") else None,
        class_="newsletter-form",
    )
    return tag(
        "section",
        tag("div", intro(ctx, props), form, class_="wrap"),
        id=ctx.id,
        class_=f"band newsletter tone-{props.tone}",
        aria_labelledby=f"{ctx.id}.title",
    )


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    email = {"email": business.email} if business.email else {}
    return {"heading": "Stay in touch", **section_props(section), **email}


def _minimal(business: Business) -> JsonObject | None:
    return {"heading": "Stay in touch", "email": business.email} if business.email else None


COMPONENT = Component(
    name="Newsletter",
    summary="sign-up for mail: heading, text, action (URL of a form service) or email, button, note",
    props=NewsletterProps,
    example={"heading": "News from the oven", "text": "Once a month.", "email": "news@bakery.example"},
    render=render,
    words=("newsletter", "newsletter signup", "mailing list", "email signup", "sign-up form"),
    outline=_outline,
    outline_hint="no items; needs contact.email",
    minimal=_minimal,
    css="""
.newsletter { padding-block: calc(clamp(3rem, 2.25rem + 3vw, 5rem) * var(--space)); }
.newsletter .wrap { display: grid; gap: 1.75rem; align-items: center; }
.newsletter .intro { margin: 0; text-align: left; }
.newsletter-form { display: grid; gap: .45rem; }
.newsletter-form label { font-size: .93rem; font-weight: 600; }
.newsletter-row { display: flex; flex-wrap: wrap; gap: .7rem; }
.newsletter-row input {
  flex: 1 1 14rem;
  min-width: 0;
  padding: .75rem .95rem;
  border: 1px solid var(--field);
  border-radius: min(var(--radius), 3rem);
  background: var(--bg);
  color: inherit;
  font: inherit;
}
.newsletter-row input::placeholder { color: var(--muted); opacity: 1; }
.tone-deep .newsletter-row input { background: var(--deep-card); }
.newsletter-note { margin-top: .3rem; font-size: .9rem; color: var(--muted); }
@media (min-width: 56rem) { .newsletter .wrap { grid-template-columns: 1.15fr 1fr; gap: 4rem; } }
""",
)
