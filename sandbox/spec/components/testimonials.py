"""Testimonials: what customers say."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Label,
    OutlineSection,
    Props,
    RenderContext,
    SectionProps,
    Text,
    section_props,
)
from sandbox.spec.html import Html, section, tag
from sandbox.spec.model import JsonObject


class Testimonial(Props):
    """One voice."""

    quote: Text
    name: Label
    role: Label | None = None
    rating: Annotated[int, Field(ge=1, le=5)] | None = None


class TestimonialsProps(SectionProps):
    """Props of Testimonials."""

    items: Annotated[tuple[Testimonial, ...], Field(min_length=1, max_length=9)]


def render(props: TestimonialsProps, ctx: RenderContext) -> Html:
    """Render the voices as quotations; a single one stands large and alone."""
    if len(props.items) == 1:
        alone = tag("div", _quote(props.items[0], element="div"), class_="quotes quote-alone")
        return section(ctx, props, alone, kind="testimonials")
    columns = min(len(props.items), 3) if len(props.items) != 4 else 2
    quotes = tag("ul", *(_quote(item) for item in props.items), class_=f"cards cards-{columns} quotes")
    return section(ctx, props, quotes, kind="testimonials")


def _quote(item: Testimonial, *, element: str = "li") -> Html:
    stars = None
    if item.rating:
        label = f"{item.rating} out of 5 stars"
        stars = tag("p", "★" * item.rating + "☆" * (5 - item.rating), class_="stars", role="img", aria_label=label)
    role = tag("span", item.role, class_="quote-role") if item.role else None
    caption = tag("figcaption", tag("span", item.name, class_="quote-name"), role)
    figure = tag("figure", stars, tag("blockquote", tag("p", item.quote)), caption)
    return tag(element, figure, class_="card" if element == "li" else None)


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    voices = [
        {"quote": item["text"], "name": item.get("title") or "A customer"}
        | ({"role": item["detail"][:60]} if item.get("detail") else {})
        for item in section.items
        if item.get("text")
    ]
    return {**section_props(section), "items": voices[:6]}


COMPONENT = Component(
    name="Testimonials",
    summary="customer quotes: heading, items [{quote, name, role, rating 1-5}]",
    props=TestimonialsProps,
    example={"heading": "What people say", "items": [{"quote": "The best rye in town.", "name": "Ana", "rating": 5}]},
    render=render,
    words=("testimonials", "testimonial", "reviews", "quotes", "customer quotes", "customer reviews"),
    outline=_outline,
    outline_hint="items: title = name, text = quote, detail = role; only quotes that the request gives",
    nav_label="Reviews",
    css="""
.quotes figure { display: flex; flex-direction: column; height: 100%; margin: 0; }
.quotes blockquote {
  margin: 0 0 1.4rem;
  font-family: var(--font-headings);
  font-size: calc(1.15rem * var(--heading-scale));
  line-height: 1.5;
  color: var(--ink);
}
.quote-alone { max-width: 54rem; margin-inline: var(--intro-margin); text-align: var(--intro-align); }
.quote-alone blockquote {
  font-size: calc(clamp(1.45rem, 1.1rem + 1.6vw, 2.2rem) * var(--heading-scale));
  line-height: 1.35;
  letter-spacing: -.01em;
  text-wrap: balance;
}
.quote-alone blockquote p::before { content: "“"; }
.quote-alone blockquote p::after { content: "”"; }
.quotes blockquote p { color: inherit; }
.quotes figcaption { margin-top: auto; display: grid; font-size: .93rem; line-height: 1.4; }
.quote-name { font-weight: 700; color: var(--ink); }
.quote-role { color: var(--muted); }
.quotes .stars { margin: 0 0 .8rem; letter-spacing: .15em; color: var(--link); }
""",
)
