"""Hero: the opening of a page."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandbox.spec.catalog import (
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
from sandbox.spec.components.drawings import ART_NAMES, ArtName, art
from sandbox.spec.html import Html, buttons, image, intro, tag
from sandbox.spec.model import JsonObject


class HeroProps(SectionProps):
    """Props of Hero."""

    heading: Title
    actions: Annotated[tuple[Link, ...], Field(max_length=2)] = ()
    image: Picture | None = None
    art: ArtName | None = None
    """A drawing in the site's colours, for where there is no image."""
    layout: Literal["split", "centered", "cover", "statement"] = "split"
    notes: Annotated[tuple[Label, ...], Field(max_length=4)] = ()
    """Short facts below the buttons."""


def render(props: HeroProps, ctx: RenderContext) -> Html:
    """Render the opening; without anything to stand beside the words it is never split, and never covered."""
    notes = tag("ul", *(tag("li", note) for note in props.notes), class_="hero-notes") if props.notes else None
    picture = _picture(props, ctx)
    layout = "centered" if picture is None and props.layout in ("split", "cover") else props.layout
    words: tuple[Html | None, ...] = (intro(ctx, props), buttons(ctx, props.actions), notes)
    if layout == "statement":
        head = props.model_copy(update={"text": None})
        text = tag("p", props.text, class_="lead") if props.text else None
        words = (intro(ctx, head), tag("div", text, *words[1:], class_="hero-rest"))
    tone = "deep" if layout == "cover" else props.tone
    return tag(
        "section",
        tag("div", tag("div", *words, class_="hero-words"), picture, class_="wrap"),
        id=ctx.id,
        class_=f"band hero hero-{layout} tone-{tone}",
        aria_labelledby=f"{ctx.id}.title",
    )


def _picture(props: HeroProps, ctx: RenderContext) -> Html | None:
    if aside := ctx.slot("aside", deeper=True):
        return tag("div", aside, class_="hero-aside")
    if props.image:
        return tag("div", image(ctx, props.image, eager=True), class_="hero-picture")
    return tag("div", art(props.art), class_="hero-picture hero-art") if props.art else None


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    notes = [str(item["title"])[:60] for item in section.items if item.get("title")]
    props: JsonObject = {"heading": business.name, **section_props(section), "layout": "split"}
    if business.tagline and business.tagline != props.get("text"):
        props["eyebrow"] = business.tagline[:60]
    props |= {"image": {"src": section.image, "alt": ""}} if section.image else {"art": _art_for(business)}
    if business.contact_href:
        props["actions"] = [{"label": "Get in touch", "href": business.contact_href}]
    return props | ({"notes": notes[:4]} if notes else {})


def _art_for(business: Business) -> str:
    """Choose a drawing by the name, so that two new sites seldom open alike and one always opens the same way."""
    return ART_NAMES[sum(business.name.encode()) % len(ART_NAMES)]


