"""What things cost: plans, menus, and choices compared."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from sites.spec.catalog import (
    ITEM_TEXT,
    Business,
    Component,
    ItemField,
    Label,
    Link,
    OutlineSection,
    Props,
    RenderContext,
    SectionProps,
    Tag,
    Text,
    outline_items,
    section_props,
)
from sites.spec.html import Html, anchor, heading, icon, level_inside, section, tag
from sites.spec.model import JsonObject


class Plan(Props):
    """One plan."""

    name: Label
    price: Label
    period: Label | None = None
    text: Text | None = None
    features: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=160)], ...], Field(max_length=12)] = ()
    action: Link | None = None
    badge: Label | None = None
    """A word such as "Most loved"; the plan that has one stands out."""


class PricingProps(SectionProps):
    """Plans with prices, as cards of the same height."""

    plans: Annotated[tuple[Plan, ...], Field(min_length=1, max_length=4)]


def _plan(plan: Plan, ctx: RenderContext, level: int) -> Html:
    badge = tag("p", plan.badge, class_="badge") if plan.badge else None
    period = tag("span", plan.period, class_="period") if plan.period else None
    price = tag("p", tag("strong", plan.price), period, class_="price")
    text = tag("p", plan.text) if plan.text else None
    lines = [tag("li", icon("check"), tag("span", line)) for line in plan.features]
    features = tag("ul", *lines, class_="ticks") if lines else None
    style = "button" if plan.badge else "button button-quiet"
    action = tag("p", anchor(ctx, plan.action, class_=style), class_="actions") if plan.action else None
    classes = "card plan plan-marked" if plan.badge else "card plan"
    return tag("li", badge, heading(level, plan.name), price, text, features, action, class_=classes)


_outline_plans = outline_items("plans", 4, name=ItemField("title", 60), price=ItemField("detail", 60), text=ITEM_TEXT)


def _outline_pricing(section: OutlineSection, business: Business) -> JsonObject:
    props = _outline_plans(section, business)
    if business.contact_href:
        for plan in props["plans"]:
            plan["action"] = {"label": business.say("Get in touch"), "href": business.contact_href}
    return props


@Component(
    "Pricing",
    summary="plans: heading, plans [{name, price, period, text, features [text], action {label, href}, badge}]",
    example={
        "heading": "Courses",
        "plans": [
            {
                "name": "One day",
                "price": "€120",
                "features": ["All tools"],
                "action": {"label": "Book", "href": "#contact"},
            }
        ],
    },
    words=("pricing", "prices", "plans", "pricing table", "packages"),
    outline=_outline_pricing,
    outline_hint="items: title = plan, detail = price, text",
    nav_label="Prices",
)
def _pricing(props: PricingProps, ctx: RenderContext) -> Html:
    cards = [_plan(plan, ctx, level_inside(ctx, props)) for plan in props.plans]
    return section(ctx, props, tag("ul", *cards, class_=f"cards cards-{len(cards)} plans"), kind="pricing")


class PricedItem(Props):
    """One line of the menu."""

    title: Label
    price: Annotated[str, Field(min_length=1, max_length=30)]
    text: Text | None = None
    tag: Tag | None = None


class PriceListProps(SectionProps):
    """A menu: many small things with a price each, in two columns where there is room."""

    items: Annotated[tuple[PricedItem, ...], Field(min_length=1, max_length=40)]
    note: Text | None = None


def _price_line(item: PricedItem, level: int) -> Html:
    mark = tag("span", item.tag, class_="tag") if item.tag else None
    top = tag("div", heading(level, item.title), mark, tag("span", item.price, class_="line-price"), class_="line-top")
    return tag("li", top, tag("p", item.text) if item.text else None)


@Component(
    "PriceList",
    summary="menu or price list: heading, items [{title, price, text, tag}], note",
    example={"heading": "Bread", "items": [{"title": "Rye", "price": "€5.80", "text": "Dense and sour."}]},
    words=("price list", "menu", "pricelist", "food menu"),
    outline=outline_items("items", 24, title=ItemField("title", 60), price=ItemField("detail", 30), text=ITEM_TEXT),
    outline_hint="items: title, detail = price, text",
    nav_label="Menu",
)
def _price_list(props: PriceListProps, ctx: RenderContext) -> Html:
    lines = tag("ul", *(_price_line(item, level_inside(ctx, props)) for item in props.items), class_="price-list")
    note = tag("p", props.note, class_="small") if props.note else None
    return section(ctx, props, lines, note, kind="menu")


Cell = bool | Annotated[str, Field(max_length=120)]


class Row(Props):
    """One row: a name and a value for each column."""

    label: Label
    values: Annotated[tuple[Cell, ...], Field(min_length=1, max_length=6)]


class ComparisonTableProps(SectionProps):
    """Choices side by side, in a table that scrolls sideways on a narrow screen."""

    columns: Annotated[tuple[Label, ...], Field(min_length=1, max_length=6)]
    rows: Annotated[tuple[Row, ...], Field(min_length=1, max_length=30)]
    highlight: Annotated[int, Field(ge=1, le=6)] | None = None
    """The recommended column, counted from 1."""

    @model_validator(mode="after")
    def _check_width(self) -> Self:
        if any(len(row.values) != len(self.columns) for row in self.rows):
            raise ValueError("every row needs one value for each column")
        return self


def _table_row(row: Row, ctx: RenderContext, styles: list[str | None]) -> Html:
    cells = [tag("td", _cell(value, ctx), class_=style) for value, style in zip(row.values, styles, strict=True)]
    return tag("tr", tag("th", row.label, scope="row"), *cells)


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
    summary="choices side by side: heading, columns [name], rows [{label, values [text or true/false]}], "
    "highlight (column from 1)",
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
    names = [tag("th", name, scope="col", class_=style) for name, style in zip(props.columns, styles, strict=True)]
    head = tag("thead", tag("tr", tag("td", tag("span", ctx.say("Compared"), class_="visually-hidden")), *names))
    body = tag("tbody", *(_table_row(row, ctx, styles) for row in props.rows))
    label = props.heading or ctx.say("Comparison")
    table = tag("table", tag("caption", label, class_="visually-hidden"), head, body)
    frame = tag("div", table, class_="table-frame", role="group", aria_label=label, tabindex="0")
    return section(ctx, props, frame, kind="comparison")
