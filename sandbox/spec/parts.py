"""Pieces of markup that several components share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sandbox.spec.component import Link, Picture, RenderContext, SectionProps
from sandbox.spec.html import EMPTY, Html, join, tag

_BLANK_LINES: Final = re.compile(r"\n[ \t]*\n")
_EMPHASIS: Final = re.compile(r"\*\*([^*\n]{1,400})\*\*|\*([^*\n]{1,400})\*")


def heading(level: int, text: str, *, id: str | None = None, class_: str | None = None) -> Html:
    """Return a heading of a level that HTML has."""
    return tag(f"h{min(max(level, 1), 6)}", text, id=id, class_=class_)


def section(ctx: RenderContext, props: SectionProps, *body: str | None, kind: str) -> Html:
    """Return a section of the page: its landmark, its width, its heading, then the body."""
    inner = tag("div", intro(ctx, props), *body, class_="wrap")
    classes = f"band tone-{props.tone} {kind}"
    return tag("section", inner, id=ctx.id, class_=classes, aria_labelledby=labelled(ctx, props))


def labelled(ctx: RenderContext, props: SectionProps) -> str | None:
    """Return the id of a section's heading, which names the section, or None when it has none."""
    return f"{ctx.id}.title" if props.heading else None


def intro(ctx: RenderContext, props: SectionProps) -> Html:
    """Return a section's eyebrow, heading and text, or nothing when it has none."""
    if not (props.eyebrow or props.heading or props.text):
        return EMPTY
    return tag(
        "div",
        tag("p", props.eyebrow, class_="eyebrow") if props.eyebrow else None,
        heading(ctx.level, props.heading, id=f"{ctx.id}.title") if props.heading else None,
        tag("p", props.text, class_="lead") if props.text else None,
        class_="intro",
    )


def below(ctx: RenderContext, props: SectionProps) -> int:
    """Return the level of the headings inside a section."""
    return ctx.level + 1 if props.heading else ctx.level


def buttons(ctx: RenderContext, actions: Sequence[Link]) -> Html:
    """Return a row of links that look like buttons: the first one filled."""
    if not actions:
        return EMPTY
    styles = ("button", *["button button-quiet"] * len(actions))
    links = [
        tag("a", link.label, class_=style, href=ctx.url(link.href))
        for style, link in zip(styles, actions, strict=False)
    ]
    return tag("p", *links, class_="actions")


def image(ctx: RenderContext, picture: Picture, *, class_: str | None = None, eager: bool = False) -> Html:
    """Return an image; only what stands at the top of a page is loaded eagerly."""
    loading = None if eager else "lazy"
    return tag("img", src=ctx.url(picture.src), alt=picture.alt, class_=class_, loading=loading, decoding="async")


def paragraphs(text: str) -> Html:
    """Return plain text with blank lines as paragraphs, `- ` lines as lists, `**bold**` and `*emphasis*`."""
    return join(*(_block(block) for block in _BLANK_LINES.split(text) if block.strip()))


def _block(block: str) -> Html:
    lines = [line.strip() for line in block.strip().split("\n")]
    if all(line.startswith("- ") for line in lines):
        return tag("ul", *(tag("li", _inline(line[2:])) for line in lines))
    return tag("p", _inline(" ".join(lines)))


def _inline(text: str) -> Html:
    pieces: list[str] = []
    end = 0
    for match in _EMPHASIS.finditer(text):
        pieces += [text[end : match.start()], tag("strong", match[1]) if match[1] else tag("em", match[2])]
        end = match.end()
    return join(*pieces, text[end:])
