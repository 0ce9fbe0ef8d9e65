"""Words: headings, paragraphs, links, buttons, cards and lines of code."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sites.spec.catalog import (
    Business,
    Component,
    Label,
    Link,
    LongText,
    OutlineSection,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    Title,
    section_props,
)
from sites.spec.html import Html, anchor, band, heading, image, intro, paragraphs, section, tag
from sites.spec.model import JsonObject


class HeadingProps(Props):
    """A heading of its own inside a section, of the level that its place has."""

    text: Title


@Component("Heading", summary="a heading: text", example={"text": "Also good"})
def _heading(props: HeadingProps, ctx: RenderContext) -> Html:
    return heading(ctx.level, props.text, id=ctx.id)


class TextProps(Props):
    """Paragraphs, lists and emphasis inside a section."""

    text: LongText


@Component("Text", summary="paragraphs: text (as body of RichText)", example={"text": "We bake at night."})
def _text(props: TextProps, ctx: RenderContext) -> Html:
    return tag("div", paragraphs(props.text), class_="prose", id=ctx.id)


@Component("Link", summary="a link: label, href", example={"label": "All breads", "href": "#menu"})
def _link(props: Link, ctx: RenderContext) -> Html:
    return tag("p", anchor(ctx, props), id=ctx.id)


class ButtonProps(Link):
    """A link that looks like a button."""

    variant: Literal["filled", "quiet"] = "filled"


@Component(
    "Button",
    summary="a button: label, href, variant filled|quiet",
    example={"label": "Order", "href": "#contact"},
    words=("button",),
)
def _button(props: ButtonProps, ctx: RenderContext) -> Html:
    style = "button" if props.variant == "filled" else "button button-quiet"
    return tag("p", anchor(ctx, props, class_=style), class_="actions", id=ctx.id)


class CardProps(Props):
    """A frame around a few words and children."""

    heading: Title | None = None
    text: Text | None = None
    image: Picture | None = None
    link: Link | None = None


@Component(
    "Card",
    summary="frame: heading, text, image {src, alt}, link {label, href}; children",
    example={"heading": "Rye", "text": "Dense and sour."},
    has_children=True,
    words=("card",),
)
def _card(props: CardProps, ctx: RenderContext) -> Html:
    picture = image(ctx, props.image, class_="card-image") if props.image else None
    title = heading(ctx.level, props.heading) if props.heading else None
    text = tag("p", props.text) if props.text else None
    children = ctx.children(deeper=props.heading is not None)
    link = tag("p", anchor(ctx, props.link), class_="card-link") if props.link else None
    return tag("div", picture, title, text, children, link, class_="card", id=ctx.id)


class RichTextProps(SectionProps):
    """Running text with paragraphs, lists and emphasis, beside its picture if it has one."""

    body: LongText
    image: Picture | None = None


def _outline_rich_text(section: OutlineSection, business: Business) -> JsonObject:
    head = {key: value for key, value in section_props(section).items() if key != "text"}
    extra = [": ".join(part for part in (item.get("title"), item.get("text")) if part) for item in section.items]
    blocks = [section.text or "", "\n".join(f"- {line}" for line in extra if line)]
    return {**head, "body": "\n\n".join(block for block in blocks if block)}


@Component(
    "RichText",
    summary="running text: heading, body (blank line = paragraph, '- ' = list, **bold**, *emphasis*), image",
    example={"heading": "Our story", "body": "We began in **1998**.\n\nThe oven is older."},
    words=("rich text", "text section", "about", "story", "about section", "text block"),
    outline=_outline_rich_text,
    outline_hint="text = the paragraphs; items: list lines",
    nav_label="About",
)
def _rich_text(props: RichTextProps, ctx: RenderContext) -> Html:
    body = tag("div", paragraphs(props.body), class_="prose")
    if props.image is None:
        return section(ctx, props, body, kind="rich-text rich-text-plain")
    row = tag("div", tag("div", intro(ctx, props), body), tag("div", image(ctx, props.image), class_="prose-picture"))
    return band(ctx, props, row, classes=f"tone-{props.tone} rich-text rich-text-split")


class CodeProps(Props):
    """Lines to copy as they are; they scroll sideways, also by keyboard."""

    code: Annotated[str, Field(min_length=1, max_length=4000)]
    title: Label | None = None
    """A file name, or the program that the lines are typed into."""


@Component(
    "Code",
    summary="lines of code: code, title; stands in a Section, or in the slot aside of a Hero",
    example={"code": "pip install loaf\nloaf bake --hours 40", "title": "Terminal"},
    words=("code", "code block", "code sample", "snippet"),
)
def _code(props: CodeProps, ctx: RenderContext) -> Html:
    title = tag("p", props.title, class_="code-title") if props.title else None
    lines = tag("pre", tag("code", props.code), role="group", tabindex=0, aria_label=props.title or "Code")
    return tag("div", title, lines, class_="code", id=ctx.id)
