"""Image: one picture with a caption."""

from __future__ import annotations

from typing import Literal

from sandbox.spec.catalog import Component, Picture, RenderContext, Title
from sandbox.spec.html import Html, image, tag


class ImageProps(Picture):
    """Props of Image."""

    caption: Title | None = None
    width: Literal["text", "wide", "full"] = "wide"


def render(props: ImageProps, ctx: RenderContext) -> Html:
    """Render a figure."""
    caption = tag("figcaption", props.caption) if props.caption else None
    return tag("figure", image(ctx, props), caption, id=ctx.id, class_=f"figure figure-{props.width}")


COMPONENT = Component(
    name="Image",
    summary="one picture: src, alt, caption, width text|wide|full",
    props=ImageProps,
    example={"src": "assets/oven.svg", "alt": "The wood oven", "caption": "Built in 1911"},
    render=render,
    words=("image", "picture", "photo"),
    css="""
.figure { margin: 0 auto; width: min(100% - 2 * var(--gutter), 72rem); padding-block: 1.5rem; }
.figure img { width: 100%; border-radius: var(--radius); }
.figure figcaption { margin-top: .6rem; font-size: .93rem; color: var(--muted); }
.figure-text { max-width: 44rem; }
.figure-full { width: 100%; max-width: none; padding: 0; }
.figure-full img { border-radius: 0; max-height: 34rem; object-fit: cover; }
.band .figure { width: 100%; }
""",
)
