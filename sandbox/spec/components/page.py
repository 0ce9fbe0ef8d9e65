"""Page: the root of every page; its title, its description and the site's look."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import Component, Props, RenderContext
from sandbox.spec.html import Html
from sandbox.spec.theme import Theme


class PageProps(Props):
    """Props of Page."""

    title: Annotated[str, Field(min_length=1, max_length=120)]
    description: Annotated[str, Field(max_length=300)] | None = None
    theme: Theme | None = None
    """Null means the theme of index.html."""
    lang: Annotated[str, Field(pattern=r"^[a-zA-Z]{2,3}(-[a-zA-Z0-9]{2,8})?$")] = "en"


def render(props: PageProps, ctx: RenderContext) -> Html:
    """Render what stands between header and footer."""
    return ctx.children(deeper=False)


COMPONENT = Component(
    name="Page",
    summary="root of every page; theme {preset, primary, accent, background, font, headings, radius "
    "none|small|medium|large, spacing compact|regular|airy, cards outlined|raised|flat|open, align left|center, "
    "mode auto|light|dark}; theme null = index.html's",
    props=PageProps,
    example={"title": "Hill Bakery", "description": "Bread from a wood oven.", "theme": {"preset": "warm"}},
    render=render,
    place="root",
    has_children=True,
)
