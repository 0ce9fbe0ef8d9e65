"""RichText: running text with paragraphs, lists and emphasis."""

from __future__ import annotations

from sandbox.spec.catalog import (
    Business,
    Component,
    LongText,
    OutlineSection,
    Picture,
    RenderContext,
    SectionProps,
    section_props,
)
from sandbox.spec.html import Html, image, intro, labelled, paragraphs, section, tag
from sandbox.spec.model import JsonObject


class RichTextProps(SectionProps):
    """Props of RichText."""

    body: LongText
    image: Picture | None = None


def render(props: RichTextProps, ctx: RenderContext) -> Html:
    """Render the text, beside its picture if it has one."""
    body = tag("div", paragraphs(props.body), class_="prose")
    if props.image is None:
        return section(ctx, props, body, kind="rich-text rich-text-plain")
    row = tag("div", tag("div", intro(ctx, props), body), tag("div", image(ctx, props.image), class_="prose-picture"))
    classes = f"band tone-{props.tone} rich-text rich-text-split"
    inner = tag("div", row, class_="wrap")
    return tag("section", inner, id=ctx.id, class_=classes, aria_labelledby=labelled(ctx, props))


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    head = {key: value for key, value in section_props(section).items() if key != "text"}
    extra = [": ".join(part for part in (item.get("title"), item.get("text")) if part) for item in section.items]
    blocks = [section.text or "", "\n".join(f"- {line}" for line in extra if line)]
    return {**head, "body": "\n\n".join(block for block in blocks if block)}


COMPONENT = Component(
    name="RichText",
    summary="running text: heading, body (blank line = paragraph, '- ' = list, **bold**, *emphasis*), image",
    props=RichTextProps,
    example={"heading": "Our story", "body": "We began in **1998**.\n\nThe oven is older."},
    render=render,
    words=("rich text", "text section", "about", "story", "about section", "text block"),
    outline=_outline,
    outline_hint="text = the paragraphs; items: list lines",
    nav_label="About",
    css="""
.prose { max-width: 44rem; font-size: 1.08rem; }
.prose > * + * { margin-top: 1.05rem; }
.prose p, .prose li { color: var(--ink); }
.prose ul { padding-left: 1.2rem; }
.prose li + li { margin-top: .35rem; }
.prose li::marker { color: var(--link); }
.rich-text .intro { margin: 0 0 1.6rem; text-align: left; }
.rich-text-split .wrap > div { display: grid; gap: 2.5rem; align-items: center; }
.prose-picture img {
  width: 100%;
  aspect-ratio: 4 / 3;
  object-fit: cover;
  border-radius: calc(var(--radius) * 1.25);
}
@media (min-width: 40rem) and (max-width: 56rem) { .prose-picture img { aspect-ratio: 16 / 9; } }
@media (min-width: 60rem) {
  .rich-text-plain > .wrap:has(.intro) { display: grid; grid-template-columns: 1fr 1.9fr; gap: 4rem; }
}
@media (min-width: 56rem) { .rich-text-split .wrap > div { grid-template-columns: 1.15fr 1fr; gap: 4.5rem; } }
""",
)
