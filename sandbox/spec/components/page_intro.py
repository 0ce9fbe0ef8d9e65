"""PageIntro: the opening of a page that is not the front page."""

from __future__ import annotations

from sandbox.spec.catalog import (
    Business,
    Component,
    OutlineSection,
    Picture,
    RenderContext,
    SectionProps,
    Title,
    section_props,
)
from sandbox.spec.html import Html, image, intro, tag
from sandbox.spec.model import JsonObject


class PageIntroProps(SectionProps):
    """Props of PageIntro."""

    heading: Title
    image: Picture | None = None


def render(props: PageIntroProps, ctx: RenderContext) -> Html:
    """Render a heading with its text, beside a picture if there is one."""
    picture = tag("div", image(ctx, props.image, eager=True), class_="page-intro-picture") if props.image else None
    return tag(
        "section",
        tag("div", intro(ctx, props), picture, class_="wrap"),
        id=ctx.id,
        class_=f"band page-intro tone-{props.tone}",
        aria_labelledby=f"{ctx.id}.title",
    )


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    image_props = {"image": {"src": section.image, "alt": ""}} if section.image else {}
    return {"heading": business.name, **section_props(section), **image_props}


COMPONENT = Component(
    name="PageIntro",
    summary="opening of a further page: eyebrow, heading, text, image {src, alt}",
    props=PageIntroProps,
    example={"heading": "Our classes", "text": "Small groups, every weekend."},
    render=render,
    words=("page intro", "page header", "page introduction"),
    outline=_outline,
    outline_hint="opening of a page other than the first",
    css="""
.page-intro { padding-block: calc(clamp(2.75rem, 2rem + 3vw, 4.5rem) * var(--space)); }
.page-intro .wrap { display: grid; gap: 2rem; align-items: center; }
.page-intro .intro { margin: 0; text-align: left; }
.page-intro h1, .page-intro h2 { font-size: calc(clamp(2.1rem, 1.5rem + 2.4vw, 3.3rem) * var(--heading-scale)); }
.page-intro .lead { font-size: 1.2rem; line-height: 1.55; }
.page-intro-picture img {
  width: 100%;
  aspect-ratio: 16 / 10;
  object-fit: cover;
  border-radius: calc(var(--radius) * 1.25);
}
@media (min-width: 56rem) { .page-intro .wrap:has(img) { grid-template-columns: 1.3fr 1fr; gap: 4rem; } }
""",
)
