"""Card: a frame around a few words and children."""

from __future__ import annotations

from sandbox.spec.catalog import Component, Link, Picture, Props, RenderContext, Text, Title
from sandbox.spec.html import Html, heading, image, tag


class CardProps(Props):
    """Props of Card."""

    heading: Title | None = None
    text: Text | None = None
    image: Picture | None = None
    link: Link | None = None


def render(props: CardProps, ctx: RenderContext) -> Html:
    """Render a card."""
    picture = image(ctx, props.image, class_="card-image") if props.image else None
    title = heading(ctx.level, props.heading) if props.heading else None
    link = (
        tag("p", tag("a", props.link.label, href=ctx.url(props.link.href)), class_="card-link") if props.link else None
    )
    children = ctx.children(deeper=props.heading is not None)
    text = tag("p", props.text) if props.text else None
    return tag("div", picture, title, text, children, link, class_="card", id=ctx.id)


COMPONENT = Component(
    name="Card",
    summary="frame: heading, text, image {src, alt}, link {label, href}; children",
    props=CardProps,
    example={"heading": "Rye", "text": "Dense and sour."},
    render=render,
    has_children=True,
    words=("card",),
)
