"""People: the team, what customers say, and whom one works with."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sites.spec.catalog import (
    ITEM_TEXT,
    Component,
    ItemField,
    Label,
    LinkUrl,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    Text,
    outline_items,
)
from sites.spec.html import Html, heading, image, level_inside, section, tag

_ROLE = ItemField("detail", 60, is_required=False)


class Person(Props):
    """One person."""

    name: Label
    role: Label | None = None
    text: Text | None = None
    image: Picture | None = None


class TeamProps(SectionProps):
    """The people behind the business; who has no picture is shown by initials."""

    people: Annotated[tuple[Person, ...], Field(min_length=1, max_length=16)]


def _person(person: Person, ctx: RenderContext, level: int) -> Html:
    if person.image:
        face = image(ctx, person.image, class_="face")
    else:
        initials = "".join(word[0] for word in person.name.split()[:2]).upper()
        face = tag("div", initials, class_="face", aria_hidden="true")
    role = tag("p", person.role, class_="role") if person.role else None
    text = tag("p", person.text) if person.text else None
    return tag("li", face, tag("div", heading(level, person.name), role, text))


@Component(
    "Team",
    summary="people: heading, text, people [{name, role, text, image {src, alt}}]",
    example={"heading": "Who bakes", "people": [{"name": "Ida Holm", "role": "Baker"}]},
    words=("team", "people", "staff", "our team", "about us"),
    outline=outline_items("people", 8, name=ItemField("title", 60), role=_ROLE, text=ITEM_TEXT),
    outline_hint="items: title = name, detail = role, text; only people that the request names",
    nav_label="Team",
)
def _team(props: TeamProps, ctx: RenderContext) -> Html:
    people = [_person(person, ctx, level_inside(ctx, props)) for person in props.people]
    columns = 4 if len(people) in (4, 7, 8) else min(len(people), 3)
    return section(ctx, props, tag("ul", *people, class_=f"people people-{columns}"), kind="team")


class Testimonial(Props):
    """One voice."""

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
        label = ctx.say("{n} out of 5 stars").format(n=item.rating)
        stars = tag("p", "★" * item.rating + "☆" * (5 - item.rating), class_="stars", role="img", aria_label=label)
    role = tag("span", item.role, class_="quote-role") if item.role else None
    words = tag("span", tag("span", item.name, class_="quote-name"), role, class_="quote-by")
    face = image(ctx, item.image, class_="quote-face") if item.image else None
    caption = tag("figcaption", face, words)
    return tag("figure", stars, tag("blockquote", tag("p", item.quote)), caption)


@Component(
    "Testimonials",
    summary="customer quotes: heading, items [{quote, name, role, image {src, alt}, rating 1-5}]",
    example={"heading": "What people say", "items": [{"quote": "The best rye in town.", "name": "Ana", "rating": 5}]},
    words=("testimonials", "testimonial", "reviews", "quotes", "customer quotes", "customer reviews"),
    outline=outline_items(
        "items", 6, quote=ItemField("text"), name=ItemField("title", default="A customer"), role=_ROLE
    ),
    outline_hint="items: title = name, text = quote, detail = role; only quotes that the request gives",
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
    """One organisation."""

    name: Label
    image: Picture | None = None
    href: LinkUrl | None = None


class LogosProps(SectionProps):
    """Whom one works with, in a quiet row, each as a picture or as its name."""

    items: Annotated[tuple[Logo, ...], Field(min_length=1, max_length=16)]


def _logo(item: Logo, ctx: RenderContext) -> Html:
    picture = item.image and item.image.model_copy(update={"alt": item.image.alt or item.name})
    mark = image(ctx, picture) if picture else tag("span", item.name, class_="wordmark")
    return tag("li", tag("a", mark, href=ctx.url(item.href)) if item.href else mark)


@Component(
    "Logos",
    summary="customers or partners in a row: heading, items [{name, image {src, alt}, href}]",
    example={"heading": "They serve our bread", "items": [{"name": "The Mill Inn"}, {"name": "Café Ost"}]},
    words=("logos", "logo cloud", "partners", "clients", "sponsors", "trusted by"),
    outline=outline_items("items", 12, name=ItemField("title", 60)),
    outline_hint="items: title = name of a customer or partner; only names that the request gives",
)
def _logos(props: LogosProps, ctx: RenderContext) -> Html:
    return section(ctx, props, tag("ul", *(_logo(item, ctx) for item in props.items), class_="logo-row"), kind="logos")
