"""Steps: how something goes, in order."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Label,
    OutlineSection,
    Props,
    RenderContext,
    SectionProps,
    Text,
    items_text,
    section_props,
)
from sandbox.spec.html import Html, below, heading, section, tag
from sandbox.spec.model import JsonObject


class Step(Props):
    """One step."""

    title: Label
    text: Text | None = None


class StepsProps(SectionProps):
    """Props of Steps."""

    items: Annotated[tuple[Step, ...], Field(min_length=1, max_length=12)]


def render(props: StepsProps, ctx: RenderContext) -> Html:
    """Render a numbered list."""
    level = below(ctx, props)
    steps = [tag("li", heading(level, step.title), tag("p", step.text) if step.text else None) for step in props.items]
    columns = len(steps) if len(steps) < 5 else 3
    return section(ctx, props, tag("ol", *steps, class_=f"steps steps-{columns}"), kind="process")


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    return {**section_props(section), "items": items_text(section, limit=8)}


COMPONENT = Component(
    name="Steps",
    summary="how it works, in order: heading, items [{title, text}]",
    props=StepsProps,
    example={"heading": "How it works", "items": [{"title": "Call us", "text": "Any day."}, {"title": "Collect"}]},
    render=render,
    words=("steps", "process", "how it works", "timeline"),
    outline=_outline,
    outline_hint="items: title, text, in order",
    nav_label="How it works",
    css="""
.steps {
  list-style: none;
  counter-reset: step;
  margin: 0;
  padding: 0;
  display: grid;
  gap: 2rem clamp(1.5rem, 4vw, 3rem);
}
.steps li { counter-increment: step; position: relative; padding-left: 4rem; min-height: 2.8rem; }
.steps li::before {
  content: counter(step);
  position: absolute;
  left: 0;
  top: 0;
  display: grid;
  place-items: center;
  width: 2.7rem;
  height: 2.7rem;
  border-radius: 50%;
  background: var(--fill);
  color: var(--on-fill);
  font-family: var(--font-headings);
  font-weight: 700;
  font-size: 1.1rem;
}
.tone-deep .steps li::before { background: var(--accent); color: var(--on-accent); }
.steps p { margin-top: .4rem; }
@media (min-width: 50rem) {
  .steps-2 { grid-template-columns: repeat(2, 1fr); }
  .steps-3 { grid-template-columns: repeat(3, 1fr); }
  .steps-4 { grid-template-columns: repeat(4, 1fr); }
  .steps-3 li, .steps-4 li { padding: 3.9rem 0 0; }
  .steps-3 li:not(:last-child, :nth-child(3n))::after, .steps-4 li:not(:last-child)::after {
    content: "";
    position: absolute;
    top: 1.35rem;
    left: 3.4rem;
    right: calc(-1 * clamp(1.5rem, 4vw, 3rem) + .7rem);
    height: 1px;
    background: var(--line);
  }
}
""",
)
