"""Stack: children below or beside each other."""

from __future__ import annotations

from typing import Literal

from sandbox.spec.catalog import Component, Props, RenderContext
from sandbox.spec.html import Html, tag


class StackProps(Props):
    """Props of Stack."""

    direction: Literal["vertical", "horizontal"] = "vertical"
    gap: Literal["sm", "md", "lg"] = "md"


def render(props: StackProps, ctx: RenderContext) -> Html:
    """Render the children in a row or a column."""
    return tag("div", ctx.children(deeper=False), class_=f"stack stack-{props.direction} gap-{props.gap}")


COMPONENT = Component(
    name="Stack",
    summary="children in a column or row: direction vertical|horizontal, gap sm|md|lg",
    props=StackProps,
    example={"direction": "horizontal", "gap": "md"},
    render=render,
    has_children=True,
    css="""
.stack { display: flex; flex-wrap: wrap; }
.stack-vertical { flex-direction: column; }
.stack-horizontal { align-items: center; }
.gap-sm { gap: .6rem; }
.gap-md { gap: 1.25rem; }
.gap-lg { gap: 2.5rem; }
""",
)
