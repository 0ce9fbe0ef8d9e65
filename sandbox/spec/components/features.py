"""Features: what is offered, as a grid of short pieces."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    IconName,
    Label,
    Link,
    OutlineSection,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    items_text,
    section_props,
)
from sandbox.spec.components.drawings import icon
from sandbox.spec.html import Html, below, heading, image, section, tag
from sandbox.spec.model import JsonObject


class Feature(Props):
    """One piece."""

    title: Label
    text: Text | None = None
    icon: IconName | None = None
    image: Picture | None = None
    link: Link | None = None


class FeaturesProps(SectionProps):
    """Props of Features."""

    items: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=12)]
    layout: Literal["cards", "plain", "rows"] = "cards"
    """Cards in a grid, the same without frames, or one below the other with the picture beside the words."""


def render(props: FeaturesProps, ctx: RenderContext) -> Html:
    """Render the pieces as cards, plain columns or rows."""
    level = below(ctx, props)
    if props.layout == "rows":
        rows = tag("ul", *(_row(item, ctx, level) for item in props.items), class_="feature-rows")
        return section(ctx, props, rows, kind="features")
    style = "card" if props.layout == "cards" else "feature-plain"
    cards = [_card(item, ctx, level, style=style) for item in props.items]
    return section(ctx, props, tag("ul", *cards, class_=f"cards cards-{_columns(len(cards))}"), kind="features")


def _row(item: Feature, ctx: RenderContext, level: int) -> Html:
    """Return a row; one without a picture has its title where the picture would be."""
    words = [tag("p", item.text) if item.text else None, _link(item, ctx)]
    if item.image is None:
        return tag("li", tag("div", _mark(item), heading(level, item.title), class_="row-title"), tag("div", *words))
    picture = tag("div", image(ctx, item.image), class_="row-picture")
    return tag("li", picture, tag("div", _mark(item), heading(level, item.title), *words), class_="row-pictured")


def _mark(item: Feature) -> Html | None:
    return tag("span", icon(item.icon), class_="icon-mark") if item.icon else None


def _link(item: Feature, ctx: RenderContext) -> Html | None:
    if item.link is None:
        return None
    return tag("p", tag("a", item.link.label, href=ctx.url(item.link.href)), class_="card-link")


def _card(item: Feature, ctx: RenderContext, level: int, *, style: str) -> Html:
    picture = image(ctx, item.image, class_="card-image") if item.image else None
    text = tag("p", item.text) if item.text else None
    return tag("li", picture, _mark(item), heading(level, item.title), text, _link(item, ctx), class_=style)


def _columns(count: int) -> int:
    return 3 if count in (3, 5, 6, 9, 11, 12) else min(count, 4) if count in (1, 2, 4, 7, 8) else 3


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    return {**section_props(section), "items": items_text(section, limit=9)}


COMPONENT = Component(
    name="Features",
    summary="grid of offers or strengths: heading, text, items [{title, text, icon, image, link}], layout "
    "cards|plain|rows",
    props=FeaturesProps,
    example={"heading": "Why us", "items": [{"title": "Slow dough", "text": "Forty hours of rest.", "icon": "clock"}]},
    render=render,
    words=("features", "feature", "services", "offers", "benefits", "highlights"),
    outline=_outline,
    outline_hint="items: title, text",
    nav_label="What we do",
    css="""
.icon-mark {
  display: inline-grid;
  place-items: center;
  width: 3rem;
  height: 3rem;
  margin-bottom: 1.1rem;
  border-radius: min(var(--radius), 1rem);
  background: var(--tint);
  color: var(--link);
}
.tone-tinted .icon-mark { background: var(--bg); }
.card .icon-mark { background: var(--mark); }
.tone-deep .icon-mark { background: var(--deep-line); color: var(--deep-accent); }
.feature-plain { display: flex; flex-direction: column; padding-right: 1rem; }
.feature-plain > p:not(.card-link) { margin-top: .45rem; color: var(--muted); }
.features .cards:has(.feature-plain) { row-gap: 2.75rem; }
.feature-plain .icon-mark { width: 2.6rem; height: 2.6rem; }
@media (max-width: 40rem) {
  .features .cards:has(.feature-plain) { row-gap: 1.75rem; }
  .feature-plain:has(> .icon-mark) { display: grid; grid-template-columns: 3.6rem 1fr; align-content: start; }
  .feature-plain > .icon-mark { grid-row: 1 / span 3; margin: 0; }
  .feature-plain > .icon-mark ~ p { grid-column: 2; }
}
.feature-rows { list-style: none; margin: 0; padding: 0; }
.feature-rows li { display: grid; gap: .9rem clamp(2rem, 5vw, 5rem); padding-block: clamp(1.6rem, 3vw, 2.4rem); }
.feature-rows li:not(.row-pictured) { border-top: 1px solid var(--line); }
.feature-rows li:last-child:not(.row-pictured) { border-bottom: 1px solid var(--line); }
.feature-rows p { color: var(--muted); max-width: 38rem; }
.row-pictured :is(h2, h3, h4) { font-size: calc(1.6rem * var(--heading-scale)); margin-bottom: .6rem; }
.row-picture img {
  width: 100%;
  aspect-ratio: 16 / 10;
  object-fit: cover;
  border-radius: calc(var(--radius) * 1.25);
}
.row-title .icon-mark { margin-bottom: .7rem; }
.row-title :is(h2, h3, h4) { font-size: calc(1.4rem * var(--heading-scale)); }
@media (min-width: 50rem) {
  .feature-rows li { grid-template-columns: 1fr 1.6fr; }
  .feature-rows .row-pictured { grid-template-columns: 1.15fr 1fr; align-items: center; }
  .feature-rows .row-pictured:nth-child(even) .row-picture { order: 1; }
  .feature-rows .row-pictured:nth-child(even) { grid-template-columns: 1fr 1.15fr; }
}
""",
)