COMPONENT = Component(
    name="Hero",
    summary="opening: eyebrow, heading, text, actions (max 2) [{label, href}], image {src, alt}, art "
    f"{'|'.join(ART_NAMES)}, layout split|centered|cover|statement, notes [text]; slot aside",
    props=HeroProps,
    example={
        "heading": "Bread worth getting up for",
        "text": "Baked every night in a wood oven.",
        "actions": [{"label": "See the menu", "href": "#menu"}],
    },
    render=render,
    words=("hero", "hero section", "hero banner", "banner", "opening", "masthead", "intro"),
    slots=("aside",),
    outline=_outline,
    outline_hint="items: up to 4 short facts as title",
    css="""
.hero h1, .hero h2 {
  font-size: calc(clamp(2.35rem, 1.45rem + 3.7vw, 4.2rem) * var(--heading-scale));
  line-height: 1.05;
}
.hero .intro { margin: 0; max-width: 40rem; text-align: left; }
.hero .lead {
  font-size: clamp(1.1rem, 1rem + .5vw, 1.3rem);
  line-height: 1.55;
  margin-top: 1.25rem;
  max-width: 34rem;
}
.hero .actions { margin-top: 2rem; }
.hero-split .wrap { display: grid; gap: clamp(2.5rem, 1rem + 5vw, 5rem); align-items: center; }
.hero-split .hero-words, .hero-split .hero-aside { min-width: 0; }
.hero-picture img, .hero-art {
  width: 100%;
  aspect-ratio: 5 / 4.4;
  object-fit: cover;
  border-radius: calc(var(--radius) * 1.5);
}
.hero-art { overflow: hidden; }
.hero-split .hero-aside { width: 100%; }
.hero-centered { text-align: center; }
.hero-centered.tone-plain { background: linear-gradient(var(--tint), var(--bg)); }
.hero-centered .intro { margin-inline: auto; max-width: 48rem; text-align: center; }
.hero-centered .lead { margin-inline: auto; }
.hero-centered .actions, .hero-centered .hero-notes { justify-content: center; }
.hero-centered :is(.hero-picture, .hero-aside) { margin-top: clamp(2.5rem, 5vw, 4rem); }
.hero-centered :is(.hero-picture img, .hero-art) {
  aspect-ratio: 16 / 9;
  border: 1px solid var(--line);
  box-shadow: 0 24px 60px -24px rgb(0 0 0 / .25);
}
.hero-centered .hero-art { aspect-ratio: 21 / 9; }
.hero-centered .hero-aside { max-width: 52rem; margin-inline: auto; text-align: left; }
.hero-cover { position: relative; isolation: isolate; overflow: hidden; }
.hero-cover .wrap { min-height: clamp(24rem, 56vh, 38rem); display: flex; align-items: flex-end; }
.hero-cover .hero-picture { position: absolute; inset: 0; z-index: -2; }
.hero-cover :is(.hero-picture img, .hero-art, .art) { width: 100%; height: 100%; aspect-ratio: auto; border-radius: 0; }
.hero-cover .hero-picture img { position: absolute; inset: 0; }
.hero-cover::after {
  content: "";
  position: absolute;
  inset: 0;
  z-index: -1;
  background:
    linear-gradient(to top, var(--deep-veil), transparent 60%),
    linear-gradient(to right, var(--deep-mist) 58%, transparent 88%);
}
.hero-cover :is(.lead, .eyebrow, .hero-notes) { color: var(--on-deep); }
.hero-statement .hero-words { display: grid; gap: 1.5rem clamp(2rem, 5vw, 5rem); }
.hero-statement .intro { max-width: none; }
.hero-statement :is(h1, h2) {
  font-size: calc(clamp(2.6rem, 1.3rem + 5.4vw, 5.6rem) * var(--heading-scale));
  line-height: 1.02;
}
.hero-statement .lead { margin-top: 0; }
.hero-statement :is(.hero-picture, .hero-aside) { margin-top: clamp(2.5rem, 5vw, 4.5rem); }
.hero-statement :is(.hero-picture img, .hero-art) { aspect-ratio: 21 / 9; border-radius: var(--radius); }
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
  .hero-statement .hero-words { grid-template-columns: 1fr auto; }
  .hero-statement .intro { grid-column: 1 / -1; }
  .hero-statement .hero-rest { grid-column: 2; width: min(34rem, 46vw); }
}
@media (min-width: 40rem) and (max-width: 56rem) {
  .hero-split :is(.hero-picture img, .hero-art) { aspect-ratio: 16 / 9; }
}
@media (max-width: 64rem) {
  .hero-cover::after { background: linear-gradient(to top, var(--deep-veil) 50%, var(--deep-mist)); }
}
@media (max-width: 40rem) {
  .hero-cover .wrap { min-height: 30rem; }
  .hero-centered .hero-art, .hero-statement :is(.hero-picture img, .hero-art) { aspect-ratio: 4 / 3; }
}
""",
)
