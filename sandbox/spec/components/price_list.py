"""PriceList: a menu: many small things with a price each."""

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
    section_props,
)
from sandbox.spec.html import Html, below, heading, section, tag
from sandbox.spec.model import JsonObject


class PricedItem(Props):
    """One line of the menu."""

    title: Label
    price: Annotated[str, Field(min_length=1, max_length=30)]
    text: Text | None = None
    tag: Annotated[str, Field(min_length=1, max_length=24)] | None = None
    """A word such as "vegan"."""


class PriceListProps(SectionProps):
    """Props of PriceList."""

    items: Annotated[tuple[PricedItem, ...], Field(min_length=1, max_length=40)]
    note: Text | None = None


def render(props: PriceListProps, ctx: RenderContext) -> Html:
    """Render the menu in two columns where there is room."""
    lines = tag("ul", *(_line(item, below(ctx, props)) for item in props.items), class_="price-list")
    note = tag("p", props.note, class_="small") if props.note else None
    return section(ctx, props, lines, note, kind="menu")


def _line(item: PricedItem, level: int) -> Html:
    mark = tag("span", item.tag, class_="tag") if item.tag else None
    top = tag("div", heading(level, item.title), mark, tag("span", item.price, class_="line-price"), class_="line-top")
    return tag("li", top, tag("p", item.text) if item.text else None)


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    lines = [
        {"title": item["title"][:60], "price": item["detail"][:30]}
        | ({"text": item["text"]} if item.get("text") else {})
        for item in section.items
        if item.get("title") and item.get("detail")
    ]
    return {**section_props(section), "items": lines[:24]}


COMPONENT = Component(
    name="PriceList",
    summary="menu or price list: heading, items [{title, price, text, tag}], note",
    props=PriceListProps,
    example={"heading": "Bread", "items": [{"title": "Rye", "price": "€5.80", "text": "Dense and sour."}]},
    render=render,
    words=("price list", "menu", "pricelist", "food menu"),
    outline=_outline,
    outline_hint="items: title, detail = price, text",
    nav_label="Menu",
    css="""
.price-list { list-style: none; margin: 0; padding: 0; display: grid; gap: 0 clamp(2rem, 5vw, 4.5rem); }
.price-list li { padding-block: 1.15rem; border-bottom: 1px solid var(--line); }
.line-top { display: flex; align-items: baseline; gap: .7rem; }
.line-top h2, .line-top h3, .line-top h4 { font-size: 1.15rem; }
.line-price {
  margin-left: auto;
  font-weight: 700;
  font-variant-numeric: tabular-nums;
  white-space: nowrap;
  color: var(--link);
}
.price-list p { margin-top: .25rem; font-size: .97rem; color: var(--muted); }
.tag {
  align-self: center;
  padding: .05rem .55rem;
  border-radius: 99px;
  border: 1px solid var(--line);
  font-size: .76rem;
  color: var(--muted);
  white-space: nowrap;
}
@media (min-width: 50rem) { .price-list { grid-template-columns: 1fr 1fr; } }
""",
)
