"""What opens a page or calls the visitor to act."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sites.spec.catalog import (
    Business,
    Component,
    Label,
    Link,
    OutlineSection,
    Picture,
    RenderContext,
    SectionProps,
    Title,
    section_props,
)
from sites.spec.html import ART_NAMES, ArtName, Html, art, band, buttons, image, intro, tag
from sites.spec.model import JsonObject

_ANY_ART = tuple(name for name in ART_NAMES if name != "dashboard")
"""Drawings that suit any trade."""


class HeroProps(SectionProps):
    """The opening of a page; with nothing to stand beside the words it is neither split nor covered."""

    heading: Title
    actions: Annotated[tuple[Link, ...], Field(max_length=2)] = ()
    image: Picture | None = None
    art: ArtName | None = None
    """A drawing in the site's colours, for where there is no image."""
    layout: Literal["split", "centered", "cover", "statement"] = "split"
    notes: Annotated[tuple[Label, ...], Field(max_length=4)] = ()
    """Short facts below the buttons."""


def _hero_picture(props: HeroProps, ctx: RenderContext) -> Html | None:
    if aside := ctx.slot("aside", deeper=True):
        return tag("div", aside, class_="hero-aside")
    if props.image:
        return tag("div", image(ctx, props.image, eager=True), class_="hero-picture")
    return tag("div", art(props.art), class_="hero-picture hero-art") if props.art else None


def _outline_hero(section: OutlineSection, business: Business) -> JsonObject:
    notes = [str(item["title"])[:60] for item in section.items if item.get("title")]
    props: JsonObject = {"heading": business.name, **section_props(section), "layout": "split"}
    if business.tagline and business.tagline != props.get("text"):
        props["eyebrow"] = business.tagline[:60]
    props |= {"image": {"src": section.image, "alt": ""}} if section.image else {"art": _art_for(business)}
    if business.contact_href:
        props["actions"] = [{"label": business.say("Get in touch"), "href": business.contact_href}]
    return props | ({"notes": notes[:4]} if notes else {})


def _art_for(business: Business) -> str:
    """Return the chosen drawing, else one by the name, so that two new sites seldom open alike."""
    return business.art or _ANY_ART[sum(business.name.encode()) % len(_ANY_ART)]


@Component(
    "Hero",
    summary="opening: eyebrow, heading, text, actions (max 2) [{label, href}], image {src, alt}, art "
    f"{'|'.join(ART_NAMES)}, layout split|centered|cover|statement, notes [text]; slot aside",
    example={
        "heading": "Bread worth getting up for",
        "text": "Baked every night in a wood oven.",
        "actions": [{"label": "See the menu", "href": "#menu"}],
    },
    words=("hero", "hero section", "hero banner", "banner", "opening", "masthead", "intro"),
    slots=("aside",),
    outline=_outline_hero,
    outline_hint="items: up to 4 short facts as title",
)
def _hero(props: HeroProps, ctx: RenderContext) -> Html:
    notes = tag("ul", *(tag("li", note) for note in props.notes), class_="hero-notes") if props.notes else None
    picture = _hero_picture(props, ctx)
    layout = "centered" if picture is None and props.layout in ("split", "cover") else props.layout
    words: tuple[Html | None, ...] = (intro(ctx, props), buttons(ctx, props.actions), notes)
    if layout == "statement":
        text = tag("p", props.text, class_="lead") if props.text else None
        head = props.model_copy(update={"text": None})
        words = (intro(ctx, head), tag("div", text, *words[1:], class_="hero-rest"))
    tone = "deep" if layout == "cover" else props.tone
    words_box = tag("div", *words, class_="hero-words")
    return band(ctx, props, words_box, picture, classes=f"hero hero-{layout} tone-{tone}")


class PageIntroProps(SectionProps):
    """The opening of a page that is not the front page: a heading with its text, beside a picture if there is one."""

    heading: Title
    image: Picture | None = None


def _outline_page_intro(section: OutlineSection, business: Business) -> JsonObject:
    picture = {"image": {"src": section.image, "alt": ""}} if section.image else {}
    return {"heading": business.name, **section_props(section), **picture}


@Component(
    "PageIntro",
    summary="opening of a further page: eyebrow, heading, text, image {src, alt}",
    example={"heading": "Our classes", "text": "Small groups, every weekend."},
    words=("page intro", "page header", "page introduction"),
    outline=_outline_page_intro,
    outline_hint="opening of a page other than the first",
)
def _page_intro(props: PageIntroProps, ctx: RenderContext) -> Html:
    picture = tag("div", image(ctx, props.image, eager=True), class_="page-intro-picture") if props.image else None
    return band(ctx, props, intro(ctx, props), picture, classes=f"page-intro tone-{props.tone}")


class CallToActionProps(SectionProps):
    """One invitation, in a panel of the site's own colour."""

    heading: Title
    actions: Annotated[tuple[Link, ...], Field(max_length=2)] = ()


def _outline_call(section: OutlineSection, business: Business) -> JsonObject:
    item = next((item for item in section.items if item.get("title")), {})
    href = item.get("detail") or business.contact_href
    actions = [{"label": item.get("title", business.say("Get in touch"))[:60], "href": href}] if href else []
    return {"heading": business.name, **section_props(section), "actions": actions}


@Component(
    "CallToAction",
    summary="one invitation: heading, text, actions (max 2) [{label, href}]",
    example={"heading": "Come for breakfast", "actions": [{"label": "Book a table", "href": "#contact"}]},
    words=("call to action", "cta", "call-to-action", "call to action section"),
    outline=_outline_call,
    outline_hint="one item: title = button label, detail = its address (https:, tel:, mailto:, #contact) where it is "
    "not the contact",
)
def _call_to_action(props: CallToActionProps, ctx: RenderContext) -> Html:
    panel = tag("div", intro(ctx, props), buttons(ctx, props.actions), class_="panel")
    return band(ctx, props, panel, classes=f"tone-{props.tone} call")
