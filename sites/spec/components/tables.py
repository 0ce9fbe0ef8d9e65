"""Tables: choices side by side, and what a list of many columns holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from sites.spec.catalog import (
    Business,
    Component,
    Label,
    Link,
    OutlineSection,
    Props,
    RenderContext,
    SectionProps,
    section_props,
)
from sites.spec.html import Html, anchor, icon, paragraph, section, tag
from sites.spec.live import sort_keys
from sites.spec.model import JsonObject

Cell = bool | Annotated[str, Field(max_length=120)]


class Row(Props):
    label: Label
    values: Annotated[tuple[Cell, ...], Field(min_length=1, max_length=6)]


class ComparisonTableProps(SectionProps):
    """Choices side by side, in a table that scrolls sideways on a narrow screen."""

    columns: Annotated[tuple[Label, ...], Field(min_length=1, max_length=6)]
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=30)]
    highlight: Annotated[int, Field(ge=1, le=6)] | None = None
    """The recommended column, counted from 1."""
    corner: Label | None = None
    """The name of the first column."""
    sortable: bool | Literal["all"] = False
    """Whether visitors sort the rows by the columns: by `all`, or only by those of one kind of value."""
    link: Link | None = None
    """Where the table leads on, in small print below it."""

    @model_validator(mode="after")
    def _check_width(self) -> Self:
        if any(len(row.values) != len(self.columns) for row in self.rows):
            raise ValueError("every row needs one value for each column")
        return self

    def sort_keys(self) -> list[tuple[str, ...] | None]:
        """Return by what each column is sorted; None for one that is not."""
        columns = zip(*(row.values for row in self.rows), strict=True)
        return [sort_keys(cells, mixed=self.sortable == "all") if self.sortable else None for cells in columns]


def unsorted_columns(props: JsonObject) -> list[str]:
    """Return the names of columns by which a sortable table cannot be sorted; props may be expressions."""
    try:
        table = ComparisonTableProps.model_validate(props)
    except ValidationError:
        return []
    return [name for name, keys in zip(table.columns, table.sort_keys(), strict=True) if table.sortable and not keys]


def _table_row(row: Row, ctx: RenderContext, styles: list[str | None], keys: Sequence[str | None]) -> Html:
    cells = [
        tag("td", _cell(value, ctx), class_=style, data_key=key)
        for value, style, key in zip(row.values, styles, keys, strict=True)
    ]
    return tag("tr", tag("th", row.label, scope="row"), *cells)


_OF_PHONE, _LETTERS = 3, 19
"""So many columns have room on a phone, if the longest words of all, with the labels', have so many letters."""


def _cell(value: bool | str, ctx: RenderContext) -> Html | str:
    if isinstance(value, str):
        return value
    if value:
        return tag("span", icon("check"), tag("span", ctx.say("Yes"), class_="visually-hidden"), class_="yes")
    return tag("span", ctx.say("No"), class_="no")


def _outline_table(section: OutlineSection, business: Business) -> JsonObject:
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


@Component(
    "ComparisonTable",
    summary="choices side by side: columns [name], rows [{label, values [text or true/false]}], "
    "highlight (column from 1), corner (name of the first column), sortable all (by visitors), "
    "link (below)",
    example={
        "heading": "Compare",
        "columns": ["Basic", "Pro"],
        "rows": [{"label": "Support", "values": ["Mail", True]}],
        "highlight": 2,
    },
    words=("comparison table", "comparison", "compare table", "table"),
    outline=_outline_table,
    outline_hint="first item: detail = column names split by |; then one item per row: title, detail = values "
    "split by |",
    nav_label="Compare",
)
def _comparison_table(props: ComparisonTableProps, ctx: RenderContext) -> Html:
    styles = ["marked" if place == props.highlight else None for place in range(1, len(props.columns) + 1)]
    columns = props.sort_keys()
    names = [
        tag("th", name, scope="col", class_=style, data_sort=keys is not None)
        for name, style, keys in zip(props.columns, styles, columns, strict=True)
    ]
    corner = tag("td", tag("span", ctx.say("Compared"), class_="visually-hidden"))
    if props.corner:
        corner = tag("th", props.corner, scope="col", data_sort=bool(props.sortable))
    head = tag("thead", tag("tr", corner, *names))
    body = tag(
        "tbody",
        *(
            _table_row(row, ctx, styles, [keys[at] if keys else None for keys in columns])
            for at, row in enumerate(props.rows)
        ),
    )
    label = props.heading or ctx.say("Comparison")
    table = tag(
        "table",
        tag("caption", label, class_="visually-hidden"),
        head,
        body,
        data_live="sort" if props.sortable else None,
    )
    letters = max((len(word) for row in props.rows for word in row.label.split()), default=0)
    for column in zip(props.columns, *(row.values for row in props.rows), strict=True):
        letters += max(len(said) for said in column if isinstance(said, str))
    fits = len(props.columns) <= _OF_PHONE and letters <= _LETTERS
    frame = tag(
        "div",
        table,
        class_="table-frame table-short" if fits else "table-frame",
        role="group",
        aria_label=label,
        tabindex="0",
    )
    link = paragraph(anchor(ctx, props.link), "small") if props.link else None
    return section(ctx, props, frame, link, kind="comparison")
