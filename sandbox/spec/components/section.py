"""Section: a free section of the page, for what no other component says."""

from __future__ import annotations

from sandbox.spec.catalog import Component, RenderContext, SectionProps
from sandbox.spec.html import Html, section, tag


class SectionElementProps(SectionProps):
    """Props of Section."""


def render(props: SectionElementProps, ctx: RenderContext) -> Html:
    """Render the children below the heading, and the slot `aside` beside them."""
    deeper = props.heading is not None
    body = tag("div", ctx.children(deeper=deeper), class_="flow")
    aside = ctx.slot("aside", deeper=deeper)
    if aside:
        body = tag("div", body, tag("div", aside, class_="flow"), class_="with-aside")
    return section(ctx, props, body, kind="free")


COMPONENT = Component(
    name="Section",
    summary="free section with children: eyebrow, heading, text, tone; slot aside",
    props=SectionElementProps,
    example={"heading": "Also"},
    render=render,
    has_children=True,
    slots=("aside",),
    words=("section",),
    css="""
.flow { min-width: 0; }
.flow > * + * { margin-top: 1.25rem; }
.with-aside { display: grid; gap: 2.5rem; align-items: start; }
@media (min-width: 56rem) { .with-aside { grid-template-columns: 1.6fr 1fr; gap: 4rem; } }
""",
)
