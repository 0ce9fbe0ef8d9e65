"""Header: the name of the site and its navigation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandbox.spec.component import Business, Component, Label, Link, Picture, Props, RenderContext
from sandbox.spec.html import Html, tag
from sandbox.spec.model import INDEX, JsonObject
from sandbox.spec.parts import image


class HeaderProps(Props):
    """Props of Header."""

    brand: Label
    tagline: Label | None = None
    logo: Picture | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=8)] = ()
    action: Link | None = None


def render(props: HeaderProps, ctx: RenderContext) -> Html:
    """Render the banner with the site's navigation."""
    name = tag("span", props.brand, class_="brand-name")
    tagline = tag("span", props.tagline, class_="brand-line") if props.tagline else None
    words = tag("span", name, tagline, class_="brand-words")
    logo = image(ctx, props.logo, class_="brand-logo", eager=True) if props.logo else None
    brand = tag("a", logo, words, class_="brand", href=ctx.url(INDEX))
    links = [tag("li", _link(link, ctx)) for link in props.links]
    action = None
    if props.action:
        action = tag("a", props.action.label, class_="button button-small", href=ctx.url(props.action.href))
    nav = tag("nav", tag("ul", *links), class_="site-nav", aria_label="Main") if links else None
    return tag("header", tag("div", brand, nav, action, class_="wrap"), class_="site-header", id=ctx.id)


def _link(link: Link, ctx: RenderContext) -> Html:
    current = "page" if link.href.removeprefix("/") == ctx.page else None
    return tag("a", link.label, href=ctx.url(link.href), aria_current=current)


def _minimal(business: Business) -> JsonObject:
    return {"brand": business.name, "links": [link.model_dump() for link in business.links][:8]}


COMPONENT = Component(
    name="Header",
    summary="banner: brand, tagline, logo {src, alt}, links [{label, href}], action {label, href}",
    props=HeaderProps,
    example={
        "brand": "Hill Bakery",
        "links": [{"label": "Bread", "href": "#bread"}],
        "action": {"label": "Order", "href": "#contact"},
    },
    render=render,
    place="header",
    words=("header", "navigation", "nav", "nav bar", "navbar", "menu bar", "top bar"),
    minimal=_minimal,
    css="""
.site-header { border-bottom: 1px solid var(--line); background: var(--bg); }
.site-header .wrap {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: .8rem 1.9rem;
  padding-block: 1.05rem;
}
.brand { display: inline-flex; align-items: center; gap: .75rem; color: var(--ink); text-decoration: none; }
.brand-logo { width: 2.75rem; height: 2.75rem; object-fit: contain; }
.brand-words { display: grid; }
.brand-name {
  font-family: var(--font-headings);
  font-weight: 700;
  font-size: 1.3rem;
  line-height: 1.15;
  letter-spacing: -.01em;
}
.brand-line { font-size: .82rem; color: var(--muted); line-height: 1.3; }
.site-nav { margin-left: auto; }
.site-nav ul {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: .3rem 1.6rem;
  list-style: none;
  margin: 0;
  padding: 0;
}
.site-nav a {
  display: inline-block;
  padding-block: .4rem;
  color: var(--ink);
  text-decoration: none;
  font-size: .98rem;
  font-weight: 500;
  border-bottom: 2px solid transparent;
}
.site-nav a:hover { color: var(--link); border-color: currentColor; }
.site-nav a[aria-current] { color: var(--link); border-color: currentColor; }
@media (max-width: 46rem) {
  .site-header .wrap { padding-block: .9rem .7rem; gap: .5rem 1rem; }
  .site-header .button { margin-left: auto; }
  .site-header .brand { flex: 1 1 0; min-width: 0; gap: .6rem; }
  .site-header .brand-logo { width: 2.3rem; height: 2.3rem; }
  .site-header .brand-name { font-size: 1.15rem; }
  .site-header .button { padding: .45rem .9rem; font-size: .9rem; }
  .brand-line { display: none; }
  .site-nav { order: 1; width: 100%; margin: 0; }
  .site-nav ul { gap: .1rem 1.25rem; }
  .site-nav a { font-size: .95rem; }
}
""",
)
