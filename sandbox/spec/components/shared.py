"""Shared: an element of index.html, shown on another page too, so that navigation and footer have one source."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import Component, Props, RenderContext
from sandbox.spec.html import Html


class SharedProps(Props):
    """Props of Shared."""

    of: Annotated[str, Field(min_length=1, max_length=64)]
    """Key of an element directly below the root of index.html."""


def render(props: SharedProps, ctx: RenderContext) -> Html:
    """Render nothing: the element that it stands for has taken its place before."""
    return Html("")


COMPONENT = Component(
    name="Shared",
    summary="on other pages: shows the element `of` of index.html (header, footer); edit that one instead",
    props=SharedProps,
    example={"of": "header"},
    render=render,
)
