"""Features: what is offered, as a grid of short pieces."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.component import (
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
from sandbox.spec.html import Html, tag
from sandbox.spec.icons import icon
from sandbox.spec.model import JsonObject
from sandbox.spec.parts import below, heading, image, section


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


def render(props: FeaturesProps, ctx: RenderContext) -> Html:
    """Render the pieces as cards."""
    cards = [_card(item, ctx, below(ctx, props)) for item in props.items]
    return section(ctx, props, tag("ul", *cards, class_=f"cards cards-{_columns(len(cards))}"), kind="features")


def _card(item: Feature, ctx: RenderContext, level: int) -> Html:
    picture = image(ctx, item.image, class_="card-image") if item.image else None
    mark = tag("span", icon(item.icon), class_="icon-mark") if item.icon else None
    link = tag("p", tag("a", item.link.label, href=ctx.url(item.link.href)), class_="card-link") if item.link else None
    text = tag("p", item.text) if item.text else None
    return tag("li", picture, mark, heading(level, item.title), text, link, class_="card")


def _columns(count: int) -> int:
    return 3 if count in (3, 5, 6, 9, 11, 12) else min(count, 4) if count in (1, 2, 4, 7, 8) else 3


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    return {**section_props(section), "items": items_text(section, limit=9)}


COMPONENT = Component(
    name="Features",
    summary="grid of offers or strengths: heading, text, items [{title, text, icon, image, link}]",
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
.tone-deep .icon-mark { background: var(--deep-line); color: var(--deep-accent); }
.card-link { margin-top: auto; padding-top: .9rem; font-weight: 600; }
""",
)
