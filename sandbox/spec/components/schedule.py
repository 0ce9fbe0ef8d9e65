"""Schedule: what happens when, for an event, a class plan or opening days."""

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
    Title,
    section_props,
)
from sandbox.spec.html import Html, below, heading, section, tag
from sandbox.spec.model import JsonObject


class Slot(Props):
    """One entry."""

    time: Annotated[str, Field(min_length=1, max_length=30)]
    title: Title
    text: Text | None = None
    place: Label | None = None
    tag: Annotated[str, Field(min_length=1, max_length=24)] | None = None


class ScheduleProps(SectionProps):
    """Props of Schedule."""

    items: Annotated[tuple[Slot, ...], Field(min_length=1, max_length=40)]
    note: Text | None = None


def render(props: ScheduleProps, ctx: RenderContext) -> Html:
    """Render the entries in order, times in a column of their own."""
    rows = tag("ol", *(_row(item, below(ctx, props)) for item in props.items), class_="schedule")
    note = tag("p", props.note, class_="small") if props.note else None
    return section(ctx, props, rows, note, kind="agenda")


def _row(item: Slot, level: int) -> Html:
    mark = tag("span", item.tag, class_="tag") if item.tag else None
    words = tag("div", heading(level, item.title), tag("p", item.text) if item.text else None)
    side = tag("p", item.place, mark, class_="schedule-place") if item.place or mark else None
    return tag("li", tag("p", item.time, class_="schedule-time"), words, side)


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    rows = [
        {"time": item["detail"][:30], "title": item["title"]} | ({"text": item["text"]} if item.get("text") else {})
        for item in section.items
        if item.get("title") and item.get("detail")
    ]
    return {**section_props(section), "items": rows[:24]}


COMPONENT = Component(
    name="Schedule",
    summary="programme by time: heading, items [{time, title, text, place, tag}], note",
    props=ScheduleProps,
    example={"heading": "Saturday", "items": [{"time": "9:00", "title": "Coffee and flour", "place": "Shop"}]},
    render=render,
    words=("schedule", "agenda", "programme", "program", "timetable"),
    outline=_outline,
    outline_hint="items: title, detail = time, text; only times that the request gives",
    nav_label="Schedule",
    css="""
.schedule { list-style: none; margin: 0; padding: 0; border-top: 1px solid var(--line); }
.schedule li {
  display: grid;
  gap: .3rem 2rem;
  padding-block: 1.35rem;
  border-bottom: 1px solid var(--line);
}
.schedule p { color: var(--muted); }
.schedule .schedule-time {
  font-family: var(--font-headings);
  font-weight: 700;
  font-size: calc(1.05rem * var(--heading-scale));
  font-variant-numeric: tabular-nums;
  color: var(--link);
}
.schedule :is(h2, h3, h4) + p { margin-top: .3rem; max-width: 42rem; }
.schedule-place { display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .7rem; font-size: .95rem; }
@media (min-width: 50rem) {
  .schedule li { grid-template-columns: 9rem 1fr 13rem; align-items: baseline; }
  .schedule-place { justify-content: flex-end; text-align: right; }
}
""",
)
