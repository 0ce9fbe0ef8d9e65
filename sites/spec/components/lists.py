"""Lists: offers, steps, numbers, questions, a programme, people, and what things cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sites.spec.catalog import (
    ITEM_TEXT,
    Business,
    Component,
    Hue,
    IconName,
    ItemField,
    Label,
    Link,
    LinkUrl,
    LongText,
    OutlineSection,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Tag,
    Text,
    Title,
    outline_items,
)
from sites.spec.html import (
    Html,
    amount_apart,
    anchor,
    heading,
    icon,
    image,
    join,
    level_inside,
    paragraph,
    paragraphs,
    section,
    tag,
)
from sites.spec.model import JsonObject
from sites.spec.trades import icons_of

_TEXT_OR_DETAIL = ItemField("text", fallback="detail", is_required=False)


class Offer(Props):
    """An entry of a list that can be had, or no longer."""

    sold_out: Label | None = None
    """The words that say so; the entry stays, in grey."""


def _sold_out(item: Offer) -> Html | None:
    return tag("span", item.sold_out, class_="tag") if item.sold_out else None


def _style(item: Offer, style: str | None = None) -> str | None:
    return " ".join(filter(None, (style, "sold-out"))) if item.sold_out else style


class Feature(Offer):
    title: Label
    text: Text | None = None
    icon: IconName | None = None
    image: Picture | None = None
    link: Link | None = None


class FeaturesProps(SectionProps):
    items: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=12)]
    layout: Literal["cards", "plain", "rows", "list"] = "cards"
    """Cards in a grid, the same without frames, one below the other with the picture beside the words, or lines."""


def _feature_row(item: Feature, ctx: RenderContext, level: int) -> Html:
    """Return a row; one without a picture has its title where the picture would be."""
    words = [paragraph(item.text), _further(item, ctx)]
    title = _feature_mark(item), heading(level, item.title), _sold_out(item)
    if item.image is None:
        return tag("li", tag("div", *title, class_="row-title"), tag("div", *words), class_=_style(item))
    picture = tag("div", image(ctx, item.image), class_="row-picture")
    return tag("li", picture, tag("div", *title, *words), class_=_style(item, "row-pictured"))


def _feature_card(item: Feature, ctx: RenderContext, level: int, *, style: str | None) -> Html:
    picture = image(ctx, item.image, class_="card-image") if item.image else None
    words = heading(level, item.title), _sold_out(item), paragraph(item.text)
    return tag("li", picture, _feature_mark(item), *words, _further(item, ctx), class_=_style(item, style))


def _feature_mark(item: Feature) -> Html | None:
    return tag("span", icon(item.icon), class_="icon-mark") if item.icon else None


def _further(item: Feature | Question | ScheduleEntry | PricedItem, ctx: RenderContext) -> Html | None:
    return tag("p", anchor(ctx, item.link), class_="card-link") if item.link else None


_outline_offers = outline_items("items", 9, title=ItemField("title"), text=_TEXT_OR_DETAIL)


def _outline_features(section: OutlineSection, business: Business) -> JsonObject:
    """Return the entries, each with an icon if there is another one for each."""
    props = _outline_offers(section, business)
    names = icons_of([(item["title"], item.get("text", "")) for item in props["items"]])
    for item, name in zip(props["items"], names, strict=False):
        item["icon"] = name
    return props


_LONGEST_IN_FOUR = 14
"""Letters of a word for which a heading has room where four cards stand side by side."""


@Component(
    "Features",
    summary="offers: items [{title, text, icon, image, link}], layout cards|plain|rows|list",
    example={"heading": "Why us", "items": [{"title": "Slow dough", "text": "Forty hours of rest.", "icon": "clock"}]},
    words=("features", "feature", "services", "offers", "benefits", "highlights"),
    outline=_outline_features,
    outline_hint="items: title, text",
    nav_label="Services",
)
def _features(props: FeaturesProps, ctx: RenderContext) -> Html:
    level = level_inside(ctx, props)
    if props.layout == "rows":
        rows = tag("ul", *(_feature_row(item, ctx, level) for item in props.items), class_="feature-rows")
        return section(ctx, props, rows, kind="features")
    style = {"cards": "card", "plain": "feature-plain"}.get(props.layout)
    cards = [_feature_card(item, ctx, level, style=style) for item in props.items]
    if props.layout == "list":
        return section(ctx, props, tag("ul", *cards, class_="feature-list"), kind="features")
    columns = 3 if len(cards) in (3, 5, 6, 9, 10, 11, 12) else min(len(cards), 4)
    if columns == 4 and any(len(word) > _LONGEST_IN_FOUR for item in props.items for word in item.title.split()):
        columns = 2
    return section(ctx, props, tag("ul", *cards, class_=f"cards cards-{columns}"), kind="features")


class Step(Props):
    title: Label
    text: Text | None = None


class StepsProps(SectionProps):
    items: Annotated[tuple[Step, ...], Field(min_length=1, max_length=12)]


@Component(
    "Steps",
    summary="numbered, in order: items [{title, text}]",
    example={"heading": "How it works", "items": [{"title": "Call us", "text": "Any day."}, {"title": "Collect"}]},
    words=("steps", "process", "how it works", "timeline"),
    outline=outline_items("items", 8, title=ItemField("title"), text=_TEXT_OR_DETAIL),
    outline_hint="items: title, text, in order",
    nav_label="How it works",
)
def _steps(props: StepsProps, ctx: RenderContext) -> Html:
    steps = [tag("li", heading(level_inside(ctx, props), step.title), paragraph(step.text)) for step in props.items]
    columns = len(steps) if len(steps) < 5 else 3
    return section(ctx, props, tag("ol", *steps, class_=f"steps steps-{columns}"), kind="process")


class Stat(Props):
    value: Annotated[str, Field(min_length=1, max_length=20)]
    label: Label


class StatsProps(SectionProps):
    """A few numbers, each above what it counts; a screen reader reads them in the other order."""

    items: Annotated[tuple[Stat, ...], Field(min_length=1, max_length=6)]


@Component(
    "Stats",
    summary="numbers: items [{value, label}]",
    example={"items": [{"value": "40 h", "label": "of rest for every dough"}]},
    words=("stats", "statistics", "numbers", "figures", "key figures"),
    outline=outline_items("items", 4, value=ItemField("detail", 20, fallback="text"), label=ItemField("title", 60)),
    outline_hint="items: title = what is counted, detail = the number",
)
def _stats(props: StatsProps, ctx: RenderContext) -> Html:
    pairs = [tag("div", tag("dt", item.label), tag("dd", item.value)) for item in props.items]
    return section(ctx, props, tag("dl", *pairs, class_="stat-row"), kind="stats")


class Question(Props):
    question: Title
    answer: LongText
    link: Link | None = None
    """Where the answer leads on."""


class FaqProps(SectionProps):
    """Questions that open to show their answers, with no script."""

    items: Annotated[tuple[Question, ...], Field(min_length=1, max_length=30)]
    open: bool | Literal["all"] = False
    """Whether the first answer shows at once, or all of them."""


_outline_questions = outline_items(
    "items", 12, question=ItemField("title", 140), answer=ItemField("text", fallback="detail")
)


@Component(
    "FAQ",
    summary="items [{question, answer, link}], open true (first answer)|all",
    example={
        "heading": "Questions",
        "items": [
            {
                "question": "Do you deliver?",
                "answer": "In town, by bicycle.",
                "link": {"label": "Ask us", "href": "mailto:hello@bakery.example"},
            }
        ],
    },
    words=("faq", "faqs", "questions", "frequently asked questions", "q&a"),
    outline=lambda section, business: {**_outline_questions(section, business), "open": True},
    outline_hint="what stands nowhere else; items: title = question, text = answer",
    nav_label="Questions",
)
def _faq(props: FaqProps, ctx: RenderContext) -> Html:
    questions = [
        tag(
            "details",
            tag("summary", item.question),
            tag("div", paragraphs(ctx, item.answer), _further(item, ctx), class_="answer"),
            open=props.open == "all" or (props.open and place == 0),
        )
        for place, item in enumerate(props.items)
    ]
    return section(ctx, props, tag("div", *questions, class_="questions"), kind="faq")


Tags = Tag | Annotated[tuple[Tag, ...], Field(min_length=1, max_length=4)]


class ScheduleEntry(Offer):
    time: Label
    title: Title
    text: Text | None = None
    place: Label | None = None
    link: Link | None = None
    tag: Tags | None = None
    hue: Hue | None = None
    """Of the tags."""


def _tags_of(item: ScheduleEntry | PricedItem) -> Html:
    filled = f" tag-filled hue-{item.hue}" if item.hue else ""
    words = (item.tag,) if isinstance(item.tag, str) else item.tag or ()
    return join(*(tag("span", word, class_=f"tag{filled}") for word in words), _sold_out(item))


class ScheduleProps(SectionProps):
    """What happens when, for an event, a class plan or opening days; times stand in a column of their own."""

    items: Annotated[tuple[ScheduleEntry, ...], Field(min_length=1, max_length=40)]
    note: Text | None = None


def _schedule_row(item: ScheduleEntry, ctx: RenderContext, level: int) -> Html:
    words = tag("div", heading(level, item.title), paragraph(item.text), _further(item, ctx))
    has_side = item.place or item.tag or item.sold_out
    side = tag("p", item.place, _tags_of(item), class_="schedule-place") if has_side else None
    return tag("li", tag("p", item.time, class_="schedule-time"), words, side, class_=_style(item))


@Component(
    "Schedule",
    summary="items [{time, title, text, place, link, tag (or [tags]), hue (of them)}], note",
    example={"heading": "Saturday", "items": [{"time": "9:00", "title": "Coffee and flour", "place": "Shop"}]},
    words=("schedule", "agenda", "programme", "program", "timetable"),
    outline=outline_items(
        "items", 24, rest="note", time=ItemField("detail", 60), title=ItemField("title"), text=ITEM_TEXT
    ),
    outline_hint="items: title = what or where, detail = day and time, text",
    nav_label="Schedule",
)
def _schedule(props: ScheduleProps, ctx: RenderContext) -> Html:
    rows = tag("ol", *(_schedule_row(item, ctx, level_inside(ctx, props)) for item in props.items), class_="schedule")
    return section(ctx, props, rows, paragraph(props.note, "small"), kind="agenda")


_ROLE = ItemField("detail", 60, is_required=False)


class Testimonial(Props):
    quote: Text
    name: Label
    role: Label | None = None
    image: Picture | None = None
    rating: Annotated[int, Field(ge=1, le=5)] | None = None


class TestimonialsProps(SectionProps):
    """What customers say, as quotations; a single one stands large and alone."""

    items: Annotated[tuple[Testimonial, ...], Field(min_length=1, max_length=9)]


def _quote(item: Testimonial, ctx: RenderContext) -> Html:
    stars = None
    if item.rating:
        label = ctx.say("{n} out of 5 stars", n=item.rating)
        stars = tag("p", "★" * item.rating + "☆" * (5 - item.rating), class_="stars", role="img", aria_label=label)
    role = tag("span", item.role, class_="quote-role") if item.role else None
    words = tag("span", tag("span", item.name, class_="quote-name"), role, class_="quote-by")
    face = image(ctx, item.image, class_="quote-face") if item.image else None
    return tag("figure", stars, tag("blockquote", tag("p", item.quote)), tag("figcaption", face, words))


@Component(
    "Testimonials",
    summary="quotes: items [{quote, name, role, image, rating 1-5}]",
    example={"heading": "What people say", "items": [{"quote": "The best rye in town.", "name": "Ana", "rating": 5}]},
    words=("testimonials", "testimonial", "reviews", "quotes", "customer quotes", "customer reviews"),
    outline=outline_items(
        "items", 6, quote=ItemField("text"), name=ItemField("title", default="A customer"), role=_ROLE
    ),
    outline_hint="items: title = name, text = quote, detail = role",
    nav_label="Reviews",
)
def _testimonials(props: TestimonialsProps, ctx: RenderContext) -> Html:
    count = len(props.items)
    if count == 1:
        quotes = tag("div", tag("div", _quote(props.items[0], ctx)), class_="quotes quote-alone")
    else:
        cards = [tag("li", _quote(item, ctx), class_="card") for item in props.items]
        quotes = tag("ul", *cards, class_=f"cards cards-{2 if count == 4 else min(count, 3)} quotes")
    return section(ctx, props, quotes, kind="testimonials")


class Logo(Props):
    name: Label
    image: Picture | None = None
    href: LinkUrl | None = None


class LogosProps(SectionProps):
    items: Annotated[tuple[Logo, ...], Field(min_length=1, max_length=16)]


def _logo(item: Logo, ctx: RenderContext) -> Html:
    picture = item.image and item.image.model_copy(update={"alt": item.image.alt or item.name})
    mark = image(ctx, picture) if picture else tag("span", item.name, class_="wordmark")
    return tag("li", tag("a", mark, href=ctx.url(item.href)) if item.href else mark)


@Component(
    "Logos",
    summary="partners: items [{name, image, href}]",
    example={"heading": "They serve our bread", "items": [{"name": "The Mill Inn"}, {"name": "Café Ost"}]},
    words=("logos", "logo cloud", "partners", "clients", "sponsors", "trusted by"),
    outline=outline_items("items", 12, name=ItemField("title", 60)),
    outline_hint="items: title = name of a customer or partner",
)
def _logos(props: LogosProps, ctx: RenderContext) -> Html:
    return section(ctx, props, tag("ul", *(_logo(item, ctx) for item in props.items), class_="logo-row"), kind="logos")


class Plan(Offer):
    name: Label
    price: Label
    period: Label | None = None
    text: Text | None = None
    features: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=160)], ...], Field(max_length=12)] = ()
    action: Link | None = None
    image: Picture | None = None
    badge: Label | None = None
    """A word such as "Most loved"; the plan that has one stands out, unless it is sold out."""
    tone: Literal["filled", "accent"] | None = None
    """The ground of its card: none of its own by default."""


class PricingProps(SectionProps):
    plans: Annotated[tuple[Plan, ...], Field(min_length=1, max_length=4)]
    note: Text | None = None


def _plan(plan: Plan, ctx: RenderContext, level: int) -> Html:
    is_marked = plan.badge and not plan.sold_out
    badge, text = paragraph(plan.sold_out or plan.badge, "badge"), paragraph(plan.text)
    period = tag("span", plan.period, class_="period") if plan.period else None
    price = tag("p", tag("strong", plan.price), period, class_="price")
    lines = [tag("li", icon("check"), tag("span", line)) for line in plan.features]
    features = tag("ul", *lines, class_="ticks") if lines else None
    style = "button" if is_marked else "button button-quiet"
    action = tag("p", anchor(ctx, plan.action, class_=style), class_="actions") if plan.action else None
    ground = f" tone-{plan.tone}" if plan.tone else ""
    classes = f"card plan plan-marked{ground}" if is_marked else f"card plan{ground}"
    picture = image(ctx, plan.image, class_="card-image") if plan.image else None
    name = heading(level, plan.name)
    return tag("li", badge, picture, name, price, text, features, action, class_=_style(plan, classes))


_outline_plans = outline_items("plans", 4, name=ItemField("title", 60), price=ItemField("detail", 60), text=ITEM_TEXT)


def _outline_pricing(section: OutlineSection, business: Business) -> JsonObject:
    props = _outline_plans(section, business)
    for plan in props["plans"]:
        lines = plan.pop("text", "").splitlines()
        features = [line[2:162] for line in lines if line.startswith("- ") and line[2:].strip()][:12]
        text = "\n".join(line for line in lines if not line.startswith("- "))
        plan |= ({"text": text} if text else {}) | ({"features": features} if features else {})
    return props


@Component(
    "Pricing",
    summary="plans [{name, price, period, text, features [text], action, image (on top), "
    "badge (fills its button), tone filled|accent (of its card)}], note",
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
    outline_hint="items: title = plan, detail = price, text (lines with '- ': what it holds)",
    nav_label="Prices",
)
def _pricing(props: PricingProps, ctx: RenderContext) -> Html:
    cards = [_plan(plan, ctx, level_inside(ctx, props)) for plan in props.plans]
    plans = tag("ul", *cards, class_=f"cards cards-{len(cards)} plans")
    return section(ctx, props, plans, paragraph(props.note, "small"), kind="pricing")


class PricedItem(Offer):
    title: Label
    price: Annotated[str, Field(min_length=1, max_length=30)]
    text: Text | None = None
    link: Link | None = None
    tag: Tags | None = None
    hue: Hue | None = None
    """Of the tags."""


class PriceListProps(SectionProps):
    """A menu: many small things with a price each, in two columns where there is room."""

    items: Annotated[tuple[PricedItem, ...], Field(min_length=1, max_length=40)]
    note: Text | None = None
    layout: Literal["figures", "lines"] | None = None
    """A few large prices side by side, or one line for each beside the heading; as its style has it by default."""


def _price_line(item: PricedItem, ctx: RenderContext, level: int, *, is_large: bool) -> Html:
    price = tag("span", amount_apart(item.price) if is_large else item.price, class_="line-price")
    top = tag("div", heading(level, item.title), _tags_of(item), price, class_="line-top")
    return tag("li", top, paragraph(item.text), _further(item, ctx), class_=_style(item))


@Component(
    "PriceList",
    summary="menu or price list: items [{title, price, text, link, tag (or [tags]), hue (of them)}], note, "
    "layout figures (large)|lines",
    example={
        "heading": "Bread",
        "items": [
            {"title": "Rye", "price": "€5.80", "text": "Dense and sour.", "tag": ["vegan", "new"], "hue": "green"}
        ],
    },
    words=("price list", "menu", "pricelist", "food menu"),
    outline=outline_items(
        "items", 24, rest="note", title=ItemField("title", 60), price=ItemField("detail", 30), text=ITEM_TEXT
    ),
    outline_hint="items: title, detail = price with unit, text",
    nav_label="Prices",
)
def _price_list(props: PriceListProps, ctx: RenderContext) -> Html:
    level, is_large = level_inside(ctx, props), props.layout == "figures"
    entries = [_price_line(item, ctx, level, is_large=is_large) for item in props.items]
    lines = tag("ul", *entries, class_=f"price-{props.layout or 'list'}")
    return section(ctx, props, lines, paragraph(props.note, "small"), kind="menu")
