"""Text: paragraphs of their own inside a section."""

from __future__ import annotations

from sandbox.spec.catalog import Component, LongText, Props, RenderContext
from sandbox.spec.html import Html, paragraphs, tag


class TextProps(Props):
    """Props of Text."""

    text: LongText


def render(props: TextProps, ctx: RenderContext) -> Html:
    """Render paragraphs, lists and emphasis."""
    return tag("div", paragraphs(props.text), class_="prose", id=ctx.id)


COMPONENT = Component(
    name="Text",
    summary="paragraphs: text (as body of RichText)",
    props=TextProps,
    example={"text": "We bake at night."},
    render=render,
)
