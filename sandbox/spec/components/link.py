"""Link: a link on a line of its own."""

from __future__ import annotations

from sandbox.spec.catalog import Component, Link, RenderContext
from sandbox.spec.html import Html, tag


class LinkProps(Link):
    """Props of Link."""


def render(props: LinkProps, ctx: RenderContext) -> Html:
    """Render the link."""
    return tag("p", tag("a", props.label, href=ctx.url(props.href)), id=ctx.id)


COMPONENT = Component(
    name="Link",
    summary="a link: label, href",
    props=LinkProps,
    example={"label": "All breads", "href": "#menu"},
    render=render,
)
