"""Button: a link that looks like a button."""

from __future__ import annotations

from typing import Literal

from sandbox.spec.catalog import Component, Link, RenderContext
from sandbox.spec.html import Html, tag


class ButtonProps(Link):
    """Props of Button."""

    variant: Literal["filled", "quiet"] = "filled"


def render(props: ButtonProps, ctx: RenderContext) -> Html:
    """Render the link."""
    style = "button" if props.variant == "filled" else "button button-quiet"
    return tag("p", tag("a", props.label, class_=style, href=ctx.url(props.href)), class_="actions", id=ctx.id)


COMPONENT = Component(
    name="Button",
    summary="a button: label, href, variant filled|quiet",
    props=ButtonProps,
    example={"label": "Order", "href": "#contact"},
    render=render,
    words=("button",),
)
