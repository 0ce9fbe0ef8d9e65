"""Logos: whom one works with, each as a picture or as its name."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.catalog import (
    Business,
    Component,
    Label,
    LinkUrl,
    OutlineSection,
    Picture,
    Props,
    RenderContext,
    SectionProps,
    section_props,
)
from sandbox.spec.html import Html, image, section, tag
from sandbox.spec.model import JsonObject


class Logo(Props):
    """One organisation."""

    name: Label
    image: Picture | None = None
    href: LinkUrl | None = None


class LogosProps(SectionProps):
    """Props of Logos."""

    items: Annotated[tuple[Logo, ...], Field(min_length=1, max_length=16)]


def render(props: LogosProps, ctx: RenderContext) -> Html:
    """Render a quiet row; who has no picture is set as a word."""
    return section(ctx, props, tag("ul", *(_logo(item, ctx) for item in props.items), class_="logo-row"), kind="logos")


def _logo(item: Logo, ctx: RenderContext) -> Html:
    picture = item.image and item.image.model_copy(update={"alt": item.image.alt or item.name})
    mark = image(ctx, picture) if picture else tag("span", item.name, class_="wordmark")
    return tag("li", tag("a", mark, href=ctx.url(item.href)) if item.href else mark)


def _outline(section: OutlineSection, business: Business) -> JsonObject:
    names = [{"name": item["title"][:60]} for item in section.items if item.get("title")]
    return {**section_props(section), "items": names[:12]}


COMPONENT = Component(
    name="Logos",
    summary="customers or partners in a row: heading, items [{name, image {src, alt}, href}]",
    props=LogosProps,
    example={"heading": "They serve our bread", "items": [{"name": "The Mill Inn"}, {"name": "Café Ost"}]},
    render=render,
    words=("logos", "logo cloud", "partners", "clients", "sponsors", "trusted by"),
    outline=_outline,
    outline_hint="items: title = name of a customer or partner; only names that the request gives",
    css="""
.logos { padding-block: calc(clamp(2.25rem, 2rem + 1.5vw, 3.5rem) * var(--space)); }
.logos .intro { margin: 0 0 1.5rem; max-width: none; }
.logos .intro :is(h1, h2) {
  font-family: var(--font);
  font-size: .97rem;
  font-weight: 600;
  letter-spacing: 0;
  color: var(--muted);
}
.logo-row {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  justify-content: space-between;
  gap: 1.2rem clamp(1.75rem, 4vw, 3.5rem);
  list-style: none;
  margin: 0;
  padding: 0;
}
.logo-row a { color: inherit; text-decoration: none; }
.logo-row img { height: 2.2rem; width: auto; }
.wordmark {
  font-family: var(--font-headings);
  font-size: calc(1.3rem * var(--heading-scale));
  font-weight: 700;
  letter-spacing: -.02em;
  color: var(--muted);
}
.logo-row li:nth-child(3n + 2) .wordmark {
  font-family: var(--font);
  font-size: 1.02rem;
  letter-spacing: .12em;
  text-transform: uppercase;
}
.logo-row li:nth-child(3n) .wordmark { font-weight: 400; font-style: italic; }
@media (max-width: 40rem) { .logo-row { justify-content: var(--intro-align); } }
""",
)
