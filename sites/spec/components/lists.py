"""Lists of short pieces: offers, steps, numbers, questions, a programme."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sites.spec.catalog import (
    ITEM_TEXT,
    Component,
    IconName,
    ItemField,
    Label,
    Link,
    LongText,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Tag,
    Text,
    Title,
    outline_items,
)
from sites.spec.html import Html, anchor, heading, icon, image, level_inside, paragraphs, section, tag

_TEXT_OR_DETAIL = ItemField("text", fallback="detail", is_required=False)


class Feature(Props):
    """One piece."""

    title: Label
    text: Text | None = None
    icon: IconName | None = None
    image: Picture | None = None
    link: Link | None = None


class FeaturesProps(SectionProps):
    """What is offered, in short pieces."""

    items: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=12)]
    layout: Literal["cards", "plain", "rows"] = "cards"
    """Cards in a grid, the same without frames, or one below the other with the picture beside the words."""


def _feature_row(item: Feature, ctx: RenderContext, level: int) -> Html:
    """Return a row; one without a picture has its title where the picture would be."""
    words = [tag("p", item.text) if item.text else None, _feature_link(item, ctx)]
    if item.image is None:
        title = tag("div", _feature_mark(item), heading(level, item.title), class_="row-title")
        return tag("li", title, tag("div", *words))
    picture = tag("div", image(ctx, item.image), class_="row-picture")
    return tag(
        "li", picture, tag("div", _feature_mark(item), heading(level, item.title), *words), class_="row-pictured"
    )


def _feature_card(item: Feature, ctx: RenderContext, level: int, *, style: str) -> Html:
    picture = image(ctx, item.image, class_="card-image") if item.image else None
    title, text = heading(level, item.title), tag("p", item.text) if item.text else None
    return tag("li", picture, _feature_mark(item), title, text, _feature_link(item, ctx), class_=style)


def _feature_mark(item: Feature) -> Html | None:
    return tag("span", icon(item.icon), class_="icon-mark") if item.icon else None


def _feature_link(item: Feature, ctx: RenderContext) -> Html | None:
    return tag("p", anchor(ctx, item.link), class_="card-link") if item.link else None


@Component(
    "Features",
    summary="grid of offers or strengths: heading, text, items [{title, text, icon, image, link}], layout "
    "cards|plain|rows",
    example={"heading": "Why us", "items": [{"title": "Slow dough", "text": "Forty hours of rest.", "icon": "clock"}]},
    words=("features", "feature", "services", "offers", "benefits", "highlights"),
    outline=outline_items("items", 9, title=ItemField("title"), text=_TEXT_OR_DETAIL),
    outline_hint="items: title, text",
    nav_label="What we do",
)
def _features(props: FeaturesProps, ctx: RenderContext) -> Html:
    level = level_inside(ctx, props)
    if props.layout == "rows":
        rows = tag("ul", *(_feature_row(item, ctx, level) for item in props.items), class_="feature-rows")
        return section(ctx, props, rows, kind="features")
    style = "card" if props.layout == "cards" else "feature-plain"
    cards = [_feature_card(item, ctx, level, style=style) for item in props.items]
    count = len(cards)
    columns = 3 if count in (3, 5, 6, 9, 10, 11, 12) else min(count, 4)
    return section(ctx, props, tag("ul", *cards, class_=f"cards cards-{columns}"), kind="features")


class Step(Props):
    """One step."""

    title: Label
    text: Text | None = None


class StepsProps(SectionProps):
    """How something goes, in order."""

    items: Annotated[tuple[Step, ...], Field(min_length=1, max_length=12)]


@Component(
    "Steps",
    summary="how it works, in order: heading, items [{title, text}]",
    example={"heading": "How it works", "items": [{"title": "Call us", "text": "Any day."}, {"title": "Collect"}]},
    words=("steps", "process", "how it works", "timeline"),
    outline=outline_items("items", 8, title=ItemField("title"), text=_TEXT_OR_DETAIL),
    outline_hint="items: title, text, in order",
    nav_label="How it works",
)
def _steps(props: StepsProps, ctx: RenderContext) -> Html:
    level = level_inside(ctx, props)
    steps = [tag("li", heading(level, step.title), tag("p", step.text) if step.text else None) for step in props.items]
    columns = len(steps) if len(steps) < 5 else 3
    return section(ctx, props, tag("ol", *steps, class_=f"steps steps-{columns}"), kind="process")


class Stat(Props):
    """One number."""

    value: Annotated[str, Field(min_length=1, max_length=20)]
    label: Label


class StatsProps(SectionProps):
    """A few numbers, each above what it counts; a screen reader reads them in the other order."""

    items: Annotated[tuple[Stat, ...], Field(min_length=1, max_length=6)]


@Component(
    "Stats",
    summary="numbers: heading, items [{value, label}]",
    example={"items": [{"value": "40 h", "label": "of rest for every dough"}]},
    words=("stats", "statistics", "numbers", "figures", "key figures"),
    outline=outline_items("items", 4, value=ItemField("detail", 20, fallback="text"), label=ItemField("title", 60)),
    outline_hint="items: title = what is counted, detail = the number; only numbers that the request gives",
)
def _stats(props: StatsProps, ctx: RenderContext) -> Html:
    pairs = [tag("div", tag("dt", item.label), tag("dd", item.value)) for item in props.items]
    return section(ctx, props, tag("dl", *pairs, class_="stat-row"), kind="stats")


class Question(Props):
    """One question with its answer."""

    question: Title
    answer: LongText


class FaqProps(SectionProps):
    """Questions that open to show their answers, with no script."""

    items: Annotated[tuple[Question, ...], Field(min_length=1, max_length=30)]


@Component(
    "FAQ",
    summary="questions and answers: heading, items [{question, answer}]",
    example={"heading": "Questions", "items": [{"question": "Do you deliver?", "answer": "In town, by bicycle."}]},
    words=("faq", "faqs", "questions", "frequently asked questions", "q&a"),
    outline=outline_items("items", 12, question=ItemField("title", 140), answer=ItemField("text", fallback="detail")),
    outline_hint="items: title = question, text = answer",
    nav_label="Questions",
)
def _faq(props: FaqProps, ctx: RenderContext) -> Html:
    questions = [
        tag("details", tag("summary", item.question), tag("div", paragraphs(item.answer), class_="answer"))
        for item in props.items
    ]
    return section(ctx, props, tag("div", *questions, class_="questions"), kind="faq")


class ScheduleEntry(Props):
    """One entry."""

    time: Annotated[str, Field(min_length=1, max_length=30)]
    title: Title
    text: Text | None = None
    place: Label | None = None
    tag: Tag | None = None


class ScheduleProps(SectionProps):
    """What happens when, for an event, a class plan or opening days; times stand in a column of their own."""

    items: Annotated[tuple[ScheduleEntry, ...], Field(min_length=1, max_length=40)]
    note: Text | None = None


def _schedule_row(item: ScheduleEntry, level: int) -> Html:
    mark = tag("span", item.tag, class_="tag") if item.tag else None
    words = tag("div", heading(level, item.title), tag("p", item.text) if item.text else None)
    side = tag("p", item.place, mark, class_="schedule-place") if item.place or mark else None
    return tag("li", tag("p", item.time, class_="schedule-time"), words, side)


@Component(
    "Schedule",
    summary="programme by time: heading, items [{time, title, text, place, tag}], note",
    example={"heading": "Saturday", "items": [{"time": "9:00", "title": "Coffee and flour", "place": "Shop"}]},
    words=("schedule", "agenda", "programme", "program", "timetable"),
    outline=outline_items("items", 24, time=ItemField("detail", 30), title=ItemField("title"), text=ITEM_TEXT),
    outline_hint="items: title, detail = time, text; only times that the request gives",
    nav_label="Schedule",
)
def _schedule(props: ScheduleProps, ctx: RenderContext) -> Html:
    rows = tag("ol", *(_schedule_row(item, level_inside(ctx, props)) for item in props.items), class_="schedule")
    note = tag("p", props.note, class_="small") if props.note else None
    return section(ctx, props, rows, note, kind="agenda")
