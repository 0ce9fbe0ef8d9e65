"""Grid: children in columns."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import Component, Props, RenderContext
from sandbox.spec.html import Html, tag


class GridProps(Props):
    """Props of Grid."""

    columns: Annotated[int, Field(ge=1, le=4)] = 3


def render(props: GridProps, ctx: RenderContext) -> Html:
    """Render the children in columns that fold on a narrow screen."""
    return tag("div", ctx.children(deeper=False), class_=f"cards cards-{props.columns}")


COMPONENT = Component(
    name="Grid",
    summary="children in columns: columns 1-4",
    props=GridProps,
    example={"columns": 3},
    render=render,
    has_children=True,
)
