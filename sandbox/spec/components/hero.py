"""Hero: the opening of a page."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandbox.spec.component import (
    Business,
    Component,
    Label,
    Link,
    OutlineSection,
    Picture,
    RenderContext,
    SectionProps,
    Title,
    section_props,
)
from sandbox.spec.html import Html, tag
from sandbox.spec.model import JsonObject
from sandbox.spec.parts import buttons, image, intro


class HeroProps(SectionProps):
    """Props of Hero."""

    heading: Title
    actions: Annotated[tuple[Link, ...], Field(max_length=2)] = ()
    image: Picture | None = None
    layout: Literal["split", "centered"] = "split"
    notes: Annotated[tuple[Label, ...], Field(max_length=4)] = ()
    """Short facts below the buttons."""


def render(props: HeroProps, ctx: RenderContext) -> Html:
    """Render the opening; without an image it is never split."""
    notes = tag("ul", *(tag("li", note) for note in props.notes), class_="hero-notes") if props.notes else None
    words = tag("div", intro(ctx, props), buttons(ctx, props.actions), notes, class_="hero-words")
    picture = tag("div", image(ctx, props.image, eager=True), class_="hero-picture") if props.image else None
    layout = "centered" if props.layout == "split" and picture is None else props.layout
    classes = f"band hero hero-{layout} tone-{props.tone}"
    return tag(
        "section",
        tag("div", words, picture, class_="wrap"),
        id=ctx.id,
        class_=classes,
        aria_labelledby=f"{ctx.id}.title",
    )


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    notes = [str(item["title"])[:60] for item in section.items if item.get("title")]
    props: JsonObject = {"heading": business.name, **section_props(section), "layout": "centered"}
    if business.tagline and business.tagline != props.get("text"):
        props["eyebrow"] = business.tagline[:60]
    if section.image:
        props |= {"image": {"src": section.image, "alt": ""}, "layout": "split"}
    if business.contact_href:
        props["actions"] = [{"label": "Get in touch", "href": business.contact_href}]
    return props | ({"notes": notes[:4]} if notes else {})


COMPONENT = Component(
    name="Hero",
    summary="opening: eyebrow, heading, text, actions (max 2) [{label, href}], image {src, alt}, layout "
    "split|centered, notes [text]",
    props=HeroProps,
    example={
        "heading": "Bread worth getting up for",
        "text": "Baked every night in a wood oven.",
        "actions": [{"label": "See the menu", "href": "#menu"}],
    },
    render=render,
    words=("hero", "hero section", "hero banner", "banner", "opening", "masthead", "intro"),
    outline=_outline,
    outline_hint="items: up to 4 short facts as title",
    css="""
.hero h1, .hero h2 {
  font-size: clamp(2.35rem, 1.45rem + 3.7vw, 4.1rem);
  line-height: 1.06;
  letter-spacing: -.02em;
}
.hero .intro { margin-bottom: 0; max-width: 40rem; }
.hero .lead {
  font-size: clamp(1.1rem, 1rem + .5vw, 1.3rem);
  line-height: 1.55;
  margin-top: 1.25rem;
  max-width: 34rem;
}
.hero .actions { margin-top: 2rem; }
.hero-split .wrap { display: grid; gap: clamp(2.5rem, 1rem + 5vw, 5rem); align-items: center; }
.hero-picture img {
  width: 100%;
  aspect-ratio: 5 / 4.4;
  object-fit: cover;
  border-radius: calc(var(--radius) * 1.5);
}
.hero-centered { text-align: center; }
.hero-centered.tone-plain { background: linear-gradient(var(--tint), var(--bg)); }
.hero-centered .intro, .hero-centered .lead { margin-inline: auto; }
.hero-centered .actions, .hero-centered .hero-notes { justify-content: center; }
.hero-centered .hero-picture { margin-top: 3rem; }
.hero-centered .hero-picture img { aspect-ratio: 21 / 9; }
.hero-notes {
  display: flex;
  flex-wrap: wrap;
  gap: .4rem 1.6rem;
  list-style: none;
  margin: 1.9rem 0 0;
  padding: 0;
  color: var(--muted);
  font-size: .95rem;
}
.hero-notes li { display: flex; align-items: center; gap: .55rem; }
.hero-notes li::before {
  content: "";
  width: .5rem;
  height: .5rem;
  border-radius: 50%;
  background: var(--accent);
  flex: none;
}
@media (min-width: 56rem) {
  .hero-split .wrap { grid-template-columns: 1.08fr 1fr; }
}
""",
)
