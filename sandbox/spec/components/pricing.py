"""Pricing: plans with prices."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Label,
    Link,
    OutlineSection,
    Props,
    RenderContext,
    SectionProps,
    Text,
    section_props,
)
from sandbox.spec.components.drawings import icon
from sandbox.spec.html import Html, below, heading, section, tag
from sandbox.spec.model import JsonObject


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
    """Props of Pricing."""

    plans: Annotated[tuple[Plan, ...], Field(min_length=1, max_length=4)]


def render(props: PricingProps, ctx: RenderContext) -> Html:
    """Render the plans as cards of the same height."""
    cards = [_plan(plan, ctx, below(ctx, props)) for plan in props.plans]
    return section(ctx, props, tag("ul", *cards, class_=f"cards cards-{len(cards)} plans"), kind="pricing")


def _plan(plan: Plan, ctx: RenderContext, level: int) -> Html:
    badge = tag("p", plan.badge, class_="badge") if plan.badge else None
    period = tag("span", plan.period, class_="period") if plan.period else None
    price = tag("p", tag("strong", plan.price), period, class_="price")
    text = tag("p", plan.text) if plan.text else None
    lines = [tag("li", icon("check"), tag("span", line)) for line in plan.features]
    features = tag("ul", *lines, class_="ticks") if lines else None
    style = "button" if plan.badge else "button button-quiet"
    action = None
    if plan.action:
        action = tag("p", tag("a", plan.action.label, class_=style, href=ctx.url(plan.action.href)), class_="actions")
    classes = "card plan plan-marked" if plan.badge else "card plan"
    return tag("li", badge, heading(level, plan.name), price, text, features, action, class_=classes)


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    plans: list[JsonObject] = []
    for item in section.items:
        if item.get("title") and item.get("detail"):
            plan: JsonObject = {"name": item["title"][:60], "price": item["detail"][:60]}
            if item.get("text"):
                plan["text"] = item["text"]
            if business.contact_href:
                plan["action"] = {"label": "Get in touch", "href": business.contact_href}
            plans.append(plan)
    return {**section_props(section), "plans": plans[:4]}


COMPONENT = Component(
    name="Pricing",
    summary="plans: heading, plans [{name, price, period, text, features [text], action {label, href}, badge}]",
    props=PricingProps,
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
    render=render,
    words=("pricing", "prices", "plans", "pricing table", "packages"),
    outline=_outline,
    outline_hint="items: title = plan, detail = price, text",
    nav_label="Prices",
    css="""
.plans { align-items: stretch; }
.plan {
  position: relative;
  padding: 2.1rem clamp(1.4rem, 1rem + 1.2vw, 1.9rem) 2rem;
  border: 1px solid var(--line);
  border-radius: var(--radius);
}
.plan-marked { border: 2px solid var(--fill-edge); }
.tone-deep .plan-marked { border-color: var(--deep-accent); }
.plan .badge {
  position: absolute;
  top: 0;
  left: 1.6rem;
  transform: translateY(-50%);
  margin: 0;
  padding: .2rem .8rem;
  border-radius: 99px;
  background: var(--accent);
  color: var(--on-accent);
  font-size: .8rem;
  font-weight: 700;
}
.price { display: flex; flex-wrap: wrap; align-items: baseline; gap: .2rem .5rem; margin: .35rem 0 .9rem; }
.price strong {
  font-family: var(--font-headings);
  font-size: calc(2.4rem * var(--heading-scale));
  font-weight: var(--heading-weight);
  line-height: 1.1;
  letter-spacing: var(--heading-tracking);
  color: var(--ink);
}
.period { color: var(--muted); font-size: .95rem; }
.ticks {
  list-style: none;
  margin: 1.3rem 0 0;
  padding: 1.3rem 0 0;
  border-top: 1px solid var(--line);
  display: grid;
  gap: .6rem;
}
.ticks li { display: grid; grid-template-columns: 1.25rem 1fr; gap: .65rem; line-height: 1.45; }
.ticks .icon { width: 1.2rem; height: 1.2rem; margin-top: .12rem; color: var(--link); }
.plan .actions { margin-top: auto; padding-top: 1.8rem; }
.plan .button { width: 100%; }
@media (max-width: 56rem) { .plans { gap: 2rem; } }
""",
)
