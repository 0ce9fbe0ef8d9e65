"""Heading: a heading of its own inside a section."""

from __future__ import annotations

from sandbox.spec.catalog import Component, Props, RenderContext, Title
from sandbox.spec.html import Html, heading


class HeadingProps(Props):
    """Props of Heading."""

    text: Title


def render(props: HeadingProps, ctx: RenderContext) -> Html:
    """Render a heading of the level that its place has."""
    return heading(ctx.level, props.text, id=ctx.id)


COMPONENT = Component(
    name="Heading",
    summary="a heading: text",
    props=HeadingProps,
    example={"text": "Also good"},
    render=render,
)
