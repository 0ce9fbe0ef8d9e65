"""Posts, players and widgets of other services, each shown in the page once a visitor asks for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sites.spec.catalog import Component, LinkUrl, Picture, Props, RenderContext, SectionProps, Title
from sites.spec.embeds import frame_of, framed
from sites.spec.html import EMPTY, Html, image, section, tag


class EmbeddedPage(Props):
    """A page of a service, by the address that people copy there."""

    href: LinkUrl
    title: Title
    image: Picture | None = None
    """Shown before the page is."""
    embed: bool = True
    """False: an ordinary link, as for a service that the publisher does not allow."""


class EmbedProps(SectionProps):
    items: Annotated[tuple[EmbeddedPage, ...], Field(min_length=1, max_length=6)]


def _entry(item: EmbeddedPage, ctx: RenderContext) -> Html:
    if not item.embed:
        return tag("li", tag("p", tag("a", item.title, href=ctx.url(item.href)), class_="card-link"), class_="card")
    still = image(ctx, item.image.model_copy(update={"alt": ""})) if item.image else EMPTY
    frame = frame_of(item.href)
    return tag("li", framed(ctx, frame, title=item.title, call=ctx.say("Show"), still=still, href=item.href))


@Component(
    "Embed",
    summary="posts, players, widgets of other services: items [{href, title, image}]",
    example={
        "heading": "From our kitchen",
        "items": [{"href": "https://www.instagram.com/p/C1a2b3c4d5e/", "title": "Rye, before it goes in"}],
    },
    words=("embed", "instagram post", "social media post", "social post", "embedded post"),
)
def _embed(props: EmbedProps, ctx: RenderContext) -> Html:
    entries = tag(
        "ul", *(_entry(item, ctx) for item in props.items), class_=f"embeds embeds-{min(len(props.items), 3)}"
    )
    return section(ctx, props, entries, kind="embedded")
