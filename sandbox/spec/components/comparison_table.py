"""ComparisonTable: choices side by side."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

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
from sandbox.spec.components.drawings import icon
from sandbox.spec.html import Html, section, tag
from sandbox.spec.model import JsonObject

Cell = bool | Annotated[str, Field(max_length=120)]


class Row(Props):
    """One row: a name and a value for each column."""

    label: Label
    values: Annotated[tuple[Cell, ...], Field(min_length=1, max_length=6)]


class ComparisonTableProps(SectionProps):
    """Props of ComparisonTable."""

    columns: Annotated[tuple[Label, ...], Field(min_length=1, max_length=6)]
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=30)]
    highlight: Annotated[int, Field(ge=1, le=6)] | None = None
    """The recommended column, counted from 1."""

    @model_validator(mode="after")
    def _check_width(self) -> Self:
        if any(len(row.values) != len(self.columns) for row in self.rows):
            raise ValueError("every row needs one value for each column")
        return self


def render(props: ComparisonTableProps, ctx: RenderContext) -> Html:
    """Render a table that scrolls sideways on a narrow screen."""
    marked = (props.highlight or 0) - 1
    names = [tag("th", name, scope="col", class_=_mark(place, marked)) for place, name in enumerate(props.columns)]
    head = tag("thead", tag("tr", tag("td", tag("span", "Compared", class_="visually-hidden")), *names))
    body = tag("tbody", *(_row(row, marked) for row in props.rows))
    label = props.heading or "Comparison"
    table = tag("table", tag("caption", label, class_="visually-hidden"), head, body)
    frame = tag("div", table, class_="table-frame", role="group", aria_label=label, tabindex="0")
    return section(ctx, props, frame, kind="comparison")


def _row(row: Row, marked: int) -> Html:
    cells = [tag("td", _cell(value), class_=_mark(place, marked)) for place, value in enumerate(row.values)]
    return tag("tr", tag("th", row.label, scope="row"), *cells)


def _cell(value: bool | str) -> Html | str:
    if isinstance(value, str):
        return value
    if value:
        return tag("span", icon("check"), tag("span", "Yes", class_="visually-hidden"), class_="yes")
    return tag("span", "No", class_="no")


def _mark(place: int, marked: int) -> str | None:
    return "marked" if place == marked else None


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    """Read items as rows: `detail` and `text` hold the values, split at `|`; the first item names the columns."""
    lines = [
        (item.get("title") or "", (item.get("detail") or item.get("text") or "").split("|")) for item in section.items
    ]
    if not lines:
        return section_props(section)
    columns = [name.strip()[:60] for name in lines[0][1]]
    rows = [
        {"label": label[:60], "values": [_value(part) for part in (values + [""] * len(columns))[: len(columns)]]}
        for label, values in lines[1:]
        if label
    ]
    return {**section_props(section), "columns": columns, "rows": rows}


def _value(text: str) -> bool | str:
    return {"yes": True, "no": False}.get(text.strip().lower(), text.strip()[:120])


COMPONENT = Component(
    name="ComparisonTable",
    summary="choices side by side: heading, columns [name], rows [{label, values [text or true/false]}], "
    "highlight (column from 1)",
    props=ComparisonTableProps,
    example={
        "heading": "Compare",
        "columns": ["Basic", "Pro"],
        "rows": [{"label": "Support", "values": ["Mail", True]}],
        "highlight": 2,
    },
    render=render,
    words=("comparison table", "comparison", "compare table", "table"),
    outline=_outline,
    outline_hint="first item: detail = column names split by |; then one item per row: title, detail = values "
    "split by |",
    nav_label="Compare",
    css="""
.table-frame {
  position: relative;
  overflow-x: auto;
  border: 1px solid var(--line);
  border-radius: var(--radius);
  background: var(--surface);
}
table { width: 100%; border-collapse: collapse; font-size: .98rem; overflow-wrap: break-word; }
th, td {
  padding: .95rem 1.25rem;
  text-align: left;
  vertical-align: top;
  border-bottom: 1px solid var(--line);
  min-width: 8rem;
}
tbody th { position: sticky; left: 0; background: var(--surface); }
tbody tr:last-child > * { border-bottom: 0; }
thead th { font-family: var(--font-headings); font-size: 1.08rem; }
tbody th { font-weight: 600; }
th.marked, td.marked { background: var(--tint); }
.tone-deep .marked { background: var(--deep); }
.yes { color: var(--link); }
.no { color: var(--muted); }
@media (max-width: 40rem) {
  th, td { min-width: 6.4rem; padding: .8rem .9rem; }
  tbody th { max-width: 9rem; border-right: 1px solid var(--line); }
}
""",
)
