"""Header: the name of the site and its navigation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sandbox.spec.catalog import Business, Component, Label, Link, Picture, Props, RenderContext
from sandbox.spec.components.drawings import icon
from sandbox.spec.html import Html, image, tag
from sandbox.spec.model import INDEX, JsonObject


class HeaderProps(Props):
    """Props of Header."""

    brand: Label
    tagline: Label | None = None
    logo: Picture | None = None
    links: Annotated[tuple[Link, ...], Field(max_length=8)] = ()
    action: Link | None = None
    layout: Literal["bar", "centered"] = "bar"


def render(props: HeaderProps, ctx: RenderContext) -> Html:
    """Render the banner with the site's navigation, which folds into a menu on a narrow screen."""
    name = tag("span", props.brand, class_="brand-name")
    tagline = tag("span", props.tagline, class_="brand-line") if props.tagline else None
    words = tag("span", name, tagline, class_="brand-words")
    logo = image(ctx, props.logo, class_="brand-logo", eager=True) if props.logo else None
    brand = tag("a", logo, words, class_="brand", href=ctx.url(INDEX))
    action = None
    if props.action:
        action = tag("a", props.action.label, class_="button button-small", href=ctx.url(props.action.href))
    inner = tag("div", brand, *_navigation(props, ctx), action, class_="wrap")
    return tag("header", inner, class_=f"site-header site-header-{props.layout}", id=ctx.id)


def _navigation(props: HeaderProps, ctx: RenderContext) -> tuple[Html, ...]:
    """Return the list of links and the buttons that show and hide it where there is no room for it.

    A popover needs no script: the browser opens it, closes it on Escape, and says so to assistive technology.
    """
    if not props.links:
        return ()
    menu = f"{ctx.id}.menu"
    opener = tag("button", icon("menu"), "Menu", type="button", class_="menu-button", popovertarget=menu)
    closer = tag(
        "button", icon("close"), "Close", type="button", class_="menu-button menu-close", popovertarget=menu,
        popovertargetaction="hide",
    )  # fmt: skip
    links = tag("ul", *(tag("li", _link(link, ctx)) for link in props.links))
    return opener, tag("nav", closer, links, class_="site-nav", id=menu, aria_label="Main", popover=True)


def _link(link: Link, ctx: RenderContext) -> Html:
    current = "page" if link.href.removeprefix("/") == ctx.page else None
    return tag("a", link.label, href=ctx.url(link.href), aria_current=current)


def _minimal(business: Business) -> JsonObject:
    return {"brand": business.name, "links": [link.model_dump() for link in business.links][:8]}


COMPONENT = Component(
    name="Header",
    summary="banner: brand, tagline, logo {src, alt}, links [{label, href}], action {label, href}, layout bar|centered",
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
  font-size: calc(1.3rem * var(--heading-scale));
  line-height: 1.15;
  letter-spacing: var(--heading-tracking);
}
.brand-line { font-size: .82rem; color: var(--muted); line-height: 1.3; }
.site-nav {
  display: block;
  position: static;
  width: auto;
  height: auto;
  margin: 0 0 0 auto;
  padding: 0;
  border: 0;
  background: none;
  color: inherit;
  overflow: visible;
}
.site-nav ul {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: .3rem 1.7rem;
  list-style: none;
  margin: 0;
  padding: 0;
}
.site-nav a {
  display: inline-block;
  padding-block: .4rem;
  color: var(--ink);
  text-decoration: none;
  font-size: .97rem;
  font-weight: 500;
  border-bottom: 2px solid transparent;
}
.site-nav a:hover { color: var(--link); border-color: currentColor; }
.site-nav a[aria-current] { color: var(--link); border-color: currentColor; }
.menu-button { display: none; }
@media (min-width: 52rem) {
  .site-header-centered .wrap { flex-direction: column; gap: .9rem; padding-block: 1.9rem 1.1rem; }
  .site-header-centered .brand { flex-direction: column; text-align: center; }
  .site-header-centered .brand-words { gap: .3rem; }
  .site-header-centered .brand-name { font-size: calc(1.9rem * var(--heading-scale)); }
  .site-header-centered .site-nav { margin: 0; }
  .site-header-centered .site-nav ul { justify-content: center; }
  .site-header-centered .button { position: absolute; right: max(var(--gutter), calc(50% - 36rem)); top: 1.9rem; }
  .site-header-centered { position: relative; }
}
@media (max-width: 52rem) {
  .site-header .wrap { flex-wrap: nowrap; gap: .75rem; min-height: 4.25rem; padding-block: .7rem; }
  .site-header .brand { flex: 1 1 0; min-width: 0; gap: .6rem; }
  .site-header .brand-logo { width: 2.3rem; height: 2.3rem; }
  .site-header .brand-name { font-size: calc(1.18rem * var(--heading-scale)); }
  .site-header .button { order: 1; flex: 0 1 auto; padding: .45rem .85rem; font-size: .9rem; }
  .brand-line { display: none; }
}
@media (max-width: 52rem) {
  @supports selector(:popover-open) {
    .menu-button {
      order: 2;
      display: inline-flex;
      align-items: center;
      gap: .4rem;
      flex: none;
      padding: .4rem .1rem;
      border: 0;
      background: none;
      color: var(--ink);
      font: inherit;
      font-size: .95rem;
      font-weight: 600;
      cursor: pointer;
    }
    .site-nav { display: none; }
    .site-nav:popover-open {
      display: block;
      position: absolute;
      inset: 0 0 auto;
      width: auto;
      padding: .7rem var(--gutter) 1.6rem;
      border-bottom: 1px solid var(--line);
      background: var(--bg);
      color: var(--ink);
      box-shadow: 0 24px 48px rgb(0 0 0 / .22);
    }
    .site-nav::backdrop { background: rgb(0 0 0 / .35); }
    .menu-close { display: flex; margin: .3rem 0 .6rem auto; }
    .site-nav ul { display: grid; gap: 0; }
    .site-nav li { border-top: 1px solid var(--line); }
    .site-nav a {
      display: block;
      padding-block: .85rem;
      border: 0;
      font-family: var(--font-headings);
      font-size: 1.25rem;
      font-weight: var(--heading-weight);
    }
  }
  @supports not selector(:popover-open) {
    .site-header .wrap { flex-wrap: wrap; }
    .site-nav { order: 3; width: 100%; }
  }
}
""",
)
