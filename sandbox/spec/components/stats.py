"""Stats: a few numbers."""

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
    section_props,
)
from sandbox.spec.html import Html, section, tag
from sandbox.spec.model import JsonObject


class Stat(Props):
    """One number."""

    value: Annotated[str, Field(min_length=1, max_length=20)]
    label: Label


class StatsProps(SectionProps):
    """Props of Stats."""

    items: Annotated[tuple[Stat, ...], Field(min_length=1, max_length=6)]


def render(props: StatsProps, ctx: RenderContext) -> Html:
    """Render each number above what it counts, read in the other order by a screen reader."""
    pairs = [tag("div", tag("dt", item.label), tag("dd", item.value)) for item in props.items]
    return section(ctx, props, tag("dl", *pairs, class_="stat-row"), kind="stats")


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    pairs = [
        {"value": (item.get("detail") or item.get("text") or "")[:20], "label": item["title"][:60]}
        for item in section.items
        if item.get("title") and (item.get("detail") or item.get("text"))
    ]
    return {**section_props(section), "items": pairs[:4]}


COMPONENT = Component(
    name="Stats",
    summary="numbers: heading, items [{value, label}]",
    props=StatsProps,
    example={"items": [{"value": "40 h", "label": "of rest for every dough"}]},
    render=render,
    words=("stats", "statistics", "numbers", "figures", "key figures"),
    outline=_outline,
    outline_hint="items: title = what is counted, detail = the number; only numbers that the request gives",
    css="""
.stats { padding-block: calc(clamp(2.5rem, 2rem + 2.5vw, 4.25rem) * var(--space)); }
.stat-row {
  display: grid;
  grid-template-columns: repeat(auto-fit, minmax(min(9rem, 100%), 1fr));
  gap: 2rem;
  margin: 0;
}
.stat-row > div {
  display: flex;
  flex-direction: column-reverse;
  justify-content: flex-end;
  padding-top: 1.1rem;
  border-top: 2px solid var(--accent);
  text-align: var(--intro-align);
}
.stat-row dd {
  margin: 0;
  font-family: var(--font-headings);
  font-size: calc(clamp(1.8rem, 1.4rem + 1.8vw, 2.9rem) * var(--heading-scale));
  font-weight: var(--heading-weight);
  line-height: 1.1;
  letter-spacing: var(--heading-tracking);
  color: var(--ink);
}
.stat-row dt { margin-top: .35rem; color: var(--muted); font-size: .97rem; line-height: 1.4; }
""",
)
