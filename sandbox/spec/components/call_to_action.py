"""CallToAction: one invitation, in the site's own colour."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Link,
    OutlineSection,
    RenderContext,
    SectionProps,
    Title,
    section_props,
)
from sandbox.spec.html import Html, buttons, intro, tag
from sandbox.spec.model import JsonObject


class CallToActionProps(SectionProps):
    """Props of CallToAction."""

    heading: Title
    actions: Annotated[tuple[Link, ...], Field(max_length=2)] = ()


def render(props: CallToActionProps, ctx: RenderContext) -> Html:
    """Render a panel that stands out from the page."""
    panel = tag("div", intro(ctx, props), buttons(ctx, props.actions), class_="panel")
    return tag(
        "section",
        tag("div", panel, class_="wrap"),
        id=ctx.id,
        class_=f"band tone-{props.tone} call",
        aria_labelledby=f"{ctx.id}.title",
    )


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    label = next((item["title"][:60] for item in section.items if item.get("title")), "Get in touch")
    actions = [{"label": label, "href": business.contact_href}] if business.contact_href else []
    return {"heading": business.name, **section_props(section), "actions": actions}


COMPONENT = Component(
    name="CallToAction",
    summary="one invitation: heading, text, actions (max 2) [{label, href}]",
    props=CallToActionProps,
    example={"heading": "Come for breakfast", "actions": [{"label": "Book a table", "href": "#contact"}]},
    render=render,
    words=("call to action", "cta", "call-to-action", "call to action section"),
    outline=_outline,
    outline_hint="one item: title = button label",
    css="""
.panel {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  justify-content: space-between;
  gap: 1.75rem 3rem;
  padding: clamp(2rem, 1.2rem + 4vw, 4rem);
  border-radius: calc(var(--radius) * 1.75);
  background: linear-gradient(115deg, var(--fill), var(--fill-hover));
  color: var(--on-fill);
}
.panel .intro { margin: 0; max-width: 36rem; text-align: left; }
.panel .eyebrow, .panel .lead, .panel h1, .panel h2, .panel h3 { color: inherit; }
.panel .actions { margin: 0; }
.panel .button { background: var(--on-fill); color: var(--fill); border-color: var(--on-fill); }
.panel .button:hover { text-decoration: underline; }
.panel .button-quiet { background: transparent; color: var(--on-fill); }
.panel .button:focus-visible { outline-color: var(--on-fill); }
""",
)
